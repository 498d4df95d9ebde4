//! A proxy between the operator and the API server that injects one [`Fault`] at a time.
//!
//! It speaks plain HTTP to the operator. Its client has no credentials: it passes on those of the operator.

mod fault;
mod watch;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

pub use fault::Fault;
use fault::Faults;

/// A running proxy. It ends when this is dropped, and with it every connection.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    _server: JoinSet<()>,
}

struct State {
    upstream: Client,
    faults: Faults,
    histories: watch::Histories,
    /// The requests that take effect without a response.
    unanswered: Mutex<JoinSet<()>>,
}

/// How long [`Fault::CreatesLate`] delays a create: longer than the operator waits for a response.
const DELAY: Duration = Duration::from_secs(13);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Proxy {
    /// Starts a proxy in front of the API server of this configuration, which has no credentials.
    pub async fn start(mut config: Config, seed: u64) -> Result<Self> {
        // Only the operator decides what is retried.
        config.default_retry = false;
        let upstream = Client::try_from(config)?;
        let (faults, histories, unanswered) = (Faults::new(seed), watch::Histories::default(), Mutex::default());
        let state = Arc::new(State { upstream, faults, histories, unanswered });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("binding the proxy's port")?;
        let address = listener.local_addr()?;
        let mut server = JoinSet::new();
        server.spawn(accept(listener, state.clone()));
        Ok(Self { address, state, _server: server })
    }

    /// Injects this fault, and ends any other.
    pub fn inject(&self, fault: Fault) {
        self.state.faults.set(Some(fault));
    }

    /// Ends the fault, and waits until all requests without a response have taken effect.
    pub async fn heal(&self) {
        self.state.faults.set(None);
        let unanswered = std::mem::take(&mut *self.state.unanswered.lock());
        unanswered.join_all().await;
    }

    /// How often the last fault has struck. A fault that never strikes tests nothing.
    pub fn strikes(&self) -> usize {
        self.state.faults.strikes()
    }

    /// The proxy as an API server, as in the `clusters` of a kubeconfig.
    pub fn server(&self) -> Value {
        json!({"server": format!("http://{}", self.address)})
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, state.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { handle(request, &state).await }
    });
    // It fails if the operator hangs up, or if a fault closes the connection.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Answers one request. An error closes the connection.
async fn handle(request: Request<Incoming>, state: &Arc<State>) -> io::Result<Answer> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let request = Request::from_parts(parts, body);
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1" | "watch"));
    let is_create = request.method() == Method::POST && request.uri().path().ends_with("/pods");
    match state.faults.now() {
        Some(Fault::Away | Fault::Silent) => return cut(state).await,
        Some(Fault::AnswersLost) if is_watch => return cut(state).await,
        Some(fault) if fault == Fault::AnswersLost || fault == Fault::CreatesLate && is_create => {
            // In its own task, because it takes effect also if the operator hangs up.
            let upstream = state.upstream.clone();
            let wait = if fault == Fault::CreatesLate { DELAY } else { Duration::ZERO };
            state.unanswered.lock().spawn(async move {
                sleep(wait).await;
                let _ = pass(request, &upstream).await;
            });
            state.faults.struck();
            state.faults.until(|now| now != Some(fault)).await;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        _ => {}
    }
    let answer = if is_watch { watch::pass(request, state).await } else { pass(request, &state.upstream).await };
    match state.faults.now() {
        // Since the request was passed on.
        Some(Fault::Away | Fault::Silent | Fault::AnswersLost) => cut(state).await,
        _ => answer,
    }
}

/// Closes the connection: at once if the API server is away, else when the fault ends.
async fn cut(state: &State) -> io::Result<Answer> {
    state.faults.struck();
    state.faults.until(|now| !now.is_some_and(Fault::is_mute)).await;
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Passes a request on, and returns the whole response.
async fn pass(request: Request<Bytes>, upstream: &Client) -> io::Result<Answer> {
    let (parts, body) = send(request, upstream).await?.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(answer(parts.status, parts.headers, Full::new(body)))
}

async fn send(request: Request<Bytes>, upstream: &Client) -> io::Result<Response<Body>> {
    upstream.send(request.map(Body::from)).await.map_err(io::Error::other)
}

fn answer<B>(status: StatusCode, mut headers: HeaderMap, body: B) -> Answer
where
    B: BodyExt<Data = Bytes, Error = Infallible> + Send + 'static,
{
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
