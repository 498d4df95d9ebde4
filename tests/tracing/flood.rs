//! A flood of TLS handshakes to the metrics port: it delays no renewal of the Lease and no probe, and scrapes succeed.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, ClientConnection, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};

use testkit::apiserver::{Requests, Verb};

use crate::{
    api::TestServer,
    process::{Operator, until},
};

/// How long the flood lasts, in seconds, unless the variable FLOOD_SECONDS is set.
const SECONDS: u64 = 10;

/// How many handshakes each thread of the flood starts at a time.
const AT_A_TIME: usize = 64;

/// How much later than the retry period a renewal may be on a busy machine.
const SLACK: Duration = Duration::from_millis(700);

/// The retry period of the election.
const PERIOD: Duration = Duration::from_secs(2);

/// How long a probe may take: the default of a kubelet.
const PROBE: Duration = Duration::from_secs(1);

/// A certificate for 127.0.0.1, and a folder with it and its key.
fn certificate() -> (CertificateDer<'static>, TempDir) {
    let folder = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    for (file, label, der) in
        [("tls.crt", "CERTIFICATE", certificate.to_vec()), ("tls.key", "PRIVATE KEY", made.signing_key.serialize_der())]
    {
        let base64 = serde_json::to_value(k8s_openapi::ByteString(der)).unwrap();
        let pem = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64.as_str().unwrap());
        std::fs::write(folder.path().join(file), pem).unwrap();
    }
    (certificate, folder)
}

fn client(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(trusted).with_no_client_auth())
}

fn server_name() -> ServerName<'static> {
    ServerName::try_from("127.0.0.1").unwrap()
}

/// Starts handshakes, many at a time, until `stop`, and drops each when the server has responded. With `is_half`, sends
/// only half of a ClientHello. Returns how many it started.
fn flood(to: SocketAddr, hello: Vec<u8>, is_half: bool, stop: Arc<AtomicBool>) -> JoinHandle<usize> {
    let begin = move || -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&to, PROBE)?;
        stream.set_read_timeout(Some(PROBE))?;
        stream.write_all(if is_half { &hello[..hello.len() / 2] } else { &hello })?;
        Ok(stream)
    };
    thread::spawn(move || {
        let mut begun = 0;
        while !stop.load(Ordering::Relaxed) {
            let streams: Vec<TcpStream> = (0..AT_A_TIME).filter_map(|_| begin().ok()).collect();
            begun += streams.len();
            for mut stream in streams {
                // Waits for a response, a closed connection or the timeout.
                let _ = stream.read(&mut [0; 512]);
            }
        }
        begun
    })
}

/// Probes five times a second until `stop`. Returns how long each probe took, and fails if a probe fails.
fn probe(to: SocketAddr, stop: Arc<AtomicBool>) -> JoinHandle<io::Result<Vec<Duration>>> {
    let once = move |path: &str| -> io::Result<Duration> {
        let began = Instant::now();
        let mut stream = TcpStream::connect_timeout(&to, PROBE)?;
        stream.set_read_timeout(Some(PROBE))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 200") { Ok(began.elapsed()) } else { Err(io::Error::other(answer)) }
    };
    thread::spawn(move || {
        let mut took = Vec::new();
        for path in ["/livez", "/readyz"].into_iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            took.push(once(path)?);
            thread::sleep(Duration::from_millis(200));
        }
        Ok(took)
    })
}

async fn scrape(from: SocketAddr, config: Arc<ClientConfig>) -> io::Result<String> {
    let stream = tokio::net::TcpStream::connect(from).await?;
    let mut stream = TlsConnector::from(config).connect(server_name(), stream).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer me\r\n\r\n").await?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// When the Lease was renewed, since the API server started.
fn renewals(api: &TestServer) -> Vec<Duration> {
    let renewals = api.requests(&Requests::all().verb(Verb::Patch).of("leases"));
    renewals.iter().map(|entry| entry.at).collect()
}

#[tokio::test]
async fn a_flood_of_handshakes_delays_no_renewal_and_no_probe() {
    let lasts = std::env::var("FLOOD_SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let (certificate, folder) = certificate();
    let config = client(certificate);
    let mut hello = Vec::new();
    ClientConnection::new(config.clone(), server_name()).unwrap().write_tls(&mut hello).unwrap();
    let api = TestServer::start().await;
    let mut operator = Operator::start(
        &api,
        &[
            ("PODSET_OPERATOR_LEADER_ELECT", "true"),
            ("PODSET_OPERATOR_METRICS_SECURE", "true"),
            ("PODSET_OPERATOR_METRICS_CERT_PATH", folder.path().to_str().unwrap()),
            ("PODSET_OPERATOR_HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
        ],
    );
    until("it to renew the Lease", || !renewals(&api).is_empty()).await;
    let metrics = operator.address("metrics");
    assert!(scrape(metrics, config.clone()).await.unwrap().starts_with("HTTP/1.1 200"));

    let (stop, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let floods: Vec<_> = [false, false, false, false, true, true]
        .into_iter()
        .map(|is_half| flood(metrics, hello.clone(), is_half, stop.clone()))
        .collect();
    let probes = probe(operator.address("health probes"), stop.clone());
    let (mut scraped, mut missed) = (0, 0);
    while began.elapsed() < Duration::from_secs(lasts) {
        match tokio::time::timeout(Duration::from_secs(5), scrape(metrics, config.clone())).await {
            Ok(Ok(text)) if text.starts_with("HTTP/1.1 200") => scraped += 1,
            _ => missed += 1,
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let now = api.with(|state| state.clock.elapsed());
    let began = now.saturating_sub(began.elapsed());
    let mut times: Vec<Duration> = renewals(&api).into_iter().filter(|when| *when + PERIOD >= began).collect();
    times.push(now);
    stop.store(true, Ordering::Relaxed);
    // The API server runs on this thread, so nothing may block it.
    let join = move || (floods.into_iter().map(|flood| flood.join().unwrap()).sum(), probes.join().unwrap());
    let (flooded, probed): (usize, _) = tokio::task::spawn_blocking(join).await.unwrap();
    let probed = probed.expect("every probe succeeds in time");

    let steps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (late, slow) = (steps.iter().max().unwrap(), probed.iter().max().unwrap());
    println!(
        "{flooded} handshakes in {lasts} s; {} renewals, at most {late:?} apart; {} probes, the slowest in {slow:?}; \
         {scraped} scrapes succeeded, {missed} failed",
        steps.len() - 1,
        probed.len()
    );
    assert!(flooded > 100, "only {flooded} handshakes");
    assert!(*late < PERIOD + SLACK, "a renewal was late: {steps:?}");
    assert!(*slow < PROBE, "{slow:?}");
    assert!(scraped > 0, "no scrape succeeded");
    operator.shut_down().await;
}
