//! Logs, traces and metrics. Logs go to standard error, so that `podset-operator crd` can be piped; traces go where
//! OpenTelemetry's own variables say, or nowhere.

pub mod logs;
pub mod metrics;
mod resource;
pub mod spans;
pub mod traces;

use opentelemetry_sdk::trace::SdkTracer;
use tracing::{Level as Severity, Subscriber, info, warn};
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterExt, Targets},
    layer::{Filter, SubscriberExt},
    util::SubscriberInitExt,
};

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
    let tracer = traces.tracer();
    subscriber(logs::layer(logging, &resource), filter, tracer.clone()).try_init()?;
    if let Some(tracer) = tracer {
        spans::begin(tracer);
    }
    for warning in wishes.warnings {
        warn!("{warning}");
    }
    match (trouble, wishes.settings) {
        (Some(error), _) => {
            warn!(error = leadership::text::in_full(&error), "no traces are sent: the exporter cannot be made")
        }
        (None, Some(settings)) => {
            info!(endpoint = leadership::text::shown(&settings.endpoint), protocol = ?settings.protocol, "traces are sent")
        }
        (None, None) => {}
    }
    Ok(Telemetry { level, traces })
}

/// Where everything goes that happens: to the log what `filter` lets pass, to the tracer our own spans.
fn subscriber(
    log: impl Layer<Registry> + Send + Sync,
    filter: impl Filter<Registry> + Send + Sync + 'static,
    tracer: Option<SdkTracer>,
) -> impl Subscriber + Send + Sync {
    // Without a tracer a filter that lets nothing pass says so: only what every layer filters out is never made.
    let wanted = tracer.as_ref().map(|_| (spans::TARGET, Severity::INFO));
    let exporting = tracer.map(|tracer| {
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            // Nothing here asks OpenTelemetry what the current span is, and to tell it costs at every turn of a task.
            .with_context_activation(false)
    });
    let audited = Targets::new().with_target(logs::AUDIT, Severity::INFO);
    tracing_subscriber::registry()
        .with(log.with_filter(filter.or(audited)))
        .with(exporting.with_filter(Targets::new().with_targets(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    fn is_made(tracer: Option<SdkTracer>) -> bool {
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
        let (_level, filter) = Level::new(&crate::cli::Directives("info".to_owned()));
        let make = || !tracing::info_span!(target: spans::TARGET, "reconcile").is_disabled();
        tracing::subscriber::with_default(subscriber(log, filter, tracer), make)
    }

    #[test]
    fn what_is_audited_is_logged_at_every_level() {
        for directives in ["off", "podset_operator::audit=off", "podset_operator::audit[{user}]=off", "info"] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let writer = std::sync::Arc::new(file.reopen().unwrap());
            let (_level, filter) = Level::new(&crate::cli::Directives(directives.to_owned()));
            let log = tracing_subscriber::fmt::layer().with_writer(writer);
            tracing::subscriber::with_default(subscriber(log, filter, None), || {
                info!(target: logs::AUDIT, user = "me", "log level changed");
            });
            let text = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(text.matches("log level changed").count(), 1, "{directives}");
        }
    }

    #[test]
    fn a_span_is_made_only_to_be_exported() {
        assert!(!is_made(None));
        assert!(is_made(Some(SdkTracerProvider::default().tracer("test"))));
    }
}
