//! Both servers, tested over their sockets.

use std::{
    io::{Read, Write},
    sync::Arc,
    time::Duration,
};

use jiff::SignedDuration;
use kube::client::Body;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    runtime,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::ring,
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};
use tower::BoxError;

use super::*;
use crate::telemetry::logs::Directives;

/// Serves on free ports of the loopback address.
fn secure() -> Options {
    let local = BindAddress::At("127.0.0.1".to_owned(), 0);
    Options { probes: local.clone(), metrics: local, is_secure: true, certificate: None }
}

/// The same, with metrics over plain HTTP.
fn open() -> Options {
    Options { is_secure: false, ..secure() }
}

/// A client without an API server.
fn no_api() -> Client {
    Client::new(
        tower::service_fn(|_: http::Request<Body>| async { Err::<http::Response<Body>, BoxError>("away".into()) }),
        "",
    )
}

/// The level of a log that is not written.
fn level() -> Level {
    Level::new(&Directives("info".to_owned())).0
}

impl Servers {
    /// Ends both servers.
    async fn end(self) {
        self.stop.cancel();
        self.run().await;
    }
}

async fn started(options: Options) -> Result<(Servers, Health), ServeError> {
    let env = leadership::env::testing::virtual_env();
    let health = Health::new(env.clone());
    Ok((started_with(options, env, health.clone()).await?, health))
}

async fn started_with(options: Options, env: Env, health: Health) -> Result<Servers, ServeError> {
    let metrics = Metrics::new(env.clone());
    Servers::start(options, env, no_api(), health, metrics, level(), CancellationToken::new()).await
}

/// Sends a request, and reads until the server closes the connection.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> String {
    stream.write_all(format!("{head}\r\nHost: test\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn get(address: Option<SocketAddr>, path: &str) -> String {
    exchange(TcpStream::connect(address.unwrap()).await.unwrap(), &format!("GET {path} HTTP/1.1")).await
}

/// Trusts every certificate: these tests are about the protocol.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client that trusts every certificate.
pub(super) fn connector(version: &'static SupportedProtocolVersion) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connected_over_tls(
    address: Option<SocketAddr>,
    version: &'static SupportedProtocolVersion,
) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address.unwrap()).await.unwrap();
    connector(version).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

async fn send_over_tls(address: Option<SocketAddr>, version: &'static SupportedProtocolVersion, head: &str) -> String {
    exchange(connected_over_tls(address, version).await, head).await
}

#[tokio::test]
async fn probes_are_answered_until_the_servers_end() {
    let (servers, health) = started(open()).await.unwrap();
    let probes = servers.probes;
    assert!(get(probes, "/livez").await.starts_with("HTTP/1.1 200"));
    assert!(
        get(probes, "/readyz").await.ends_with("[-]process failed: the process is starting\nreadyz check failed\n")
    );
    health.started();
    assert!(get(probes, "/readyz").await.starts_with("HTTP/1.1 200"));
    health.ending();
    assert!(get(probes, "/readyz").await.starts_with("HTTP/1.1 500"));
    // An idle connection does not delay the end.
    let _idle = TcpStream::connect(probes.unwrap()).await.unwrap();
    servers.end().await;
    assert!(TcpStream::connect(probes.unwrap()).await.is_err(), "the server has ended");
}

