//! A user's change as one trace: what the operator decided and asked for, what the API server made of it, and what etcd stored.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::cluster::Wanted;
use e2e::cluster::needs::Need::*;
use e2e::collector::{Collector, Manner, Span, listen, tree};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use tokio::time::{Instant, sleep};

/// The API server and etcd send their spans every 5 s.
const ARRIVE: Duration = Duration::from_secs(30);

/// The one scenario, in a cluster whose control plane knows where the collector will be.
pub fn scenario() -> Scenario {
    let listener = listen().expect("this machine has a free port");
    let traces = listener.local_addr().ok();
    Scenario::new("traces_hold_operator_api_server_and_etcd", move |t| hold_all(t, listener))
        .in_own_cluster(Wanted { traces, ..Wanted::default() })
        .needs(&[TracedControlPlane, Processes])
}

async fn hold_all(t: Arc<Scene>, listener: TcpListener) -> Result<()> {
    let collector = Collector::start(listener, Manner::Good)?;
    let operator = t.run(t.settings().traced(collector.address())).await?;
    t.create_set("web", 3).await?;
    t.until("3 pods", |seen| seen.at_rest("web", 3).map(drop)).await?;

    let began = Instant::now();
    let trace = loop {
        match whole_trace(&collector.spans()) {
            Ok(trace) => break trace,
            Err(lack) if began.elapsed() > ARRIVE => return Err(lack),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    };
    t.tell(&format!("one trace holds all:\n{}", tree(&collector.spans(), &trace)));

    // At rest nothing is traced, by whomever: watches and leases go on.
    sleep(Duration::from_secs(6)).await;
    let before = collector.spans().len();
    sleep(Duration::from_secs(6)).await;
    ensure!(collector.spans().len() == before, "at rest {} spans came", collector.spans().len() - before);

    // The last reconcile is not lost.
    t.scale("web", 1).await?;
    t.until("1 pod", |seen| seen.at_rest("web", 1).map(drop)).await?;
    let status = operator.terminate(Duration::from_secs(30)).await?;
    ensure!(status.success(), "it ended with {status}");
    let is_last = |span: &Span| span.name == "podset reconcile" && span.get("pods.deleted") == "2";
    ensure!(collector.spans().iter().any(is_last), "the scale-down left no span");
    Ok(())
}

/// The trace of the reconcile that made the pods: each request in it has been continued by the API server, and on to etcd.
fn whole_trace(spans: &[Span]) -> Result<String> {
    let made = |span: &&Span| span.name == "podset reconcile" && span.get("pods.created") == "3";
    let reconcile = spans.iter().find(made).context("no reconcile made 3 pods")?;
    let below = |parent: &Span| spans.iter().filter(move |span| span.parent == parent.id).collect::<Vec<_>>();
    let creates: Vec<_> = below(reconcile).into_iter().filter(|span| span.name == "create pods").collect();
    ensure!(creates.len() == 3, "{} requests for pods", creates.len());
    for create in creates {
        let of_server = below(create);
        let Some(request) = of_server.first() else { bail!("the API server did not continue {}", create.id) };
        ensure!(request.service() == "apiserver", "it was {} that continued", request.service());
        let mut waiting = vec![*request];
        let mut has_reached_etcd = false;
        while let Some(span) = waiting.pop() {
            has_reached_etcd |= span.service() == "etcd" && span.trace == reconcile.trace;
            waiting.extend(below(span));
        }
        ensure!(has_reached_etcd, "no span of etcd:\n{}", tree(spans, &reconcile.trace));
    }
    Ok(reconcile.trace.clone())
}
