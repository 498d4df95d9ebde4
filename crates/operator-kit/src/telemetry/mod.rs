//! Logs, traces and metrics. Logs go to standard error, so that standard output can be piped. OpenTelemetry's environment variables say
//! where traces go; by default nowhere.

pub mod logs;
pub mod metrics;
mod resource;
pub mod spans;
pub mod traces;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracer;
use tokio::runtime::Handle;
use tracing::{Level as Severity, Subscriber};
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterExt, Targets},
    layer::{Filter, SubscriberExt},
    util::{SubscriberInitExt, TryInitError},
};

use logs::{Directives, Level, Logging};
use traces::Traces;

/// Starts the logs and traces of the program `name`. Returns the log level, and the traces if they have an exporter. `instance` is the unique
/// name of this process. `runtime` drives the connections to the collector.
///
/// # Errors
///
/// If the process already has a subscriber for logs and traces.
pub fn start(
    logging: &Logging,
    name: &'static str,
    version: &str,
    instance: &str,
    runtime: &Handle,
) -> Result<(Level, Option<Traces>), TryInitError> {
    let variable = |name: &str| std::env::var(name).ok();
    let resource = resource::attributes(name, version, instance, variable);
    // The start of traces needs a log, and the log of the process needs the traces. OpenTelemetry's own warnings are on, because at the
    // start they name variables with a wrong value.
    let (_, filter) = Level::new(&Directives(format!("opentelemetry=warn,{}", logging.level.0)));
    let early_log = subscriber(logs::layer(logging, &resource), filter, None);
    let start_traces = || traces::start(variable, &resource, runtime);
    let traces = tracing::subscriber::with_default(early_log, start_traces);
    let tracer = traces.as_ref().map(|traces| traces.tracer(name));
    let (level, filter) = Level::new(&logging.level);
    subscriber(logs::layer(logging, &resource), filter, tracer).try_init()?;
    Ok((level, traces))
}

/// Sends events that pass `filter` to the log, and spans with our target to the tracer.
fn subscriber(
    log: impl Layer<Registry> + Send + Sync,
    filter: impl Filter<Registry> + Send + Sync + 'static,
    tracer: Option<SdkTracer>,
) -> impl Subscriber + Send + Sync {
    // Without a tracer this filter passes nothing, so that no span is created.
    let wanted = tracer.as_ref().map(|_| (spans::TARGET, Severity::INFO));
    let exporting = tracer.map(|tracer| {
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            // Nothing here asks OpenTelemetry for the current span, and tracking it costs time at every poll of a task.
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
    use opentelemetry_sdk::trace::SdkTracerProvider;

    fn is_made(tracer: Option<SdkTracer>) -> bool {
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
        let (_level, filter) = Level::new(&Directives("info".to_owned()));
        let make = || !tracing::info_span!(target: spans::TARGET, "reconcile").is_disabled();
        tracing::subscriber::with_default(subscriber(log, filter, tracer), make)
    }

    #[test]
    fn audit_events_are_logged_at_every_level() {
        for directives in ["off", "podset_operator::audit=off", "podset_operator::audit[{user}]=off", "info"] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let writer = std::sync::Arc::new(file.reopen().unwrap());
            let (_level, filter) = Level::new(&Directives(directives.to_owned()));
            let log = tracing_subscriber::fmt::layer().with_writer(writer);
            tracing::subscriber::with_default(subscriber(log, filter, None), || {
                tracing::info!(target: logs::AUDIT, user = "me", "log level changed");
            });
            let text = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(text.matches("log level changed").count(), 1, "{directives}");
        }
    }

    /// If a directive names a span, the text log writes its fields while the span is locked.
    #[test]
    fn a_span_that_a_directive_names_can_be_recorded() {
        let (send, recorded) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (_level, filter) = Level::new(&Directives("info,[reconcile]=debug".to_owned()));
            let logging = Logging { level: Directives("info".to_owned()), format: Some(logs::LogFormat::Text) };
            let tracer = SdkTracerProvider::default().tracer("test");
            let subscriber = subscriber(logs::layer(&logging, &resource::Resource::new()), filter, Some(tracer));
            tracing::subscriber::with_default(subscriber, || {
                let span = tracing::info_span!(target: spans::TARGET, "reconcile", outcome = tracing::field::Empty);
                span.in_scope(|| spans::record("outcome", "success"));
            });
            send.send(()).unwrap();
        });
        recorded.recv_timeout(std::time::Duration::from_secs(20)).expect("the log waits for a lock for ever");
    }

    #[test]
    fn spans_are_created_only_if_they_are_exported() {
        assert!(!is_made(None));
        assert!(is_made(Some(SdkTracerProvider::default().tracer("test"))));
    }
}
