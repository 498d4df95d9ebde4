//! A user's change as one trace: the operator's reconcile and requests, the API server's spans, and etcd's.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::Wanted;
use e2e::cluster::needs::Need::*;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::time::{Instant, sleep};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The API server and etcd send their spans every 5 s.
const ARRIVE: Duration = Duration::from_secs(30);

pub fn scenarios() -> Vec<Scenario> {
    // The port is free again before the collector listens. Nobody else on this machine takes it meanwhile.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 4317)));
    vec![
        Scenario::new("traces_of_operator_api_server_and_etcd", move |t| of_all(t, address))
            .in_own_cluster(Wanted { traces: Some(address), ..Wanted::default() })
            .needs(&[LocalCluster, Processes]),
    ]
}

async fn of_all(t: Arc<Scene>, address: SocketAddr) -> Result<()> {
    let collector = Collector::default();
    let server = Server::builder().add_service(TraceServiceServer::new(collector.clone())).serve(address);
    let server = tokio::spawn(server);
    let operator = t.run(t.settings().traced(address)).await?;
    t.create_set("web", 3).await?;
    t.settles("web", 3).await?;
    let began = Instant::now();
    while let Err(lack) = is_whole(&collector.spans()) {
        ensure!(began.elapsed() < ARRIVE, "{lack:#}");
        sleep(Duration::from_millis(200)).await;
    }

    // At rest, watches and Lease renewals are not traced.
    sleep(Duration::from_secs(6)).await;
    let before = collector.spans().len();
    sleep(Duration::from_secs(6)).await;
    ensure!(collector.spans().len() == before, "at rest, {} spans came", collector.spans().len() - before);

    // The last reconcile before the exit is not lost.
    t.scale("web", 1).await?;
    t.settles("web", 1).await?;
    operator.terminate(Duration::from_secs(30)).await?;
    let is_last =
        |(_, span): &(String, Span)| span.name == "podset reconcile" && get(&span.attributes, "pods.deleted") == "2";
    ensure!(collector.spans().iter().any(is_last), "the scale-down has no span");
    server.abort();
    Ok(())
}

/// The reconcile that created the pods is there, and each of its creates reaches the API server and etcd.
fn is_whole(spans: &[(String, Span)]) -> Result<()> {
    let created =
        |(_, span): &&(String, Span)| span.name == "podset reconcile" && get(&span.attributes, "pods.created") == "3";
    let (_, reconcile) = spans.iter().find(created).context("no reconcile created 3 pods")?;
    let children = |parent: &Span| {
        let id = parent.span_id.clone();
        spans.iter().filter(move |(_, span)| span.parent_span_id == id)
    };
    let creates: Vec<_> = children(reconcile).filter(|(_, span)| span.name == "create pods").collect();
    ensure!(creates.len() == 3, "{} creates of pods", creates.len());
    for (_, create) in creates {
        let mut below: Vec<_> = children(create).collect();
        ensure!(below.iter().any(|(service, _)| service == "apiserver"), "a create without a span of the API server");
        let mut services = Vec::new();
        while let Some((service, span)) = below.pop() {
            services.push(service.as_str());
            below.extend(children(span));
        }
        ensure!(services.contains(&"etcd"), "a create without a span of etcd: {services:?}");
    }
    Ok(())
}

/// Receives spans by OTLP over gRPC, each with the name of its service.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

impl Collector {
    fn spans(&self) -> Vec<(String, Span)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for process in request.into_inner().resource_spans {
            let service = get(&process.resource.unwrap_or_default().attributes, "service.name");
            let spans = process.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            all.extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// An attribute as text; empty if it is missing.
fn get(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}
