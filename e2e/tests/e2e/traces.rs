//! A user's change as one trace: the operator's reconcile and requests, the API server's spans, and etcd's.

use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::Wanted;
use e2e::operator::Settings;
use e2e::process::eventually;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use testkit::collector::{Collector, Mode, Span};
use tokio::time::sleep;

/// The API server and etcd send their spans every 5 s.
const ARRIVE: Duration = Duration::from_secs(30);

pub fn scenarios() -> Vec<Scenario> {
    // The port is free until the collector listens. No other process should take it in between.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 4317)));
    vec![
        Scenario::new("traces_of_operator_api_server_and_etcd", move |t| of_all(t, address))
            .in_own_cluster(Wanted { traces: Some(address), ..Wanted::default() })
            .with_processes()
            .local_only("k3s has no etcd that sends traces"),
    ]
}

async fn of_all(t: Arc<Scene>, address: SocketAddr) -> Result<()> {
    let collector = Collector::start(address, Mode::Good).await?;
    let operator = t.run(Settings { traces: Some(address), ..t.settings() }).await?;
    t.create_set("web", 3).await?;
    t.settles("web", 3).await?;
    eventually("the spans", ARRIVE, || ready(is_whole(&collector.spans()))).await?;

    // At rest, watches and Lease renewals are not traced.
    sleep(Duration::from_secs(6)).await;
    let before = collector.spans().len();
    sleep(Duration::from_secs(6)).await;
    ensure!(collector.spans().len() == before, "at rest, {} spans came", collector.spans().len() - before);

    // The last reconcile before the exit is not lost.
    t.scale("web", 1).await?;
    t.settles("web", 1).await?;
    operator.terminate(Duration::from_secs(30)).await?;
    let is_last = |span: &Span| span.name == "podset reconcile" && span.get("pods.deleted") == "2";
    ensure!(collector.spans().iter().any(is_last), "the scale-down has no span");
    Ok(())
}

/// The reconcile that created the pods is there, and each of its creates reaches the API server and etcd.
fn is_whole(spans: &[Span]) -> Result<()> {
    let created = |span: &&Span| span.name == "podset reconcile" && span.get("pods.created") == "3";
    let reconcile = spans.iter().find(created).context("no reconcile created 3 pods")?;
    let children = |parent: &Span| {
        let id = parent.id.clone();
        spans.iter().filter(move |span| span.parent == id)
    };
    let creates: Vec<_> = children(reconcile).filter(|span| span.name == "create pods").collect();
    ensure!(creates.len() == 3, "{} creates of pods", creates.len());
    for create in creates {
        let mut below: Vec<_> = children(create).collect();
        ensure!(below.iter().any(|span| span.service() == "apiserver"), "a create without a span of the API server");
        let mut services = Vec::new();
        while let Some(span) = below.pop() {
            services.push(span.service());
            below.extend(children(span));
        }
        ensure!(services.contains(&"etcd"), "a create without a span of etcd: {services:?}");
    }
    Ok(())
}
