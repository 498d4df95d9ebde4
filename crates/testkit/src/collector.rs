//! Trace collector for tests: receives OTLP over gRPC and HTTP on one port and exposes the received spans. It can simulate failures.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{ResourceSpans, Span as Wire, status::StatusCode as WireStatus},
};
use prost::Message;
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::{body::Body, codegen::Service};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    Good,
    /// Accepts connections and requests, but never responds.
    Silent,
    Failing,
}

/// A running collector. It stops when this is dropped.
pub struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    requests: Vec<(String, HeaderMap)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// The span ID of the parent, or empty.
    pub parent: String,
    /// In lower case: `client`, `server` or `internal`.
    pub kind: String,
    /// The attributes of the process that created it.
    pub resource: BTreeMap<String, String>,
    pub attributes: BTreeMap<String, String>,
    /// Trace and span ID of each link.
    pub links: Vec<(String, String)>,
    pub error: Option<String>,
    /// The start time in nanoseconds.
    pub start: u64,
}

impl Span {
    pub fn service(&self) -> &str {
        self.resource.get("service.name").map_or("", String::as_str)
    }

    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

impl Collector {
    pub async fn start(address: SocketAddr, mode: Mode) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let (address, received) = (listener.local_addr()?, Arc::<Mutex<Received>>::default());
        let server = tokio::spawn(serve(listener, Receiver { mode, received: received.clone() }));
        Ok(Self { address, received, server })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn spans(&self) -> Vec<Span> {
        let mut spans = self.received.lock().unwrap().spans.clone();
        spans.sort_by_key(|span| span.start);
        spans
    }

    pub fn requests(&self) -> Vec<(String, HeaderMap)> {
        self.received.lock().unwrap().requests.clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The spans of one trace as a tree, one per line.
pub fn tree(spans: &[Span], trace: &str) -> String {
    let of_trace: Vec<&Span> = spans.iter().filter(|span| span.trace == trace).collect();
    let is_known = |id: &str| of_trace.iter().any(|span| span.id == id);
    let mut text = String::new();
    let mut waiting: Vec<(usize, &Span)> =
        of_trace.iter().rev().filter(|span| !is_known(&span.parent)).map(|span| (0, *span)).collect();
    while let Some((depth, span)) = waiting.pop() {
        text += &format!("{:indent$}{}: {}\n", "", span.service(), span.name, indent = depth * 2);
        let children = of_trace.iter().rev().filter(|child| child.parent == span.id);
        waiting.extend(children.map(|child| (depth + 1, *child)));
    }
    text
}

async fn serve(listener: TcpListener, receiver: Receiver) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let receiver = receiver.clone();
        let service = hyper::service::service_fn(move |request| receiver.clone().answer(request));
        connections.spawn(async move {
            // The operator may close the connection at any time.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[derive(Clone)]
struct Receiver {
    mode: Mode,
    received: Arc<Mutex<Received>>,
}

impl Receiver {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
        let is_grpc =
            request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        self.received.lock().unwrap().requests.push((request.uri().path().to_owned(), request.headers().clone()));
        match self.mode {
            Mode::Good if is_grpc => {
                let Ok(response) = TraceServiceServer::new(self).call(request).await;
                return Ok(response);
            }
            Mode::Good => {}
            Mode::Silent => std::future::pending().await,
            // For gRPC, this is UNAVAILABLE.
            Mode::Failing => return Ok(reply(StatusCode::SERVICE_UNAVAILABLE, Vec::new())),
        }
        let Ok(export) = ExportTraceServiceRequest::decode(request.into_body().collect().await?.to_bytes()) else {
            return Ok(reply(StatusCode::BAD_REQUEST, Vec::new()));
        };
        Ok(reply(StatusCode::OK, self.take(export).encode_to_vec()))
    }

    fn take(&self, export: ExportTraceServiceRequest) -> ExportTraceServiceResponse {
        self.received.lock().unwrap().spans.extend(export.resource_spans.into_iter().flat_map(spans));
        ExportTraceServiceResponse::default()
    }
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        Ok(tonic::Response::new(self.take(request.into_inner())))
    }
}

fn reply(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    response
}

fn spans(process: ResourceSpans) -> Vec<Span> {
    let resource = attributes(process.resource.unwrap_or_default().attributes);
    let spans = process.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans.map(|wire| span(wire, resource.clone())).collect()
}

fn span(wire: Wire, resource: BTreeMap<String, String>) -> Span {
    let kind = format!("{:?}", wire.kind()).to_lowercase();
    let error = wire.status.filter(|status| status.code == WireStatus::Error as i32);
    Span {
        name: wire.name,
        trace: hex(&wire.trace_id),
        id: hex(&wire.span_id),
        parent: hex(&wire.parent_span_id),
        kind,
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
