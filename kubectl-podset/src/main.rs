//! A kubectl plugin for PodSets: `kubectl podset rollout …`, as `kubectl rollout` does it for Deployments, and `kubectl podset why`.
//!
//! `rollout` and `why` decide the texts, and are pure. `cluster` sends the requests.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod cluster;
mod objects;
mod rollout;
mod why;

use std::{
    io::{Write, stderr, stdout},
    process::ExitCode,
    time::Duration,
};

use clap::{ArgAction, Args, Parser, Subcommand};
use jiff::{SignedDuration, Timestamp};

use cluster::{Error, Location, Target};
use objects::{KIND, PodSet};
use rollout::Undo;

/// Manage rollouts of PodSets, and explain why a set is not ready.
#[derive(Parser)]
#[command(name = "kubectl-podset", bin_name = "kubectl podset", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    location: Location,
}

#[derive(Subcommand)]
enum Command {
    /// Manage the rollout of a PodSet.
    #[command(subcommand)]
    Rollout(Rollout),
    /// Explain why a PodSet is not ready or not up to date, and what helps.
    #[command(after_help = "Examples:\n  # Explain why the set web is not ready\n  kubectl podset why web")]
    Why(Name),
}

#[derive(Subcommand)]
enum Rollout {
    /// Show the status of the rollout.
    ///
    /// By default it watches the status until the rollout is done. If a new rollout starts in between, it continues with that one; pin it
    /// to a revision with --revision=N. The exit code is 1 if the rollout fails or does not end in time.
    #[command(
        after_help = "Examples:\n  # Watch the rollout of the set web, for 5 minutes at most\n  kubectl podset rollout status web --timeout=5m"
    )]
    Status {
        #[command(flatten)]
        name: Name,
        /// Watch the status of the rollout until it is done.
        #[arg(short, long, action = ArgAction::Set, default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true)]
        watch: bool,
        /// The length of time to wait before ending watch, zero means never. It contains a time unit (1s, 2m, 3h).
        #[arg(long, default_value = "0s")]
        timeout: SignedDuration,
        /// Pin to a specific revision for showing its status. 0: the last revision.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        revision: i64,
    },
    /// View previous rollout revisions and configurations.
    #[command(
        after_help = "Examples:\n  # View the revisions of the set web\n  kubectl podset rollout history web\n\n  # View the template of revision 3\n  kubectl podset rollout history web --revision=3"
    )]
    History {
        #[command(flatten)]
        name: Name,
        /// See the details, including the pod template of the revision specified.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        revision: i64,
    },
    /// Roll back to a previous rollout.
    #[command(
        after_help = "Examples:\n  # Roll back to the previous template\n  kubectl podset rollout undo web\n\n  # Roll back to revision 3\n  kubectl podset rollout undo web --to-revision=3"
    )]
    Undo {
        #[command(flatten)]
        name: Name,
        /// The revision to roll back to. 0: the last revision with another template.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        to_revision: i64,
    },
    /// Replace all pods, as its update strategy says.
    #[command(after_help = "Examples:\n  # Restart the set web\n  kubectl podset rollout restart web")]
    Restart(Name),
    /// Pause the rollout: no pod is replaced because of its template until it is resumed.
    #[command(after_help = "Examples:\n  # Pause the rollout of the set web\n  kubectl podset rollout pause web")]
    Pause(Name),
    /// Resume a paused rollout.
    #[command(after_help = "Examples:\n  # Resume the rollout of the set web\n  kubectl podset rollout resume web")]
    Resume(Name),
}

#[derive(Args)]
struct Name {
    /// The PodSet: NAME or podset/NAME.
    #[arg(value_name = "NAME", value_parser = set_name)]
    name: String,
}

