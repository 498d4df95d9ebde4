//! The number of requests for a change, counted in the API server's audit log; and no requests at rest.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::audit::Requests;
use e2e::cluster::Wanted;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::time::sleep;

use crate::rollouts::{change_template, rolled_out, template};

/// Pods of each set.
const SIZE: usize = 10;

/// Limit for 100 sets.
const SETTLE: Duration = Duration::from_secs(180);

pub fn scenarios() -> Vec<Scenario> {
    let large = Wanted { nodes: 5, pods_a_node: 100_000, ..Wanted::default() };
    let scenario = Scenario::new("budget_of_100_sets", of_100_sets).in_own_cluster(large).heavy().with_processes();
    vec![
        scenario.local_only("1,000 pods"),
        Scenario::new("budget_of_a_rollout", of_a_rollout).local_only("real pods take 30 s to terminate"),
    ]
}

/// Creates 100 sets of ten pods, and scales them down. In between, the operator sends nothing.
async fn of_100_sets(t: Arc<Scene>) -> Result<()> {
    t.operator_for(&[]).await?;
    let sets: Vec<String> = (0..100).map(|n| format!("set-{n:02}")).collect();
    let before = Timestamp::now();
    try_join_all(sets.iter().map(|set| t.create_set(set, SIZE as i64))).await?;
    t.all_settle(&sets, SIZE, SETTLE).await?;
    costs(&t, before, &[("create pods", 1_000), ("create events", 100)], sets.len()).await?;
    is_quiet_for(&t, Duration::from_secs(60)).await?;

    let before = Timestamp::now();
    try_join_all(sets.iter().map(|set| t.scale(set, 4))).await?;
    t.all_settle(&sets, 4, SETTLE).await?;
    costs(&t, before, &[("delete pods", 600), ("create events", 100)], sets.len()).await?;
    let checked = t.bound_held().await?;
    ensure!(checked >= 1_600, "the bound was checked after {checked} events only");
    Ok(())
}

/// A rollout of R pods costs R deletes, R creates, R / maxUnavailable + 3 status patches, one dry run and one revision.
async fn of_a_rollout(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    let before = Timestamp::now();
    let strategy = json!({"rollingUpdate": {"maxUnavailable": "50%"}});
    let spec = json!({"replicas": SIZE, "template": template("one", false), "updateStrategy": strategy});
    t.create_set_from("web", spec).await?;
    rolled_out(&t, "web", SIZE).await?;
    costs(&t, before, &[("create pods", SIZE), ("create controllerrevisions", 1), ("create events", 1)], 1).await?;

    let before = Timestamp::now();
    change_template(&t, "two", false).await?;
    rolled_out(&t, "web", SIZE).await?;
    let pods = [("delete pods", SIZE), ("create pods", SIZE), ("dry-run pods", 1), ("create controllerrevisions", 1)];
    let reports = [("patch podsets/status", 2 + 3), ("create events", 2)];
    costs(&t, before, &[&pods[..], &reports].concat(), 1).await
}

/// Checks that at most these requests were sent since `began`. If `most` has no number of status patches, two per change are allowed, and
/// more if it took long: a status that waits for its pods may be updated every five seconds.
async fn costs(t: &Scene, began: Timestamp, most: &[(&str, usize)], changes: usize) -> Result<()> {
    let patches = changes * (2 + Timestamp::now().duration_since(began).as_secs().max(0) as usize / 5);
    // Events are sent a little later, and the audit log is written a little later still.
    sleep(Duration::from_secs(3)).await;
    let mut kinds = t.requests()?.received_in(began..Timestamp::MAX).kinds();
    kinds.retain(|kind, _| !kind.starts_with("watch ") && !kind.starts_with("list "));
    for (kind, most) in most.iter().chain(&[("patch podsets/status", patches), ("patch events", changes)]) {
        let sent = kinds.remove(*kind).unwrap_or(0);
        ensure!(sent <= *most, "'{kind}' was sent {sent} times, {most} are allowed");
    }
    ensure!(kinds.is_empty(), "requests that are not needed: {kinds:?}");
    Ok(())
}

/// Checks that only watches are sent for this time.
async fn is_quiet_for(t: &Scene, rest: Duration) -> Result<()> {
    sleep(Duration::from_secs(5)).await;
    let began = Timestamp::now();
    sleep(rest + Duration::from_secs(1)).await;
    // All requests of this cluster, because those for all namespaces name none.
    let sent = Requests::read(&t.cluster.audit_log, "")?.received_in(began..began + rest).but_watches();
    ensure!(sent.is_empty(), "{} requests in {} s at rest: {sent:#?}", sent.len(), rest.as_secs());
    Ok(())
}
