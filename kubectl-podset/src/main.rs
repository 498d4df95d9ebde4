//! A kubectl plugin for PodSets: `kubectl podset rollout …`, as `kubectl rollout` does it for Deployments, and `kubectl podset why`.
//!
//! `rollout` and `why` decide the texts, and are pure. `cluster` sends the requests.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod cluster;
mod objects;
mod rollout;
mod why;

use std::{
    io::{ErrorKind, Write, stderr, stdout},
    process::ExitCode,
    time::Duration,
};

use clap::{ArgAction, Args, Parser, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use cluster::{Cluster, Error, Location};
use objects::{KIND, RESOURCE};

/// The number of the signal that ends a process without a reader.
const SIGPIPE: i32 = 13;

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
    #[command(after_help = "Example: kubectl podset why web")]
    Why(Sets),
}

#[derive(Subcommand)]
enum Rollout {
    /// Show the status of the rollout.
    ///
    /// By default it watches the status until the rollout is done. If a new rollout starts in between, it continues with that one; pin it
    /// to a revision with --revision=N. The exit code is 1 if the rollout fails or does not end in time.
    #[command(after_help = "Example: kubectl podset rollout status web --timeout=5m")]
    Status {
        #[command(flatten)]
        sets: Sets,
        /// Watch the status of the rollout until it is done.
        #[arg(short, long, action = ArgAction::Set, default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true)]
        watch: bool,
        /// The length of time to wait for each set before ending watch, zero means never. It contains a time unit (1s, 2m, 3h).
        #[arg(long, default_value = "0s", value_parser = duration)]
        timeout: SignedDuration,
        /// Pin to a specific revision for showing its status. 0: the last revision.
        #[arg(long, default_value_t = 0)]
        revision: u32,
    },
    /// View previous rollout revisions and configurations.
    #[command(after_help = "Example: kubectl podset rollout history web --revision=3")]
    History {
        #[command(flatten)]
        sets: Sets,
        /// See the details, including the pod template of the revision specified.
        #[arg(long, default_value_t = 0)]
        revision: u32,
        /// Print the ControllerRevisions.
        #[arg(short, long, value_parser = ["name", "json", "yaml"])]
        output: Option<String>,
    },
    /// Roll back to a previous rollout.
    #[command(after_help = "Example: kubectl podset rollout undo web --to-revision=3 --dry-run=server")]
    Undo {
        #[command(flatten)]
        change: Change,
        /// The revision to roll back to. 0: the last revision with another template.
        #[arg(long, default_value_t = 0)]
        to_revision: u32,
    },
    /// Replace all pods of a PodSet according to its update strategy.
    #[command(after_help = "Example: kubectl podset rollout restart podset --selector=team=a")]
    Restart(Change),
    /// Pause the rollout: until you resume it, no pod is replaced because of its template.
    Pause(Change),
    /// Resume a paused rollout.
    Resume(Change),
}

/// Which PodSets.
#[derive(Args)]
struct Sets {
    /// The PodSets: NAME, podset NAME... or podset/NAME...
    #[arg(value_name = "NAME", required_unless_present = "selector")]
    names: Vec<String>,
    /// Selector (label query) to filter on, instead of names.
    #[arg(short = 'l', long)]
    selector: Option<String>,
}

/// Which PodSets to change, and what to print.
#[derive(Args)]
struct Change {
    #[command(flatten)]
    sets: Sets,
    /// server: the API server checks the change but does not store it. client: the change is not sent.
    #[arg(long, default_value = "none", value_parser = ["none", "server", "client"], num_args = 0..=1, require_equals = true,
        default_missing_value = "client")]
    dry_run: String,
    /// Print the changed PodSet in this format.
    #[arg(short, long, value_parser = ["name", "json", "yaml"])]
    output: Option<String>,
}

impl Sets {
    /// The names, without their type; none: the selector counts.
    fn names(&self) -> Result<Vec<String>, String> {
        // As kubectl, in any case, and with the version.
        let is_type = |text: &str| {
            let text = text.to_lowercase().replacen(".v1alpha1.", ".", 1);
            ["podset", "podsets", "pset", KIND, RESOURCE].contains(&&*text)
        };
        let typed =
            |text: &String| text.split_once('/').filter(|(type_, _)| is_type(type_)).map(|(_, name)| name.to_owned());
        let names: Option<Vec<String>> = match (&self.names[..], &self.selector) {
            ([], _) => return Ok(Vec::new()),
            ([type_], Some(_)) if is_type(type_) => return Ok(Vec::new()),
            (_, Some(_)) => return Err("name the PodSets or give a selector, not both".to_owned()),
            ([name], _) if !name.contains('/') => Some(vec![name.clone()]),
            ([type_, names @ ..], _) if is_type(type_) => Some(names.to_vec()),
            (all, _) => all.iter().map(typed).collect(),
        };
        let is_name = |name: &String| !name.is_empty() && !name.contains('/');
        let names = names.filter(|names| names.iter().all(is_name));
        names
            .ok_or_else(|| "expected NAME, podset NAME... or podset/NAME...: this plugin knows PodSets only".to_owned())
    }
}

