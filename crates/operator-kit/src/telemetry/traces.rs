//! Traces. One thread collects spans in batches, and another one sends them to the collector. The operator's work never waits for them:
//! spans that do not fit into the queue are lost, and the end of the process waits for a bounded time.

mod collector;
pub(super) mod settings;

use std::{thread, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_sdk::{
    resource::TelemetryResourceDetector,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanExporter},
};
use tokio::{runtime, sync::oneshot};
use tracing::warn;

use super::resource::Resource;
pub(super) use collector::TracesError;
use settings::Settings;

/// How long the end of the process waits for the last spans to be sent.
const FLUSH: Duration = Duration::from_secs(3);

/// The traces of this process.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    /// The thread that sends ends with this.
    _sends: oneshot::Sender<()>,
}

impl Traces {
    pub(super) fn start(settings: &Settings, resource: &Resource) -> Result<Self, TracesError> {
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(settings.queue)
            .with_max_export_batch_size(settings.batch)
            .with_scheduled_delay(settings.delay)
            .build();
        let (exporter, sends) = sent_by_a_thread(settings)?;
        let attributes = resource.attributes().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        // Not the SDK's own reading of the variables, which accepts values that we warn of.
        let described = opentelemetry_sdk::Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_attributes(attributes)
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batch).build())
            .with_resource(described)
            .build();
        Ok(Traces { provider, _sends: sends })
    }

    pub(super) fn tracer(&self, name: &'static str) -> SdkTracer {
        self.provider.tracer(name)
    }

    /// Sends recorded spans within a bounded time. Nothing is recorded afterwards.
    pub async fn end(self) {
        // It blocks its thread, and a second signal must still end the process.
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(FLUSH));
        if let Ok(Err(error)) = ended.await {
            warn!(error = error.to_string(), "the last traces were not sent");
        }
    }
}

/// An exporter with its own thread for connections, which ends when the returned sender drops.
fn sent_by_a_thread(settings: &Settings) -> Result<(impl SpanExporter + use<>, oneshot::Sender<()>), TracesError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let within = runtime.enter();
    let exporter = collector::exporter(settings)?;
    drop(within);
    let (sends, ended) = oneshot::channel();
    thread::Builder::new().name("traces".to_owned()).spawn(move || runtime.block_on(ended))?;
    Ok((exporter, sends))
}
