//! Traces: spans are gathered in this process and sent to a collector by threads of their own, one that gathers batches and one
//! that talks to the collector. Whatever becomes of it, no work waits: what does not fit into the queue is lost, and the end of
//! the process waits a bounded time.

mod collector;
pub(super) mod settings;

use std::{thread, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::{
    resource::TelemetryResourceDetector,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanExporter},
};
use tokio::{runtime, sync::oneshot};
use tracing::warn;

use super::resource::Resource;
use settings::Settings;

/// How long the end of the process waits for the last spans to be sent.
const FLUSH: Duration = Duration::from_secs(3);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum TracesError {
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {0} cannot be read")]
    Certificate(String, #[source] std::io::Error),
    #[error("the thread that sends them cannot be started")]
    Thread(#[from] std::io::Error),
    #[error("TLS to the collector cannot be set up")]
    Tls(#[source] kube::Error),
    #[error("gRPC to the collector cannot be set up")]
    Grpc(#[from] tonic::transport::Error),
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// The traces of this process.
#[derive(Debug)]
pub struct Traces {
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    provider: SdkTracerProvider,
    /// The thread that sends ends with this.
    _sends: oneshot::Sender<()>,
}

impl Traces {
    /// No traces: nothing is recorded.
    pub fn none() -> Self {
        Traces { begun: None }
    }

    /// Begins to gather and send spans.
    ///
    /// # Errors
    ///
    /// When TLS to the collector cannot be set up, or a thread cannot be started.
    pub(super) fn start(settings: &Settings, resource: &Resource) -> Result<Self, TracesError> {
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(settings.queue)
            .with_max_export_batch_size(settings.batch)
            .with_scheduled_delay(settings.delay)
            .build();
        let (exporter, sends) = sent_by_a_thread(settings)?;
        let attributes = resource.attributes().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        // Not the SDK's own reading of the variables: it forgives what was warned of.
        let described = opentelemetry_sdk::Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_attributes(attributes)
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batch).build())
            .with_resource(described)
            .build();
        Ok(Traces { begun: Some(Begun { provider, _sends: sends }) })
    }

    /// What makes spans.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        self.begun.as_ref().map(|begun| begun.provider.tracer(env!("CARGO_PKG_NAME")))
    }

    /// Sends what was recorded, within a bounded time. Nothing is recorded afterwards.
    pub async fn end(self) {
        let Some(begun) = self.begun else {
            return;
        };
        // It blocks its thread, and must not keep a second signal from being heard.
        let ended = tokio::task::spawn_blocking(move || begun.provider.shutdown_with_timeout(FLUSH));
        if let Ok(Err(error)) = ended.await {
            warn!(error = error.to_string(), "the last traces were not sent");
        }
    }
}

/// An exporter whose connections are served by a thread of their own, until what is returned with it is dropped.
fn sent_by_a_thread(settings: &Settings) -> Result<(impl SpanExporter + use<>, oneshot::Sender<()>), TracesError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let within = runtime.enter();
    let exporter = collector::exporter(settings)?;
    drop(within);
    let (sends, ended) = oneshot::channel();
    thread::Builder::new().name("traces".to_owned()).spawn(move || runtime.block_on(ended))?;
    Ok((exporter, sends))
}
