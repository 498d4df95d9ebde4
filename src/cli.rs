//! The flags of `podset-operator`, and the error for each wrong value. Those of the servers and of the log are in their modules of the kit.
//!
//! Each flag is an environment variable too: `PODSET_OPERATOR_` and the flag in capitals with underscores.

mod values;

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use jiff::SignedDuration;

use leadership::{Timing, TimingError};
use operator_kit::{listwatch::Scope, server, telemetry::logs::Logging};
use values::{image, lease_name, namespace, seconds};

/// The end of `run --help`.
const EXIT_CODES: &str = "Exit codes:
  0         shut down cleanly after SIGTERM or SIGINT
  1         a fatal error, or the lease was lost
  2         cannot start as configured: wrong flags, a missing or unusable kubeconfig, credential or certificate, or another
            installation leads
  130, 143  stopped at once by a second SIGINT or SIGTERM";

/// Keeps N identical pods running for every PodSet, and never more than N.
#[derive(Clone, Debug, Parser)]
#[command(name = "podset-operator", version, about, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do; `run` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `run`, which also apply without a subcommand.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the operator (the default)
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArgs>),
    /// Print the custom resource definitions as YAML
    Crd,
}

impl Cli {
    /// Parses a command line, and checks that its values fit together. `--help` and `--version` are errors, too.
    pub fn read(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let mut command = Cli::command();
        // With a subcommand, the environment variables of the top level are ignored: a wrong one must not stop `crd`, and `run` reads them
        // itself.
        if arguments.get(1).is_some_and(|word| command.find_subcommand(word).is_some()) {
            command = command.mut_args(|flag| flag.env(None::<&str>));
        }
        let matches = command.try_get_matches_from_mut(arguments)?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let run = match &cli.command {
            Some(Command::Run(run)) => run,
            Some(Command::Crd) => return Ok(cli),
            None => &cli.run,
        };
        run.timing().map_err(|error| Cli::command().error(ErrorKind::ValueValidation, error))?;
        Ok(cli)
    }

    /// The command, `run` by default.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or_else(|| Command::Run(Box::new(self.run)))
    }
}

/// The flags of the durations that an error is about.
fn flags(error: &TimingError) -> &'static str {
    match error {
        TimingError::Deadline(..) => "--leader-elect-lease-duration and --leader-elect-renew-deadline",
        TimingError::Period(..) => "--leader-elect-renew-deadline and --leader-elect-retry-period",
        _ => "--leader-elect-retry-period",
    }
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Elect a leader, so that only one replica writes; with `false` every process writes, so run only one
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Leader election")]
    pub leader_elect: bool,

    /// How long other replicas wait after the last renewal before they take the lease, in whole seconds
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT_LEASE_DURATION", default_value = "15s", value_parser = seconds,
        value_name = "DURATION", help_heading = "Leader election")]
    pub leader_elect_lease_duration: SignedDuration,

    /// How long a leader keeps leading if it cannot renew its lease; less than the lease duration
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT_RENEW_DEADLINE", default_value = "10s", value_parser = seconds,
        value_name = "DURATION", help_heading = "Leader election")]
    pub leader_elect_renew_deadline: SignedDuration,

    /// Time between two attempts to take or renew the lease; less than the renew deadline divided by 1.2
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT_RETRY_PERIOD", default_value = "2s", value_parser = seconds,
        value_name = "DURATION", help_heading = "Leader election")]
    pub leader_elect_retry_period: SignedDuration,

    /// Name of the Lease, the same for all replicas
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT_RESOURCE_NAME", default_value = "podset-operator",
        value_parser = lease_name, value_name = "NAME", help_heading = "Leader election")]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease; if set, the operator does not search for other installations [default: the pod's own, or the kubeconfig's]
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT_RESOURCE_NAMESPACE", value_parser = namespace,
        value_name = "NAMESPACE", help_heading = "Leader election")]
    pub leader_elect_resource_namespace: Option<String>,

    /// What to serve, and where.
    #[command(flatten, next_help_heading = "Serving")]
    pub serving: server::Options,

    /// Watch this namespace only; repeat the flag, or separate names with commas [default: all namespaces]
    #[arg(long, env = "PODSET_OPERATOR_WATCH_NAMESPACE", value_delimiter = ',', value_parser = namespace,
        value_name = "NAMESPACE", help_heading = "Controllers")]
    pub watch_namespace: Vec<String>,

    /// How many objects of each kind are reconciled at the same time
    #[arg(long, env = "PODSET_OPERATOR_MAX_CONCURRENT_RECONCILES", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..), value_name = "N", help_heading = "Controllers")]
    pub max_concurrent_reconciles: u16,

    /// Image of the pods of a PodSet whose template is missing or has no spec
    #[arg(long, env = "PODSET_OPERATOR_DEFAULT_IMAGE", default_value = "quay.io/amacdona/strauss", value_parser = image,
        value_name = "IMAGE", help_heading = "Controllers")]
    pub default_image: String,

    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's own ServiceAccount]
    #[arg(long, env = "PODSET_OPERATOR_KUBECONFIG", value_name = "FILE", help_heading = "Connection")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context]
    #[arg(long, env = "PODSET_OPERATOR_CONTEXT", value_name = "NAME", help_heading = "Connection")]
    pub context: Option<String>,

    /// How to log.
    #[command(flatten, next_help_heading = "Logging")]
    pub logging: Logging,
}

