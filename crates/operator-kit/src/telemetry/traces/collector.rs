//! Exports spans by OTLP over gRPC or HTTP, and logs when the collector is unreachable.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use kube::{Config, client::ConfigExt};
use opentelemetry_http::{Bytes, HttpClient, HttpError, hyper::HyperClient};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use tokio::{runtime::Handle, time::timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tower::BoxError;
use tracing::{info, warn};

use super::settings::Settings;
use crate::{lock, text::in_full};

/// Makes the exporter for these settings. It adds the headers from the variables by itself.
pub fn exporter(settings: &Settings) -> Result<impl SpanExporter + use<>, BoxError> {
    let builder = opentelemetry_otlp::SpanExporter::builder();
    let cause = Cause::default();
    let exporter = match settings.protocol {
        Protocol::Grpc => {
            builder.with_tonic().with_channel(channel(settings)?).with_timeout(settings.timeout).build()?
        }
        protocol => builder
            .with_http()
            // Otherwise the builder reads the variables again, and fails if the one for traces is wrong and the general one is gRPC.
            .with_protocol(protocol)
            .with_http_client(Http::new(settings, cause.clone())?)
            .with_endpoint(settings.endpoint.to_string())
            .with_timeout(settings.timeout)
            .build()?,
    };
    // A little longer than the exporter's own limit, so that its error comes first.
    let limit = settings.timeout + Duration::from_secs(1);
    let (exporter, runtime) = (Arc::new(exporter), Handle::current());
    Ok(Logged { exporter, limit, runtime, cause, is_failing: AtomicBool::new(false) })
}

/// The error of the last HTTP request, which the exporter's own error does not contain.
type Cause = Arc<Mutex<Option<String>>>;

/// The connection for gRPC. It opens when needed, also after it broke.
fn channel(settings: &Settings) -> Result<Channel, BoxError> {
    let mut endpoint = Endpoint::from(settings.endpoint.clone());
    if settings.is_by_tls() {
        let tls = match &settings.certificate {
            Some(file) => {
                let unreadable = |error| format!("OTEL_EXPORTER_OTLP_CERTIFICATE: {file} cannot be read: {error}");
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(file).map_err(unreadable)?))
            }
            None => ClientTlsConfig::new().with_enabled_roots(),
        };
        endpoint = endpoint.tls_config(tls)?;
    }
    let endpoint = endpoint.timeout(settings.timeout).connect_timeout(settings.timeout);
    Ok(endpoint.connect_with_connector_lazy(tcp(settings.timeout)))
}

/// Breaks a connection whose bytes are not acknowledged for `timeout`. All exports share one connection, and if the collector vanishes, TCP
/// would retry for a quarter of an hour. Neither the exporter nor tonic sets this.
fn tcp(timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_tcp_user_timeout(Some(timeout));
    connector
}

/// HTTP for the exporter. Keeps the cause of a failure, which the exporter's own error lacks.
#[derive(Debug)]
struct Http {
    client: Box<dyn HttpClient>,
    cause: Cause,
}

impl Http {
    fn new(settings: &Settings, cause: Cause) -> Result<Self, BoxError> {
        let client: Box<dyn HttpClient> = if settings.is_by_tls() {
            // kube's TLS connector is not specific to Kubernetes.
            let mut config = Config::new(http::Uri::default());
            config.root_cert_file = settings.certificate.clone().map(PathBuf::from);
            Box::new(HyperClient::new(config.rustls_https_connector()?, settings.timeout, None))
        } else {
            Box::new(HyperClient::with_default_connector(settings.timeout, None))
        };
        Ok(Http { client, cause })
    }
}

impl HttpClient for Http {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
    {
        Box::pin(async move {
            let answer = self.client.send_bytes(request).await;
            *lock(&self.cause) = answer.as_ref().err().map(|error| in_full(&**error));
            answer
        })
    }
}

/// Logs when the exporter begins to fail and when it works again.
#[derive(Debug)]
struct Logged<E> {
    exporter: Arc<E>,
    /// The time limit of an export. The gRPC exporter's own limit ends when the headers of the response arrive.
    limit: Duration,
    runtime: Handle,
    cause: Cause,
    is_failing: AtomicBool,
}