impl Command {
    fn sets(&self) -> &Sets {
        use Rollout::{History, Pause, Restart, Resume, Status, Undo};
        match self {
            Command::Why(sets) | Command::Rollout(Status { sets, .. } | History { sets, .. }) => sets,
            Command::Rollout(Undo { change, .. } | Restart(change) | Pause(change) | Resume(change)) => &change.sets,
        }
    }
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let text = if text == "0" { "0s" } else { text };
    let limit = text.parse().ok().filter(|limit: &SignedDuration| !limit.is_negative());
    limit.ok_or_else(|| "give a number and a unit, such as 30s or 5m".to_owned())
}

/// Prints lines. Output that cannot be written ends the command.
fn print(lines: &str) {
    if let Err(error) = stdout().write_all(line(lines).as_bytes()) {
        std::process::exit(exit_code(&error));
    }
}

/// The text and a newline; nothing for an empty text, so that an empty list prints no empty line.
fn line(text: &str) -> String {
    if text.is_empty() { String::new() } else { without_control_characters(text) + "\n" }
}

/// The exit code if the output cannot be written. If its reader has gone away, the command ends without a message, like kubectl.
fn exit_code(error: &std::io::Error) -> i32 {
    if error.kind() == ErrorKind::BrokenPipe {
        return 128 + SIGPIPE;
    }
    warn(&format!("error: cannot write the output: {error}"));
    1
}

fn warn(lines: &str) {
    drop(writeln!(stderr(), "{}", without_control_characters(lines)));
}

/// Replaces control characters except newlines and tabs, and those that change the text direction. Tenants can put them into events and
/// annotations.
fn without_control_characters(text: &str) -> String {
    let is_shown = |c: char| matches!(c, '\n' | '\t');
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.replace(|c: char| (c.is_control() && !is_shown(c)) || turns(c), "\u{fffd}")
}

/// The text on one line.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            warn(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Runs the command for each set; returns whether it succeeded for all of them.
async fn run(Cli { command, location }: Cli) -> Result<bool, Error> {
    let sets = command.sets();
    let mut names = sets.names()?;
    let cluster = Cluster::new(location).await?;
    if let Some(selector) = &sets.selector {
        names = in_time(&command, cluster.find(selector)).await?;
    }
    let (mut succeeded, mut separator) = (true, "");
    for name in names {
        match in_time(&command, run_for(&cluster, &command, &name, &mut separator)).await {
            Ok(text) => print(&text),
            Err(error) => {
                warn(&error.to_string());
                succeeded = false;
            }
        }
    }
    Ok(succeeded)
}

/// Waits for a part of the command, but not longer than its timeout. The search by selector and each set are such parts.
async fn in_time<T>(command: &Command, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let limit = match command {
        Command::Rollout(Rollout::Status { timeout, .. }) => Duration::try_from(*timeout).unwrap_or_default(),
        _ => Duration::ZERO,
    };
    let limit = if limit.is_zero() { Duration::MAX } else { limit };
    tokio::time::timeout(limit, work).await.map_err(|_| "timed out waiting for the condition".to_owned())?
}

/// Runs the command for one set; returns what is left to print.
async fn run_for(cluster: &Cluster, command: &Command, name: &str, separator: &mut &str) -> Result<String, Error> {
    let set = cluster.get(name).await?;
    let (args, (patch, what)) = match command {
        Command::Why(_) => return Ok(why::why(&cluster.look(set).await?)),
        Command::Rollout(Rollout::Status { watch, revision, .. }) => {
            return cluster.follow(set, (*revision).into(), *watch).await;
        }
        Command::Rollout(Rollout::History { revision, output, .. }) => {
            let (revisions, number) = (cluster.owned(&set).await?, (*revision).into());
            let Some(output) = output else { return Ok(rollout::history(&set, &revisions, number)?) };
            let chosen = rollout::chosen(&revisions, number)?.into_iter();
            let shown = chosen.map(|stored| show(json!(stored), output, separator));
            return Ok(shown.collect::<Result<Vec<_>, _>>()?.join("\n"));
        }
        Command::Rollout(Rollout::Undo { change, to_revision }) => {
            (change, rollout::undo(&set, &cluster.owned(&set).await?, (*to_revision).into())?)
        }
        Command::Rollout(Rollout::Restart(change)) => (change, rollout::restart(&set, Timestamp::now())?),
        Command::Rollout(Rollout::Pause(change)) => (change, rollout::pause(&set, true)?),
        Command::Rollout(Rollout::Resume(change)) => (change, rollout::pause(&set, false)?),
    };
    let (is_sent, note) = match args.dry_run.as_str() {
        "none" => (true, ""),
        "server" => (true, " (server dry run)"),
        _ if matches!(args.output.as_deref(), Some("json" | "yaml")) => {
            return Err("--dry-run=client cannot print the result: use --dry-run=server".to_owned().into());
        }
        _ => (false, " (dry run)"),
    };
    let changed = cluster.patch(&set, patch.as_ref().filter(|_| is_sent), args.dry_run == "server").await?;
    match &args.output {
        Some(output) => show(changed, output, separator),
        None => Ok(format!("{KIND}/{name} {what}{note}")),
    }
}

