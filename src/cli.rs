//! Every flag of `podset-operator`: what it is for, which values it takes, and the sentence for a value it refuses.
//!
//! Each flag is an environment variable too: `PODSET_OPERATOR_` and the flag in capitals with underscores.

use std::{collections::BTreeSet, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Keeps N identical pods for every PodSet, and never more than N, not for a moment.
#[derive(Clone, Debug, Parser)]
#[command(name = "podset-operator", version, about, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; `run` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `run`, which may be given without the word.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the operator (the default)
    Run(Box<RunArgs>),
    /// Print the custom resource definitions as YAML
    Crd,
}

impl Cli {
    /// The command, with `run` for none.
    pub fn command(self) -> Command {
        self.command.unwrap_or_else(|| Command::Run(Box::new(self.run)))
    }
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Elect a leader among several replicas, so that one works and the others stand by; `false` runs without election
    #[arg(long, env = "PODSET_OPERATOR_LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Leader election")]
    pub leader_elect: bool,

    /// Address of the health probes (accepted, not served yet); port 0 takes a free one, `0` alone turns them off
    #[arg(long, env = "PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", default_value = ":8081", value_parser = bind_address,
        value_name = "HOST:PORT", help_heading = "Serving")]
    pub health_probe_bind_address: BindAddress,

    /// Address of the metrics (accepted, not served yet); port 0 takes a free one, `0` alone turns them off
    #[arg(long, env = "PODSET_OPERATOR_METRICS_BIND_ADDRESS", default_value = ":8443", value_parser = bind_address,
        value_name = "HOST:PORT", help_heading = "Serving")]
    pub metrics_bind_address: BindAddress,

    /// Watch this namespace only; may be given several times, or as a list with commas [default: all namespaces]
    #[arg(long, env = "PODSET_OPERATOR_WATCH_NAMESPACE", value_delimiter = ',', value_parser = namespace,
        value_name = "NAMESPACE", help_heading = "Controllers")]
    pub watch_namespace: Vec<String>,

    /// How many objects of a kind are reconciled at the same time
    #[arg(long, env = "PODSET_OPERATOR_MAX_CONCURRENT_RECONCILES", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..), value_name = "N", help_heading = "Controllers")]
    pub max_concurrent_reconciles: u16,

    /// Image of the pods of a PodSet without a template
    #[arg(long, env = "PODSET_OPERATOR_DEFAULT_IMAGE", default_value = "quay.io/amacdona/strauss", value_parser = image,
        value_name = "IMAGE", help_heading = "Controllers")]
    pub default_image: String,

    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's own ServiceAccount]
    #[arg(long, env = "PODSET_OPERATOR_KUBECONFIG", value_name = "FILE", help_heading = "Connection")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, env = "PODSET_OPERATOR_CONTEXT", value_name = "NAME", help_heading = "Connection")]
    pub context: Option<String>,

    /// How to log.
    #[command(flatten)]
    pub logging: Logging,
}

/// How to log.
#[derive(Args, Clone, Debug)]
pub struct Logging {
    /// Format of the log [default: json in a cluster, text elsewhere]
    #[arg(long, env = "PODSET_OPERATOR_LOG_FORMAT", value_name = "FORMAT", help_heading = "Logging")]
    pub log_format: Option<LogFormat>,

    /// What to log: a level, or directives as in RUST_LOG
    #[arg(long, env = "PODSET_OPERATOR_LOG_LEVEL", default_value = "info", value_parser = log_level,
        value_name = "LEVEL", help_heading = "Logging")]
    pub log_level: Directives,
}

/// A format of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// A JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Checked directives of a log filter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Directives(pub String);

/// Where to serve.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BindAddress {
    /// Nowhere.
    Off,
    /// At this host (empty: all addresses) and port (0: a free one).
    At {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

fn bind_address(text: &str) -> Result<BindAddress, String> {
    if text == "0" {
        return Ok(BindAddress::Off);
    }
    let (host, port) = text.rsplit_once(':').ok_or("give it as HOST:PORT or :PORT, or as 0 to turn it off")?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port: give a number from 0 to 65535"))?;
    Ok(BindAddress::At { host: host.trim_matches(['[', ']']).to_owned(), port })
}

fn namespace(text: &str) -> Result<String, String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_valid =
        (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        "a namespace has 1 to 63 lower-case letters, digits and '-', and neither begins nor ends with '-'".to_owned()
    })
}

fn image(text: &str) -> Result<String, String> {
    let is_valid = !text.is_empty() && !text.contains(char::is_whitespace);
    is_valid.then(|| text.to_owned()).ok_or_else(|| "an image is named without spaces, as registry/name:tag".to_owned())
}

fn log_level(text: &str) -> Result<Directives, String> {
    // A bare word would be taken for a module: a misspelt level must not pass in silence.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_plausible = |part: &str| part.contains(['=', '[']) || is_level(part);
    match EnvFilter::try_new(text) {
        Ok(_) if text.split(',').all(is_plausible) => Ok(Directives(text.to_owned())),
        _ => Err("give error, warn, info, debug or trace, or directives as in RUST_LOG: info,hyper=debug".to_owned()),
    }
}

impl RunArgs {
    /// The namespaces to watch, each once; empty for all.
    pub fn namespaces(&self) -> BTreeSet<&str> {
        self.watch_namespace.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parsed(arguments: &[&str]) -> Result<RunArgs, String> {
        let arguments = ["podset-operator"].iter().chain(arguments);
        match Cli::try_parse_from(arguments).map(Cli::command) {
            Ok(Command::Run(run)) => Ok(*run),
            Ok(Command::Crd) => Err("crd".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_flags_are_well_formed() {
        <Cli as CommandFactory>::command().debug_assert();
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
            ("--health-probe-bind-address", "8081", "HOST:PORT"),
            ("--metrics-bind-address", ":99999", "0 to 65535"),
            ("--watch-namespace", "Not_A_Namespace", "lower-case"),
            ("--watch-namespace", "", "1 to 63"),
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
    fn addresses_are_read_as_in_go() {
        let at = |host: &str, port| BindAddress::At { host: host.to_owned(), port };
        assert_eq!(bind_address("0"), Ok(BindAddress::Off));
        assert_eq!(bind_address(":8081"), Ok(at("", 8081)));
        assert_eq!(bind_address("127.0.0.1:0"), Ok(at("127.0.0.1", 0)));
        assert_eq!(bind_address("[::1]:80"), Ok(at("::1", 80)));
    }

    #[test]
    fn namespaces_are_watched_once() {
        let run = parsed(&["--watch-namespace=a,b", "--watch-namespace=a"]).unwrap();
        assert_eq!(run.namespaces().into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