impl<E: SpanExporter + 'static> SpanExporter for Logged<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        // The SDK's thread has no Tokio runtime, which connections and timers need.
        let (exporter, limit) = (self.exporter.clone(), self.limit);
        let export = self.runtime.spawn(async move { timeout(limit, exporter.export(batch)).await });
        let result = match export.await {
            Ok(result) => result.unwrap_or(Err(OTelSdkError::Timeout(limit))),
            Err(ended) => Err(OTelSdkError::InternalFailure(ended.to_string())),
        };
        let cause = lock(&self.cause).take();
        match (&result, self.is_failing.swap(result.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => {
                warn!(
                    spans,
                    error = cause.unwrap_or_else(|| error.to_string()),
                    "cannot send traces; dropping spans until sending works again"
                );
            }
            (Ok(()), true) => info!("sending traces again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        // The SDK calls this once, before the first export.
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;
    use crate::telemetry::traces::settings;

    /// The settings for a collector over TLS.
    fn by_tls(protocol: &str, address: &str, certificate: Option<&str>) -> Settings {
        let settings = settings::read(|name| match name {
            "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.to_owned()),
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(format!("https://{address}")),
            "OTEL_EXPORTER_OTLP_CERTIFICATE" => certificate.map(str::to_owned),
            _ => None,
        });
        settings.unwrap()
    }

    #[tokio::test]
    async fn over_tls_the_first_byte_is_a_handshake() {
        let mut trusted = tempfile::NamedTempFile::new().unwrap();
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert;
        let base64 = serde_json::to_value(k8s_openapi::ByteString(certificate.der().to_vec())).unwrap();
        let lines = ["-----BEGIN CERTIFICATE-----", base64.as_str().unwrap(), "-----END CERTIFICATE-----\n"];
        trusted.write_all(lines.join("\n").as_bytes()).unwrap();
        for protocol in ["grpc", "http/protobuf"] {
            for certificate in [None, trusted.path().to_str()] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let settings = by_tls(protocol, &listener.local_addr().unwrap().to_string(), certificate);
                let exporter = exporter(&settings).unwrap();
                let hello = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut first = [0];
                    stream.read_exact(&mut first).await.unwrap();
                    drop(listener);
                    first
                };
                let (result, first) = tokio::join!(exporter.export(Vec::new()), hello);
                assert!(result.is_err(), "{protocol}: no response");
                assert_eq!(first, [0x16], "{protocol}: the connection begins with a handshake");
            }
        }
    }

    #[tokio::test]
    async fn the_connection_to_the_collector_has_a_tcp_user_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let timeout = Duration::from_secs(7);
        let stream = tower::ServiceExt::<http::Uri>::oneshot(tcp(timeout), to).await.unwrap();
        assert_eq!(socket2::SockRef::from(stream.inner()).tcp_user_timeout().unwrap(), Some(timeout));
    }

    #[tokio::test]
    async fn the_cause_of_a_failed_export_is_known() {
        let mut settings = by_tls("http/protobuf", "127.0.0.1:1", None);
        settings.endpoint = http::Uri::from_static("http://127.0.0.1:1/v1/traces");
        let cause = Cause::default();
        let http = Http::new(&settings, cause.clone()).unwrap();
        http.send_bytes(Request::post(&settings.endpoint).body(Bytes::new()).unwrap()).await.unwrap_err();
        let text = lock(&cause).take().unwrap();
        assert!(text.to_lowercase().contains("connection refused"), "{text}");
    }

    #[tokio::test]
    async fn an_export_without_end_fails() {
        #[derive(Debug)]
        struct Endless;

        impl SpanExporter for Endless {
            async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
                std::future::pending().await
            }
        }

        let (limit, is_failing) = (Duration::from_millis(10), AtomicBool::new(false));
        let logged = Logged {
            exporter: Arc::new(Endless),
            limit,
            runtime: Handle::current(),
            cause: Cause::default(),
            is_failing,
        };
        let result = logged.export(Vec::new()).await;
        assert!(matches!(result, Err(OTelSdkError::Timeout(_))), "{result:?}");
    }

    #[tokio::test]
    async fn a_certificate_that_cannot_be_read_is_named() {
        let settings = by_tls("grpc", "localhost:4317", Some("/nowhere/ca.crt"));
        let error = exporter(&settings).map(drop).unwrap_err().to_string();
        assert_eq!(
            error,
            "OTEL_EXPORTER_OTLP_CERTIFICATE: /nowhere/ca.crt cannot be read: No such file or directory (os error 2)"
        );
    }
}
