//! Logs, and the metrics. Logs go to standard error, so that `podset-operator crd` can be piped.

pub mod metrics;

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::cli::{LogFormat, Logging};

/// The API client and the lock warn of what their caller explains better; directives that name it still reach it.
const QUIET: &str = "kube_client=off,kube_leader_election=off";

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("logging cannot begin: {0}")]
pub struct LoggingError(#[from] tracing_subscriber::util::TryInitError);

/// Begins to log.
///
/// # Errors
///
/// When the process logs already.
pub fn start(logging: &Logging) -> Result<(), LoggingError> {
    let is_json = match logging.log_format {
        Some(format) => format == LogFormat::Json,
        None => std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
    };
    let layer = if is_json {
        fmt::layer().json().flatten_event(true).with_writer(stderr).boxed()
    } else {
        fmt::layer().with_ansi(stderr().is_terminal()).with_target(false).with_writer(stderr).boxed()
    };
    tracing_subscriber::registry()
        .with(EnvFilter::new(format!("{QUIET},{}", logging.log_level.0)))
        .with(layer)
        .try_init()?;
    Ok(())
}