/// The name of a set, which may have its resource type in front.
fn set_name(text: &str) -> Result<String, String> {
    let (type_, name) = text.split_once('/').unwrap_or(("podset", text));
    let is_type = ["podset", "podsets", "pset", KIND, objects::RESOURCE].contains(&type_);
    match is_type && !name.is_empty() && !name.contains('/') {
        true => Ok(name.to_owned()),
        false => Err("expected NAME or podset/NAME".to_owned()),
    }
}

/// Prints a line. A reader that has gone away is no error.
fn print(line: &str) {
    drop(writeln!(stdout(), "{line}"));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            // As kubectl, and not 2.
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(stderr(), "{error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(Cli { command, location }: Cli) -> Result<(), Error> {
    let target = |Name { name }| Target::new(location, name);
    match command {
        Command::Why(name) => print(&why::why(&target(name).await?.look().await?)),
        Command::Rollout(Rollout::Status { name, watch, timeout, revision }) => {
            let target = target(name).await?;
            let following = target.follow(revision, watch);
            match Duration::try_from(timeout) {
                Ok(timeout) if !timeout.is_zero() => tokio::time::timeout(timeout, following)
                    .await
                    .map_err(|_| "timed out waiting for the condition".to_owned())??,
                _ => following.await?,
            }
        }
        Command::Rollout(Rollout::History { name, revision }) => {
            let target = target(name).await?;
            let set = target.get().await?;
            print(&rollout::history(&set, &target.revisions(&set).await?, revision)?);
        }
        Command::Rollout(Rollout::Undo { name, to_revision }) => {
            let target = target(name).await?;
            let set = target.get().await?;
            match rollout::undo(&set, &target.revisions(&set).await?, to_revision)? {
                Undo::Skip(why) => done(&set, &why),
                Undo::Patch(patch) => {
                    target.patch(&patch).await?;
                    done(&set, "rolled back");
                }
            }
        }
        Command::Rollout(Rollout::Restart(name)) => {
            change(&target(name).await?, |set| rollout::restart(set, Timestamp::now()), "restarted").await?;
        }
        Command::Rollout(Rollout::Pause(name)) => {
            change(&target(name).await?, |set| rollout::pause(set, true), "paused").await?;
        }
        Command::Rollout(Rollout::Resume(name)) => {
            change(&target(name).await?, |set| rollout::pause(set, false), "resumed").await?;
        }
    }
    Ok(())
}

/// Reads the set, sends the patch, and says what was done.
async fn change(
    target: &Target,
    patch: impl FnOnce(&PodSet) -> Result<serde_json::Value, String>,
    what: &str,
) -> Result<(), Error> {
    let set = target.get().await?;
    target.merge(&patch(&set)?).await?;
    done(&set, what);
    Ok(())
}

fn done(set: &PodSet, what: &str) {
    print(&format!("{KIND}/{} {what}", objects::name(&set.metadata)));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_those_of_kubectl() {
        Cli::command().debug_assert();
        let watches = |arguments: &[&str]| {
            let cli =
                Cli::try_parse_from([&["kubectl-podset", "rollout", "status", "web"], arguments].concat()).ok()?;
            let Command::Rollout(Rollout::Status { watch, timeout, .. }) = cli.command else { return None };
            Some((watch, timeout.as_secs()))
        };
        assert_eq!(watches(&[]), Some((true, 0)));
        assert_eq!(watches(&["-w=false", "--timeout=1m30s"]), Some((false, 90)));
        assert_eq!(watches(&["--watch", "-n", "x", "--timeout", "2m"]), Some((true, 120)));
        assert_eq!(watches(&["--timeout=5"]), None);
        assert_eq!(watches(&["--revision=-1"]), None);
    }

    #[test]
    fn a_name_may_have_its_type_in_front() {
        for text in ["web", "podset/web", "podsets.app.example.com/web"] {
            assert_eq!(set_name(text).as_deref(), Ok("web"));
        }
        for text in ["", "deployment/web", "podset/", "podset/a/b"] {
            assert!(set_name(text).is_err(), "{text}");
        }
    }
}
