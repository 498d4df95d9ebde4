//! Traces: spans are gathered in this process and sent to a collector by a thread of its own. Whatever becomes of the
//! collector, no work waits for it: what does not fit into the queue is lost, and the end of the process waits a bounded time.

mod collector;
pub mod settings;

use std::time::Duration;

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::{
    resource::TelemetryResourceDetector,
    trace::{self as sdk, BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider},
};
use tracing::warn;

use super::resource::Resource;
use settings::{Sampler, Settings};

/// How long the end of the process waits for the last spans to be sent.
const FLUSH: Duration = Duration::from_secs(3);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The certificates of OTEL_EXPORTER_OTLP_CERTIFICATE.
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {file} cannot be read")]
    Certificate {
        /// The file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// TLS towards the collector.
    #[error("TLS to the collector cannot be set up")]
    Tls(#[source] kube::Error),
    /// Something else that was asked for.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// The traces of this process.
#[derive(Clone, Debug)]
pub struct Traces {
    provider: Option<SdkTracerProvider>,
}

impl Traces {
    /// No traces: nothing is recorded.
    pub fn none() -> Self {
        Traces { provider: None }
    }

    /// Begins to gather and send spans. Called within the runtime on which they are sent.
    ///
    /// # Errors
    ///
    /// When TLS to the collector cannot be set up.
    pub(super) fn start(settings: &Settings, resource: &Resource) -> Result<Self, TracesError> {
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(settings.batch.queue)
            .with_max_export_batch_size(settings.batch.size)
            .with_scheduled_delay(settings.batch.delay)
            .build();
        let exporter = collector::exporter(settings)?;
        let attributes = resource.attributes().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        // Not the SDK's own reading of the variables: it forgives what was warned of.
        let described = opentelemetry_sdk::Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_attributes(attributes)
            .build();
        let sampler = match settings.sampler {
            Sampler::All => sdk::Sampler::AlwaysOn,
            Sampler::None => sdk::Sampler::AlwaysOff,
            Sampler::Ratio(ratio) => sdk::Sampler::TraceIdRatioBased(ratio),
        };
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batch).build())
            // A child goes the way of its parent.
            .with_sampler(sdk::Sampler::ParentBased(Box::new(sampler)))
            .with_resource(described)
            .build();
        Ok(Traces { provider: Some(provider) })
    }

    /// What makes spans.
    pub(super) fn tracer(&self) -> Option<SdkTracer> {
        self.provider.as_ref().map(|provider| provider.tracer(env!("CARGO_PKG_NAME")))
    }

    /// Sends what was recorded, within a bounded time. Nothing is recorded afterwards.
    pub async fn end(self) {
        let Some(provider) = self.provider else {
            return;
        };
        // It blocks its thread, and must not keep a second signal from being heard.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH));
        if let Ok(Err(error)) = ended.await {
            warn!(error = error.to_string(), "the last traces were not sent");
        }
    }
}
