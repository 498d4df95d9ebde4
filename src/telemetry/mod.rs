//! Logs, traces and metrics. Logs go to standard error, so that `podset-operator crd` can be piped; traces go where
//! OpenTelemetry's own variables say, or nowhere.

pub mod logs;
pub mod metrics;
mod resource;
pub mod spans;
pub mod traces;

use tracing::{info, warn};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::cli::Logging;
use logs::Level;
use resource::Resource;
use traces::Traces;

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("logging cannot begin: {0}")]
pub struct LoggingError(#[from] tracing_subscriber::util::TryInitError);

/// What was begun.
#[derive(Debug)]
pub struct Telemetry {
    /// What is logged, to be changed at any time.
    pub level: Level,
    /// What must be told at the end.
    pub traces: Traces,
}

/// Begins to log and to trace. `instance` is told apart from all other processes by this name.
///
/// # Errors
///
/// When the process logs already.
pub fn start(logging: &Logging, instance: &str) -> Result<Telemetry, LoggingError> {
    let variable = |name: &str| std::env::var(name).ok();
    let wishes = traces::settings::read(variable);
    let resource = Resource::new(instance, variable, wishes.resource);
    let (level, filter) = Level::new(&logging.log_level);
    let (traces, trouble) = match wishes.settings.as_ref().map(|settings| Traces::start(settings, &resource)) {
        None => (Traces::none(), None),
        Some(Ok(traces)) => (traces, None),
        Some(Err(error)) => (Traces::none(), Some(error)),
    };
    let spans = traces.tracer().map(|tracer| {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false);
        layer.with_filter(Targets::new().with_target(spans::TARGET, tracing::Level::INFO))
    });
    tracing_subscriber::registry().with(logs::layer(logging, &resource).with_filter(filter)).with(spans).try_init()?;
    for warning in wishes.warnings {
        warn!("{warning}");
    }
    match (trouble, wishes.settings) {
        (Some(error), _) => {
            warn!(error = crate::client::in_full(&error), "no traces are sent: the exporter cannot be made")
        }
        (None, Some(settings)) => info!(endpoint = settings.endpoint, protocol = ?settings.protocol, "traces are sent"),
        (None, None) => {}
    }
    Ok(Telemetry { level, traces })
}
