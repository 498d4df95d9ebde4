//! How connections are served: a bounded number of them, each for one request and a bounded time.
//!
//! Whoever is slow or hostile holds one place for a while, and nothing more: what is accepted is never waited for before
//! the next is.

use std::{io, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How many connections are open at once; the others wait to be accepted.
const CONNECTIONS: usize = 128;

/// How long a connection may take from its first byte to its last.
const LIFETIME: Duration = Duration::from_secs(30);

/// How long the TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);

/// How many bytes the head of a request may have; tokens are the bulk of it.
const HEAD_BYTES: usize = 64 * 1024;

/// How long the answers that are under way may take when the server ends.
const GRACE: Duration = Duration::from_secs(2);

/// The wait after no connection could be accepted, as when the process has too many files open.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Serves until `stop`, and what is under way then to its end.
pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router, stop: CancellationToken) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = open.join_next() => {}
            stream = accept(&listener), if open.len() < CONNECTIONS => {
                open.spawn(connection(stream, tls.clone(), router.clone(), stop.clone()));
            }
        }
    }
    drop(listener);
    let ended = async { while open.join_next().await.is_some() {} };
    if timeout(GRACE, ended).await.is_err() {
        debug!("answers were under way for too long");
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                warn!(%error, "cannot accept a connection, trying again");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Whether an error is the connection's own, so that the next one may be fine.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, stop: CancellationToken) {
    let exchange = async {
        match tls {
            None => exchange(stream, router, stop).await,
            Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => exchange(stream, router, stop).await,
                Ok(Err(error)) => debug!(%error, "a TLS handshake failed"),
                Err(_) => debug!("a TLS handshake took too long"),
            },
        }
    };
    if timeout(LIFETIME, exchange).await.is_err() {
        debug!("a connection took too long");
    }
}

/// Answers one request. Neither probes nor scrapes come often enough for a second one to be worth the place.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES).keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended with an error");
    }
}