/// An object as kubectl prints it, after the separator; sets the separator for the next one.
fn show(mut object: Value, output: &str, separator: &mut &str) -> Result<String, Error> {
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
    Ok(match output {
        "json" => format!("{object:#}"),
        "yaml" => {
            let yaml = serde_saphyr::to_string(&object).map_err(|error| error.to_string())?;
            format!("{}{}", std::mem::replace(separator, "---\n"), yaml.trim_end())
        }
        _ => {
            let version = text(&object["apiVersion"]);
            let group = version.split('/').next().unwrap_or_default();
            format!("{}.{group}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
        }
    })
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
        assert_eq!((watches(&["--timeout=5"]), watches(&["--timeout=0"])), (None, Some((true, 0))));
        assert_eq!((watches(&["--revision=-1"]), watches(&["--timeout=-5s"])), (None, None));
    }

    #[test]
    fn nothing_to_print_is_no_empty_line() {
        assert_eq!((line(""), line("a")), (String::new(), "a\n".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_also_counts_for_the_first_request() {
        let cluster = Cluster::testing(|_| std::future::pending());
        let all = ["kubectl-podset", "rollout", "status", "web", "--timeout=5s"];
        let command = Cli::try_parse_from(all).unwrap().command;
        let error = in_time(&command, cluster.find("a=b")).await.unwrap_err().to_string();
        assert_eq!(error, "error: timed out waiting for the condition");
    }

    #[test]
    fn text_from_objects_has_no_control_characters_and_stays_on_its_line() {
        assert_eq!(without_control_characters("a\u{1b}]0;\u{202e}b\n\tc"), "a\u{fffd}]0;\u{fffd}b\n\tc");
        assert_eq!(on_one_line("no\nNext: delete  all"), "no Next: delete all");
    }

    #[test]
    fn output_that_cannot_be_written_is_an_error_unless_nobody_reads_it() {
        let failure = |kind: ErrorKind| exit_code(&kind.into());
        assert_eq!((failure(ErrorKind::BrokenPipe), failure(ErrorKind::StorageFull)), (141, 1));
    }

    #[test]
    fn objects_are_shown_as_kubectl_does() {
        let metadata = json!({ "name": "web", "managedFields": [] });
        let object = json!({ "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": metadata });
        let mut separator = "";
        let mut shown = |output| show(object.clone(), output, &mut separator).unwrap();
        let yaml = "apiVersion: app.example.com/v1alpha1\nkind: PodSet\nmetadata:\n  name: web";
        assert_eq!((shown("name"), shown("yaml")), ("podset.app.example.com/web".to_owned(), yaml.to_owned()));
        assert_eq!(shown("yaml"), format!("---\n{yaml}"));
        assert!(shown("json").starts_with("{\n  \"apiVersion\""));
    }

    #[test]
    fn sets_are_named_with_or_without_their_type() {
        let names = |arguments: &str| {
            let all = ["kubectl-podset", "why"].into_iter().chain(arguments.split(' '));
            Cli::try_parse_from(all).map_err(|error| error.to_string())?.command.sets().names()
        };
        for text in [
            "web",
            "podset/web",
            "podset web",
            "podsets.app.example.com/web",
            "PodSet/web",
            "PODSET web",
            "podsets.v1alpha1.app.example.com/web",
        ] {
            assert_eq!(names(text).as_deref(), Ok(&["web".to_owned()][..]), "{text}");
        }
        assert_eq!(names("pset/web podset/db"), names("pset web db"));
        assert_eq!(names("podset -l a=b").as_deref(), Ok(&[][..]));
        for text in [
            "",
            "web db",
            "deployment/web",
            "podset/",
            "podset/a/b",
            "podset podset/web",
            "deployment web",
            "web -l a=b",
        ] {
            assert!(names(text).is_err(), "{text}");
        }
    }
}