#[tokio::test]
async fn the_probes_see_that_the_main_runtime_hangs() {
    let env = Env::system();
    let health = Health::new(env.clone());
    health.started();
    let _check = health.watch_runtime(SignedDuration::from_millis(500));
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let servers = runtime.spawn(started_with(open(), env, health.clone())).await.unwrap().unwrap();
    let address = servers.probes.unwrap();
    let get_blocking = |path: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    for path in ["/livez", "/readyz"] {
        assert!(get_blocking(path).starts_with("HTTP/1.1 200"), "{path}");
        // This blocks the runtime of this test.
        std::thread::sleep(Duration::from_secs(1));
        let answer = get_blocking(path);
        assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("[-]main-runtime failed"), "{path}: {answer}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    runtime.spawn(servers.end()).await.unwrap();
    std::net::TcpStream::connect(address).expect_err("the port is closed");
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_panic_of_a_server_ends_the_servers() {
    let mut servers = started(open()).await.unwrap().0;
    servers.tasks.spawn(async { panic!("out of sockets") });
    let panic = tokio::spawn(servers.run()).await.unwrap_err().to_string();
    assert!(panic.contains("out of sockets"), "{panic}");
}

#[tokio::test]
async fn insecure_metrics_are_open_to_everybody() {
    let (servers, _) = started(open()).await.unwrap();
    let answer = get(servers.metrics, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    assert!(!answer.contains("# EOF"), "{answer}");
    let stream = TcpStream::connect(servers.metrics.unwrap()).await.unwrap();
    let answer =
        exchange(stream, "GET /metrics HTTP/1.1\r\nConnection: close\r\nAccept: application/openmetrics-text").await;
    let open = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(answer.contains(open) && answer.ends_with("# EOF\n"), "{answer}");
    assert!(get(servers.metrics, "/").await.starts_with("HTTP/1.1 404"));
    servers.end().await;
}

#[tokio::test]
async fn secure_metrics_need_tls_and_a_token() {
    let (servers, _) = started(secure()).await.unwrap();
    let metrics = servers.metrics;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let answer = send_over_tls(metrics, version, "GET /metrics HTTP/1.1").await;
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Bearer\r\n"), "{answer}");
    }
    let with_token = "GET /metrics HTTP/1.1\r\nAuthorization: Bearer x";
    let answer = send_over_tls(metrics, &rustls::version::TLS13, with_token).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("try again\n"), "{answer}");
    assert_eq!(get(metrics, "/metrics").await, "\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{32}", "a TLS alert, and no metrics");
    servers.end().await;
}

#[tokio::test]
async fn the_log_level_is_served_only_with_tls_and_a_token() {
    let (servers, _) = started(secure()).await.unwrap();
    let put = "PUT /log-level HTTP/1.1\r\nContent-Length: 0";
    let answer = send_over_tls(servers.metrics, &rustls::version::TLS13, put).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let answer = send_over_tls(servers.metrics, &rustls::version::TLS13, "GET /loglevel HTTP/1.1").await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("/metrics and /log-level\n"), "{answer}");
    servers.end().await;
    let (servers, _) = started(open()).await.unwrap();
    let stream = TcpStream::connect(servers.metrics.unwrap()).await.unwrap();
    let answer = exchange(stream, put).await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with("the only path is /metrics\n"), "{answer}");
    servers.end().await;
}

#[tokio::test]
async fn disabled_servers_are_not_started() {
    let unusable = Options { certificate: Some("/nowhere/at/all".into()), ..secure() };
    let error = started(unusable.clone()).await.err().unwrap();
    assert!(matches!(error, ServeError::Certificate(_)), "{error}");
    let off = Options { probes: BindAddress::Off, metrics: BindAddress::Off, ..unusable };
    let (servers, _) = started(off).await.unwrap();
    assert_eq!((servers.probes, servers.metrics), (None, None));
    servers.end().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_said_with_its_flag() {
    let (servers, _) = started(open()).await.unwrap();
    let taken = servers.probes.unwrap();
    let metrics = BindAddress::At(taken.ip().to_string(), taken.port());
    let error = started(Options { metrics, ..secure() }).await.err().unwrap();
    assert!(error.to_string().starts_with("--metrics-bind-address: cannot listen on 127.0.0.1:"), "{error}");
    servers.end().await;
}

/// The certificate that the server presents.
async fn certificate_at(address: Option<SocketAddr>) -> CertificateDer<'static> {
    let stream = connected_over_tls(address, &rustls::version::TLS13).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_certificate_that_changes_is_served_without_a_restart() {
    let folder = tempfile::TempDir::new().unwrap();
    let renew = || {
        let pair = tls::tests::new_pair();
        tls::tests::write(folder.path(), &pair);
        tls::tests::parsed(&pair).remove(0)
    };
    let first = renew();
    let (servers, _) = started(Options { certificate: Some(folder.path().to_owned()), ..secure() }).await.unwrap();
    assert_eq!(certificate_at(servers.metrics).await, first);
    let second = renew();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let is_served = async { while certificate_at(servers.metrics).await != second {} };
    tokio::time::timeout(Duration::from_secs(5), is_served).await.expect("the new one is read, and served");
    servers.end().await;
}
