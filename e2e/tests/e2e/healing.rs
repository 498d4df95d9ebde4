//! Pods that go without the operator's doing: each gets a successor.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::scene::Scene;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, EvictParams};

pub async fn of_killed_and_evicted_pods(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    let first = uids(&t);
    try_join_all(pods.iter().map(|pod| t.delete_pod(pod))).await?;
    let pods = are_all_others(&t, &first).await?;

    let second = uids(&t);
    t.tell(&format!("evict {}", pods[0]));
    let all: Api<Pod> = Api::namespaced(t.client(), t.namespace());
    all.evict(&pods[0], &EvictParams::default()).await.context("evicting a pod")?;
    t.until("a pod in place of the evicted one", |seen| {
        let names = seen.at_rest("web", 3)?;
        let new = seen.live("web")?.iter().filter(|pod| !second.contains(&pod.uid())).count();
        if new == 1 { Ok(()) } else { Err(format!("{new} of {names:?} are new")) }
    })
    .await?;
    // The replacements of both times, and what was there first.
    let told = t.look(|seen| seen.events_about("web"));
    ensure!(told.iter().all(|event| !event.starts_with("FailedCreate")), "it tells of failures: {told:?}");
    Ok(())
}

async fn are_all_others(t: &Scene, former: &BTreeSet<Option<String>>) -> Result<Vec<String>> {
    t.until("3 pods in place of the deleted ones", |seen| {
        let names = seen.at_rest("web", 3)?;
        let old = seen.live("web")?.iter().filter(|pod| former.contains(&pod.uid())).count();
        if old == 0 { Ok(names) } else { Err(format!("{old} of {names:?} are old")) }
    })
    .await
}

fn uids(t: &Scene) -> BTreeSet<Option<String>> {
    t.look(|seen| seen.pods.all().filter(|pod| pod.is_live()).map(|pod| pod.uid()).collect())
}
