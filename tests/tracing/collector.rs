//! A collector of traces in the process of the test: takes OTLP by gRPC and by HTTP at one port, and shows the spans that came.
//! It can misbehave as collectors do.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{ResourceSpans, Span as Wire, status::StatusCode as WireStatus},
};
use prost::Message;
use tokio::{net::TcpListener, task::JoinHandle};

/// How it behaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    /// It takes what comes.
    Good,
    /// It accepts connections and requests, and never answers.
    Silent,
    /// It answers that it cannot.
    Failing,
}

/// A free port of this machine alone, for a collector.
///
/// # Errors
///
/// When there is none.
pub fn listen() -> std::io::Result<std::net::TcpListener> {
    std::net::TcpListener::bind("127.0.0.1:0")
}

/// A collector that runs. It ends with this value.
pub struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Taken>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Taken {
    spans: Vec<Span>,
    requests: Vec<(String, HeaderMap)>,
}

/// A span as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// The trace.
    pub trace: String,
    /// Itself.
    pub id: String,
    /// Its parent; empty: none.
    pub parent: String,
    /// `client`, `server`, `internal`, or the number of another kind.
    pub kind: String,
    /// The attributes of the process that made it.
    pub resource: BTreeMap<String, String>,
    /// Its own attributes.
    pub attributes: BTreeMap<String, String>,
    /// The spans that it points at: trace and span.
    pub links: Vec<(String, String)>,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// When it began, in nanoseconds.
    pub start: u64,
}

impl Span {
    /// The service that made it.
    pub fn service(&self) -> &str {
        self.resource.get("service.name").map_or("", String::as_str)
    }

    /// An attribute; empty where there is none.
    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

impl Collector {
    /// Starts one at an address that is listened at already.
    ///
    /// # Errors
    ///
    /// When the system does not allow it.
    pub fn start(listener: std::net::TcpListener, manner: Manner) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let (address, taken) = (listener.local_addr()?, Arc::<Mutex<Taken>>::default());
        let server = tokio::spawn(serve(listener, manner, taken.clone()));
        Ok(Self { address, taken, server })
    }

    /// Where it listens: host and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All spans that came, in the order of their beginning.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = lock(&self.taken).spans.clone();
        spans.sort_by_key(|span| span.start);
        spans
    }

    /// The paths and heads of the requests that came.
    pub fn requests(&self) -> Vec<(String, HeaderMap)> {
        lock(&self.taken).requests.clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The spans of one trace as a tree, a line each.
pub fn tree(spans: &[Span], trace: &str) -> String {
    let of_trace: Vec<&Span> = spans.iter().filter(|span| span.trace == trace).collect();
    let is_known = |id: &str| of_trace.iter().any(|span| span.id == id);
    let mut text = String::new();
    let mut waiting: Vec<(usize, &Span)> =
        of_trace.iter().rev().filter(|span| !is_known(&span.parent)).map(|span| (0, *span)).collect();
    while let Some((depth, span)) = waiting.pop() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:indent$}{}: {}", "", span.service(), span.name, indent = depth * 2);
        let children = of_trace.iter().rev().filter(|child| child.parent == span.id);
        waiting.extend(children.map(|child| (depth + 1, *child)));
    }
    text
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, manner: Manner, taken: Arc<Mutex<Taken>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let taken = taken.clone();
        let service = hyper::service::service_fn(move |request| answer(manner, taken.clone(), request));
        connections.spawn(async move {
            // Whoever goes away in the middle is no trouble of ours.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(
    manner: Manner,
    taken: Arc<Mutex<Taken>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    lock(&taken).requests.push((head.uri.path().to_owned(), head.headers));
    match manner {
        Manner::Good => {}
        Manner::Silent => std::future::pending().await,
        Manner::Failing => return Ok(refusal(is_grpc)),
    }
    // A message of gRPC has five bytes before it: whether it is compressed, and its length.
    let message = if is_grpc { body.get(5..).unwrap_or_default() } else { &body };
    let Ok(export) = ExportTraceServiceRequest::decode(message) else {
        return Ok(refusal(is_grpc));
    };
    lock(&taken).spans.extend(export.resource_spans.into_iter().flat_map(spans));
    let reply = ExportTraceServiceResponse::default().encode_to_vec();
    if !is_grpc {
        return Ok(with_type("application/x-protobuf", Full::new(reply.into()).boxed_unsync()));
    }
    let mut framed = vec![0; 5];
    framed.extend(reply);
    Ok(with_type("application/grpc", Full::new(framed.into()).with_trailers(grpc_status("0")).boxed_unsync()))
}

async fn trailers(status: HeaderMap) -> Option<Result<HeaderMap, Infallible>> {
    Some(Ok(status))
}

fn grpc_status(code: &'static str) -> impl Future<Output = Option<Result<HeaderMap, Infallible>>> + Send {
    let mut status = HeaderMap::new();
    status.insert("grpc-status", http::HeaderValue::from_static(code));
    trailers(status)
}

fn with_type(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// UNAVAILABLE, in either protocol.
fn refusal(is_grpc: bool) -> Response<Body> {
    if is_grpc {
        return with_type("application/grpc", Full::default().with_trailers(grpc_status("14")).boxed_unsync());
    }
    let mut response = with_type("text/plain", Full::default().boxed_unsync());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

fn spans(of_process: ResourceSpans) -> Vec<Span> {
    let resource = attributes(of_process.resource.unwrap_or_default().attributes);
    let spans = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans.map(|wire| span(wire, resource.clone())).collect()
}

fn span(wire: Wire, resource: BTreeMap<String, String>) -> Span {
    let error = wire.status.filter(|status| status.code == WireStatus::Error as i32);
    Span {
        name: wire.name,
        trace: hex(&wire.trace_id),
        id: hex(&wire.span_id),
        parent: hex(&wire.parent_span_id),
        kind: match wire.kind {
            1 => "internal".to_owned(),
            2 => "server".to_owned(),
            3 => "client".to_owned(),
            other => other.to_string(),
        },
        resource,
        attributes: attributes(wire.attributes),
        links: wire.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        error: error.map(|status| status.message),
        start: wire.start_time_unix_nano,
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
