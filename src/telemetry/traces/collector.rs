//! The way to the collector: OTLP by gRPC or by HTTP, and what the log says while it is not to be had.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Config, client::ConfigExt};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tokio::runtime::Handle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tower::{Service, util::BoxCloneSyncService};
use tracing::{info, warn};

use super::{
    TracesError,
    settings::{Protocol, Settings},
};
use crate::client::in_full;

/// How long a connection may lie idle: longer than the time between two exports, as a rule.
const IDLE: Duration = Duration::from_secs(30);

/// The most of an answer that is read.
const ANSWER: usize = 64 * 1024;

/// Sends spans as the settings say. The headers that the variables ask for are added by the exporter itself.
pub fn exporter(settings: &Settings) -> Result<impl SpanExporter + use<>, TracesError> {
    let builder = opentelemetry_otlp::SpanExporter::builder();
    let cause = Cause::default();
    let exporter = match settings.protocol {
        Protocol::Grpc => {
            builder.with_tonic().with_channel(channel(settings)?).with_timeout(settings.timeout).build()?
        }
        Protocol::Http => builder
            .with_http()
            // Else the builder reads the variable anew, and refuses where it finds gRPC for what counts as not set.
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_http_client(Http::new(settings, cause.clone())?)
            .with_endpoint(&settings.endpoint)
            .with_timeout(settings.timeout)
            .build()?,
    };
    Ok(Watched { exporter, cause, fails: AtomicBool::new(false) })
}

/// Why the last request failed: of HTTP the exporter says no more than that it did.
#[derive(Clone, Debug, Default)]
struct Cause(Arc<Mutex<Option<String>>>);

impl Cause {
    fn note(&self, cause: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// gRPC's connection, which is made when it is needed, and anew when it broke.
fn channel(settings: &Settings) -> Result<Channel, TracesError> {
    let endpoint = Endpoint::from_shared(settings.endpoint.clone())?.timeout(settings.timeout);
    let endpoint = if settings.is_by_tls() {
        let tls = ClientTlsConfig::new();
        endpoint.tls_config(match &settings.certificate {
            Some(file) => tls.ca_certificate(Certificate::from_pem(read(file)?)),
            None => tls.with_enabled_roots(),
        })?
    } else {
        endpoint
    };
    Ok(endpoint.connect_timeout(settings.timeout).connect_with_connector_lazy(tcp(settings.timeout)))
}

/// Connections that break once what was written to them has not been acknowledged for `timeout`. All exports share one: left to
/// itself, TCP would try for a quarter of an hour to reach a collector that vanished without a word.
fn tcp(timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_tcp_user_timeout(Some(timeout));
    connector
}

fn read(file: &str) -> Result<Vec<u8>, TracesError> {
    std::fs::read(file).map_err(|source| TracesError::Certificate { file: file.to_owned(), source })
}

/// HTTP for the exporter, whose thread is none of the runtime's.
#[derive(Clone, Debug)]
struct Http {
    client: BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, legacy::Error>,
    cause: Cause,
    runtime: Handle,
    timeout: Duration,
}

impl Http {
    fn new(settings: &Settings, cause: Cause) -> Result<Self, TracesError> {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        let client = if settings.is_by_tls() {
            // kube's TLS serves here as well: nothing in it is of Kubernetes.
            let mut config = Config::new(http::Uri::default());
            config.root_cert_file = settings.certificate.clone().map(PathBuf::from);
            BoxCloneSyncService::new(builder.build(config.rustls_https_connector().map_err(TracesError::Tls)?))
        } else {
            BoxCloneSyncService::new(builder.build(HttpConnector::new()))
        };
        Ok(Http { client, cause, runtime: Handle::current(), timeout: settings.timeout })
    }

    async fn exchange(mut self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = self.client.call(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

impl HttpClient for Http {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
    {
        let (http, cause, timeout) = (self.clone(), self.cause.clone(), self.timeout);
        // The timer, too, wants to be made within the runtime.
        let exchange = self.runtime.spawn(async move { tokio::time::timeout(timeout, http.exchange(request)).await });
        Box::pin(async move {
            let answer = match exchange.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(format!("no answer within {timeout:?}").into()),
                Err(ended) => Err(ended.into()),
            };
            cause.note(answer.as_ref().err().map(|error| in_full(&**error)));
            answer
        })
    }
}

/// An exporter of which the log says when it begins to fail and when it is well again, and no more.
#[derive(Debug)]
struct Watched<E> {
    exporter: E,
    cause: Cause,
    fails: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        let cause = self.cause.take();
        match (&result, self.fails.swap(result.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => {
                warn!(
                    spans,
                    error = cause.unwrap_or_else(|| error.to_string()),
                    "traces cannot be sent, and are lost until this is said to be over"
                );
            }
            (Ok(()), true) => info!("traces are sent again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;
    use crate::telemetry::traces::settings;

    /// The settings for a collector by TLS.
    fn by_tls(protocol: &str, address: &str, certificate: Option<&str>) -> Settings {
        let wishes = settings::read(|name| match name {
            "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.to_owned()),
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(format!("https://{address}")),
            "OTEL_EXPORTER_OTLP_CERTIFICATE" => certificate.map(str::to_owned),
            _ => None,
        });
        wishes.settings.unwrap()
    }

    #[tokio::test]
    async fn by_tls_nothing_is_said_before_the_collector_has_shown_who_it_is() {
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
                assert!(result.is_err(), "{protocol}: nobody answered");
                assert_eq!(first, [0x16], "{protocol}: it begins with a handshake");
            }
        }
    }

    #[tokio::test]
    async fn a_collector_that_vanished_is_not_waited_for_by_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let timeout = Duration::from_secs(7);
        let stream = tower::ServiceExt::<http::Uri>::oneshot(tcp(timeout), to).await.unwrap();
        assert_eq!(socket2::SockRef::from(stream.inner()).tcp_user_timeout().unwrap(), Some(timeout));
    }

    #[tokio::test]
    async fn why_nothing_can_be_sent_is_known() {
        let mut settings = by_tls("http/protobuf", "127.0.0.1:1", None);
        settings.endpoint = "http://127.0.0.1:1/v1/traces".to_owned();
        let cause = Cause::default();
        let http = Http::new(&settings, cause.clone()).unwrap();
        http.send_bytes(Request::post(&settings.endpoint).body(Bytes::new()).unwrap()).await.unwrap_err();
        let told = cause.take().unwrap();
        assert!(told.to_lowercase().contains("connection refused"), "{told}");
    }

    #[tokio::test]
    async fn a_certificate_that_cannot_be_read_is_named() {
        let settings = by_tls("grpc", "localhost:4317", Some("/nowhere/ca.crt"));
        let error = exporter(&settings).map(drop).unwrap_err().to_string();
        assert_eq!(error, "OTEL_EXPORTER_OTLP_CERTIFICATE: /nowhere/ca.crt cannot be read");
    }
}
