//! A proxy between the operator and its API server that does to requests and watches what networks, overloaded servers
//! and stale caches do: one [`Fault`] at a time, chosen by the scenario.
//!
//! Plain HTTP on loopback towards the operator; towards the API server kube's own client, without credentials. What the
//! operator sends is passed on as it is, its own credentials included.

mod fault;
mod watch;
mod write;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::Stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use fault::Fault;
use fault::Faults;

/// A running proxy; it ends when it is dropped, and with it every connection.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    _server: JoinSet<()>,
}

/// What all connections share.
struct State {
    upstream: Client,
    faults: Faults,
    histories: watch::Histories,
}

/// Faults that no request survives.
const CUT_OFF: [Fault; 3] = [Fault::Away, Fault::Silent, Fault::AnswersLost];

/// Those of them under which connections stay open and nothing is heard on them.
const NOTHING_HEARD: [Fault; 2] = [Fault::Silent, Fault::AnswersLost];

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Proxy {
    /// Starts one before the API server of this anonymous configuration, with no fault. Whatever is left to chance follows from
    /// the seed, as far as the order of the requests is the same.
    pub async fn start(mut config: Config, seed: u64) -> Result<Self> {
        // The operator decides what is repeated, and nobody else.
        config.default_retry = false;
        let upstream = Client::try_from(config)?;
        let state = Arc::new(State { upstream, faults: Faults::new(seed), histories: watch::Histories::default() });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("binding the proxy's port")?;
        let address = listener.local_addr()?;
        let mut server = JoinSet::new();
        server.spawn(accept(listener, state.clone()));
        Ok(Self { address, state, _server: server })
    }

    /// From now on this fault, and no other.
    pub fn torment(&self, fault: Fault) {
        self.state.faults.set(Some(fault));
    }

    /// From now on no fault.
    pub fn relent(&self) {
        self.state.faults.set(None);
    }

    /// How often the present fault, or the last one, has struck: a fault that never strikes proves nothing.
    pub fn strikes(&self) -> usize {
        self.state.faults.strikes()
    }

    /// The proxy in place of the API server, as in the `clusters` of a kubeconfig.
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
    // It fails where the operator hung up, or where a fault cut the connection: both are what was wanted.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Answers one request; an error cuts the connection without an answer.
async fn handle(request: Request<Incoming>, state: &Arc<State>) -> io::Result<Answer> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let request = Request::from_parts(parts, body);
    if let Some(fault) = cut_off(state) {
        if fault == Fault::AnswersLost && !is_watch(&request) {
            // In a task of its own: once it has arrived it is done, also if the operator hangs up.
            let upstream = state.upstream.clone();
            tokio::spawn(async move { pass(request, &upstream).await });
        }
        return cut(fault, state).await;
    }
    let answer = if is_watch(&request) {
        watch::pass(request, state).await
    } else if request.method() == Method::GET {
        pass(request, &state.upstream).await
    } else {
        write::pass(request, state).await
    };
    match cut_off(state) {
        Some(fault) => cut(fault, state).await, // since the request was passed on
        None => answer,
    }
}

fn cut_off(state: &State) -> Option<Fault> {
    state.faults.now().filter(|fault| CUT_OFF.contains(fault))
}

/// What becomes of a connection while the operator is cut off: where nothing is heard any more, it is open until the
/// fault ends, and its other side has given it up by then.
async fn cut(fault: Fault, state: &State) -> io::Result<Answer> {
    state.faults.struck();
    if fault != Fault::Away {
        state.faults.until_none_of(&NOTHING_HEARD).await;
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn is_watch(request: &Request<Bytes>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1" | "watch"))
}

/// Passes a request on and answers what the API server answered, whole.
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
    B: http_body_util::BodyExt<Data = Bytes, Error = Infallible> + Send + 'static,
{
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn streamed(
    lines: impl Stream<Item = Bytes> + Send + 'static,
) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> {
    use futures::StreamExt;
    StreamBody::new(lines.map(|line| Ok(Frame::data(line))))
}

/// A failure as the API server words it.
fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": format!("the proxy of the test says {reason}")
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if code == 429 {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer(code, headers, Full::new(Bytes::from(status.to_string())))
}
