//! Pods that go without the operator's doing are replaced.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, EvictParams};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("healing_of_killed_and_evicted_pods", of_killed_and_evicted_pods)]
}

async fn of_killed_and_evicted_pods(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 3).await?;
    let pods = t.settles("web", 3).await?;
    let first = uids(&t);
    try_join_all(pods.iter().map(|pod| t.delete_pod(pod))).await?;
    let pods = t.until("3 new pods", |seen| replaced(seen, &first, 3)).await?;

    let second = uids(&t);
    t.log(&format!("evict {}", pods[0]));
    let all: Api<Pod> = Api::namespaced(t.client(), t.namespace());
    all.evict(&pods[0], &EvictParams::default()).await.context("evicting a pod")?;
    t.until("a replacement of the evicted pod", |seen| replaced(seen, &second, 1)).await?;
    let events = t.look(|seen| seen.events("web"));
    ensure!(events.iter().all(|event| !event.starts_with("FailedCreate")), "creates failed: {events:?}");
    Ok(())
}

/// The set is at rest with 3 pods, so many of them new.
fn replaced(seen: &View, before: &[Option<String>], new: usize) -> Seen<Vec<String>> {
    let names = seen.at_rest("web", 3)?;
    let are_new = seen.live("web")?.iter().filter(|pod| !before.contains(&pod.uid())).count();
    if are_new == new { Ok(names) } else { Err(format!("{are_new} of {names:?} are new")) }
}

fn uids(t: &Scene) -> Vec<Option<String>> {
    t.look(|seen| seen.pods.all().map(|pod| pod.uid()).collect())
}
