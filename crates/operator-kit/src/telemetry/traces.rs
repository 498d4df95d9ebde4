//! Traces. A thread of the SDK collects spans in batches and sends them to the collector. Reconciles never wait for it: spans that do not fit
//! into the queue are lost. Only the end of the process waits, for a bounded time.

mod collector;
mod settings;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tokio::runtime::Handle;
use tower::BoxError;
use tracing::{info, warn};

use super::resource::Resource;
use crate::text::{in_full, shown};
use settings::Settings;

/// How long the process waits at its end for the last spans to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The traces of this process.
pub type Traces = SdkTracerProvider;

/// Starts sending traces if the `OTEL_*` environment variables ask for it. `runtime` drives the connections. Logs a warning if a variable
/// or the exporter cannot be used.
pub(super) fn start(
    variable: impl Fn(&str) -> Option<String>,
    resource: &Resource,
    runtime: &Handle,
) -> Option<Traces> {
    let settings = settings::read(variable)?;
    send(&settings, resource, runtime)
        .inspect(|_| info!(endpoint = shown(&settings.endpoint), protocol = ?settings.protocol, "sending traces"))
        .inspect_err(|error| warn!(error = in_full(&**error), "cannot create the exporter; sending no traces"))
        .ok()
}

fn send(settings: &Settings, resource: &Resource, runtime: &Handle) -> Result<Traces, BoxError> {
    let batch = BatchConfigBuilder::default().with_max_queue_size(settings.queue).with_scheduled_delay(settings.delay);
    // The runtime on which an exporter is made drives its connections.
    let _runtime = runtime.enter();
    let exporter = collector::exporter(settings)?;
    let attributes = resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batch.build()).build())
        .with_resource(opentelemetry_sdk::Resource::builder().with_attributes(attributes).build())
        .build())
}

/// Sends the recorded spans within a bounded time. Later spans are lost.
pub async fn end(traces: Traces) {
    // This blocks its thread, but a second signal must still end the process.
    let ended = tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(FLUSH_TIMEOUT));
    if let Ok(Err(error)) = ended.await {
        warn!(error = error.to_string(), "the last traces were not sent");
    }
}
