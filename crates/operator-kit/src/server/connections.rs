//! Serves a bounded number of connections, each for one request and a bounded time.
//!
//! If too many are open, a new connection closes the oldest one, so slow clients cannot block new ones. The interval between two connections
//! bounds the cost of TLS handshakes. axum-server has no such limits, so this uses hyper.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{Router, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::debug;

/// How many connections are open at once; one more closes the oldest. A response takes milliseconds, so a probe is never the oldest.
const MAX_CONNECTIONS: usize = 128;

/// How long a connection may be open, from when it is accepted, or from the end of its TLS handshake.
const LIFETIME: Duration = Duration::from_secs(30);

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit for the head of a request, which is mostly a token.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// How long open connections may take to finish when the server ends.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until `stop`, and then finishes open connections. At least `interval` passes between two connections; the others wait in the
/// listen queue.
pub async fn serve(
    mut listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    router: Router,
    interval: Duration,
    stop: CancellationToken,
) {
    // The oldest connection comes first.
    let mut open = VecDeque::<AbortOnDropHandle<()>>::new();
    let (ending, mut next) = (GracefulShutdown::new(), Instant::now());
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            (stream, _) = async { sleep_until(next).await; Listener::accept(&mut listener).await } => {
                next = Instant::now() + interval;
                open.retain(|connection| !connection.is_finished());
                if open.len() >= MAX_CONNECTIONS && open.pop_front().is_some() {
                    debug!("too many connections: the oldest is closed");
                }
                let (router, watcher, stop) = (router.clone(), ending.watcher(), stop.clone());
                let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.borrow().clone()));
                open.push_back(AbortOnDropHandle::new(tokio::spawn(async move {
                    let Some(tls) = tls else { return exchange(stream, router, watcher).await };
                    if let Some(Some(stream)) = stop.run_until_cancelled(handshake(stream, tls)).await {
                        exchange(stream, router, watcher).await;
                    }
                })));
            }
        }
    }
    drop(listener);
    if timeout(GRACE, ending.shutdown()).await.is_err() {
        debug!("closing connections that took too long to finish");
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(stream: S, tls: TlsAcceptor) -> Option<TlsStream<S>> {
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => debug!(%error, "a TLS handshake failed"),
        Err(_) => debug!("a TLS handshake took too long"),
    }
    None
}

/// Answers one request within a bounded time. Probes and scrapes are too rare for keep-alive.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, router: Router, ending: Watcher) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES).keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(LIFETIME, ending.watch(connection)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection ended with an error"),
        Err(_) => debug!("a connection took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        net::TcpStream,
        sync::Notify,
        time::Instant,
    };

    use crate::server::tls;

    fn router() -> Router {
        Router::new().route("/", get(async || "hello")).route("/never", get(std::future::pending::<()>))
    }

    /// The client's end of a connection that is served.
    fn connected(tls: Option<TlsAcceptor>, ending: &GracefulShutdown) -> DuplexStream {
        let (client, server) = duplex(1024);
        let ending = ending.watcher();
        tokio::spawn(async move {
            match tls {
                None => exchange(server, router(), ending).await,
                Some(tls) => assert!(handshake(server, tls).await.is_none()),
            }
        });
        client
    }

    /// What the server sends until it closes the connection, and after how many seconds it closes it.
    async fn until_closed(mut client: DuplexStream, sent: &str) -> (String, u64) {
        let start = Instant::now();
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        (answer, start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_serves_one_request_and_times_out() {
        let ending = GracefulShutdown::new();
        let (answer, seconds) = until_closed(connected(None, &ending), "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.ends_with("hello") && seconds == 0, "{answer} {seconds}");
        let (_, seconds) = until_closed(connected(None, &ending), "").await;
        assert_eq!(seconds, HEADER_TIMEOUT.as_secs(), "a client that sends nothing");
        let (_, seconds) = until_closed(connected(None, &ending), "GET / HTTP/1.1\r\nHost:").await;
        assert_eq!(seconds, HEADER_TIMEOUT.as_secs(), "an incomplete request");
        let (_, seconds) = until_closed(connected(None, &ending), "GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(seconds, LIFETIME.as_secs(), "a request without a response");
        let tls = tls::self_signed().unwrap();
        let (_, seconds) = until_closed(connected(Some(tls.into()), &ending), "").await;
        assert_eq!(seconds, HANDSHAKE_TIMEOUT.as_secs(), "a missing handshake");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_request_are_closed_at_shutdown() {
        let ending = GracefulShutdown::new();
        let client = connected(None, &ending);
        tokio::task::yield_now().await;
        ending.shutdown().await;
        assert_eq!(until_closed(client, "").await, (String::new(), 0));
    }

    #[tokio::test]
    async fn the_number_of_connections_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let server = tokio::spawn(serve(listener, None, router(), Duration::ZERO, stop.clone()));
        let mut idle = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let start = Instant::now();
        let mut one_more = TcpStream::connect(address).await.unwrap();
        one_more.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        one_more.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
        assert!(start.elapsed() < HEADER_TIMEOUT, "it did not wait for the idle ones: {:?}", start.elapsed());
        let (mut oldest, mut others) = (idle.remove(0), idle);
        assert_eq!(oldest.read(&mut [0]).await.unwrap(), 0, "the oldest connection was closed");
        for other in &mut others {
            other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            answer.clear();
            other.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("hello"), "the others were kept: {answer}");
        }
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn an_unanswered_request_delays_shutdown_by_the_grace_period() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let (stop, arrived) = (CancellationToken::new(), Arc::new(Notify::new()));
        let arrival = arrived.clone();
        let never = async move || {
            arrival.notify_one();
            std::future::pending::<()>().await;
        };
        let router = Router::new().route("/never", get(never));
        let serving = tokio::spawn(serve(listener, None, router, Duration::ZERO, stop.clone()));
        arrived.notified().await;
        // From here on, the test waits only for time.
        tokio::time::pause();
        let stopped = Instant::now();
        stop.cancel();
        serving.await.unwrap();
        assert_eq!(stopped.elapsed().as_secs(), GRACE.as_secs());
    }

    async fn gets_hello(mut client: TcpStream) {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
    }

    #[tokio::test]
    async fn connections_are_accepted_at_a_bounded_rate() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let interval = Duration::from_millis(20);
        let server = tokio::spawn(serve(listener, None, router(), interval, stop.clone()));
        let start = Instant::now();
        futures::future::join_all((0..20).map(async |_| {
            gets_hello(TcpStream::connect(address).await.unwrap()).await;
        }))
        .await;
        assert!(start.elapsed() >= interval * 19, "all but the first wait: {:?}", start.elapsed());
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn the_oldest_stalled_handshake_gives_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let tls = tls::self_signed().unwrap();
        let server = tokio::spawn(serve(listener, Some(watch::channel(tls).1), router(), Duration::ZERO, stop.clone()));
        let start = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "the oldest gives way");
        assert!(start.elapsed() < HANDSHAKE_TIMEOUT, "{:?}", start.elapsed());
        let stopped = Instant::now();
        stop.cancel();
        server.await.unwrap();
        assert!(stopped.elapsed() < GRACE, "a handshake does not delay the end: {:?}", stopped.elapsed());
    }
}