impl RunArgs {
    /// The namespaces to watch, without duplicates; `[None]` for all.
    pub fn scopes(&self) -> Vec<Scope> {
        let namespaces: BTreeSet<&str> = self.watch_namespace.iter().map(String::as_str).collect();
        if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(|name| Some(name.into())).collect() }
    }

    /// The durations of the election. Returns an error if they do not fit together, which [`Cli::read`] has checked.
    pub fn timing(&self) -> Result<Timing, String> {
        let [duration, deadline, period] =
            [self.leader_elect_lease_duration, self.leader_elect_renew_deadline, self.leader_elect_retry_period]
                .map(SignedDuration::unsigned_abs);
        Timing::new(duration, deadline, period).map_err(|error| format!("{}: {error}", flags(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<RunArgs, String> {
        let arguments = ["podset-operator"].iter().chain(arguments);
        match Cli::read(arguments).map(Cli::into_command) {
            Ok(Command::Run(run)) => Ok(*run),
            Ok(Command::Crd) => Err("crd".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_flags_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_the_default() {
        for arguments in [&["run", "--leader-elect=false"][..], &["--leader-elect=false"]] {
            assert!(!parsed(arguments).unwrap().leader_elect);
        }
        assert!(parsed(&["--leader-elect"]).unwrap().leader_elect);
        assert_eq!(parsed(&["crd"]).unwrap_err(), "crd");
    }

    #[test]
    fn every_wrong_value_is_refused_with_its_flag_and_a_remedy() {
        for (flag, value, remedy) in [
            ("--leader-elect", "maybe", "true, false"),
            ("--leader-elect-lease-duration", "15", "as in 15s"),
            ("--leader-elect-renew-deadline", "500ms", "whole seconds"),
            ("--leader-elect-retry-period", "0s", "at least 1s"),
            ("--leader-elect-lease-duration", "10s", "must be longer than the renew deadline (10s)"),
            ("--leader-elect-lease-duration", "10s", "and --leader-elect-renew-deadline"),
            ("--leader-elect-retry-period", "9s", "give a longer deadline or a shorter period"),
            ("--leader-elect-retry-period", "9s", "--leader-elect-renew-deadline and"),
            ("--leader-elect-resource-name", "My_Lease", "lower-case"),
            ("--leader-elect-resource-namespace", "a.b", "1 to 63"),
            ("--metrics-secure", "maybe", "true, false"),
            ("--health-probe-bind-address", "8081", "HOST:PORT"),
            ("--metrics-bind-address", ":99999", "0 to 65535"),
            ("--watch-namespace", "Not_A_Namespace", "lower-case"),
            ("--watch-namespace", "", "leave it out"),
            ("--max-concurrent-reconciles", "0", "1..=65535"),
            ("--default-image", "a b", "without spaces"),
            ("--log-format", "xml", "json, text"),
            ("--log-level", "loud", "RUST_LOG"),
            ("--log-level", "", "RUST_LOG"),
            ("--log-level", "info,hyper=loud", "RUST_LOG"),
        ] {
            let error = parsed(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.contains(flag) && error.contains(remedy), "{flag}={value}: {error}");
        }
    }

    #[test]
    fn the_times_of_the_election_are_checked_together() {
        assert_eq!(parsed(&[]).unwrap().timing().unwrap(), Timing::default());
        for arguments in [&["--leader-elect-renew-deadline=1m"][..], &["run", "--leader-elect-renew-deadline=1m"]] {
            let command_line = ["podset-operator"].iter().chain(arguments);
            let error = Cli::read(command_line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            parsed(&[arguments, &["--leader-elect-lease-duration=1m1s"]].concat()).unwrap();
        }
    }

    #[test]
    fn every_flag_has_an_environment_variable_and_a_heading() {
        for argument in Cli::command().get_arguments().filter(|argument| argument.get_long().is_some()) {
            let flag = argument.get_long().unwrap();
            let variable = format!("PODSET_OPERATOR_{}", flag.to_uppercase().replace('-', "_"));
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(variable.as_str()));
            assert!(argument.get_help_heading().is_some(), "--{flag}");
        }
    }

    #[test]
    fn namespaces_are_watched_once() {
        let run = parsed(&["--watch-namespace=a,b", "--watch-namespace=a"]).unwrap();
        assert_eq!(run.scopes(), [Some("a".into()), Some("b".into())]);
        assert_eq!(parsed(&[]).unwrap().scopes(), [None]);
    }
}
