//! Traces. One thread collects spans in batches, and another sends them to the collector. The operator never waits for them: spans that do
//! not fit into the queue are lost, and the end of the process waits for a bounded time.

mod collector;
mod settings;

use std::{thread, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanExporter};
use tokio::{runtime, sync::oneshot};
use tower::BoxError;
use tracing::{info, warn};

use super::resource::Resource;
use crate::text::{in_full, shown};
use settings::Settings;

/// How long the process waits at its end for the last spans to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The traces of this process.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    /// The sending thread ends when this is dropped.
    _keeps_sending: oneshot::Sender<()>,
}

impl Traces {
    /// Starts sending traces if OpenTelemetry's variables ask for it. Logs what stands in the way.
    pub(super) fn start(variable: impl Fn(&str) -> Option<String>, resource: &Resource) -> Option<Self> {
        let settings = settings::read(variable)?;
        Traces::send(&settings, resource)
            .inspect(|_| info!(endpoint = shown(&settings.endpoint), protocol = ?settings.protocol, "sending traces"))
            .inspect_err(|error| warn!(error = in_full(&**error), "cannot create the exporter; sending no traces"))
            .ok()
    }

    fn send(settings: &Settings, resource: &Resource) -> Result<Self, BoxError> {
        let batch =
            BatchConfigBuilder::default().with_max_queue_size(settings.queue).with_scheduled_delay(settings.delay);
        let (exporter, keeps_sending) = exporter_with_thread(settings)?;
        let attributes = resource.attributes().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batch.build()).build())
            .with_resource(opentelemetry_sdk::Resource::builder().with_attributes(attributes).build())
            .build();
        Ok(Traces { provider, _keeps_sending: keeps_sending })
    }

    pub(super) fn tracer(&self, name: &'static str) -> SdkTracer {
        self.provider.tracer(name)
    }

    /// Sends the recorded spans within a bounded time. Later spans are lost.
    pub async fn end(self) {
        // This blocks its thread, but a second signal must still end the process.
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        if let Ok(Err(error)) = ended.await {
            warn!(error = error.to_string(), "the last traces were not sent");
        }
    }
}

/// An exporter, and a thread for its connections that ends when the returned sender is dropped.
fn exporter_with_thread(settings: &Settings) -> Result<(impl SpanExporter + use<>, oneshot::Sender<()>), BoxError> {
    let not_started = |error| format!("the thread that sends traces cannot be started: {error}");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(not_started)?;
    let guard = runtime.enter();
    let exporter = collector::exporter(settings)?;
    drop(guard);
    let (keeps_sending, ended) = oneshot::channel();
    thread::Builder::new().name("traces".to_owned()).spawn(move || runtime.block_on(ended)).map_err(not_started)?;
    Ok((exporter, keeps_sending))
}
