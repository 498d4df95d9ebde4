//! A set is deleted: what becomes of its pods is Kubernetes' business, and the operator makes no new ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::types::uid;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use serde_json::json;

/// Something of somebody else's, for which the pod waits before it goes.
const HOLD: &str = "example.com/hold";

pub async fn in_the_foreground(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let (owner, pods) = three_pods(&t).await?;
    t.patch_pod(&pods[0], json!({"metadata": {"finalizers": [HOLD]}})).await?;
    delete(&t, DeleteParams::foreground()).await?;
    t.until("the set to wait for a pod that is held", |seen| {
        seen.has_live("web", 0)?;
        seen.conditions("web", &[("Ready", "False/Deleting"), ("Reconciling", "True/Deleting")])
    })
    .await?;
    t.patch_pod(&pods[0], json!({"metadata": {"finalizers": null}})).await?;
    t.until("the set to go", |seen| is_gone(seen, "web")).await?;
    // Consistent, unlike two watches: what is listed now was there after the set had gone.
    let left = t.pods().list(&ListParams::default()).await?;
    let left: Vec<_> = left.iter().filter(|pod| pod.owner() == Some(&owner)).map(|pod| pod.name_any()).collect();
    ensure!(left.is_empty(), "the set went before its pods {left:?}");
    made_no_others(&t, &pods).await
}

pub async fn in_the_background(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let (owner, pods) = three_pods(&t).await?;
    delete(&t, DeleteParams::background()).await?;
    t.until("the set to go", |seen| is_gone(seen, "web")).await?;
    t.until("the garbage collector to delete the set's pods", |seen| {
        let left: Vec<_> = seen.pods.owned_by(&owner).map(|pod| pod.name_any()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are still there")) }
    })
    .await?;
    made_no_others(&t, &pods).await
}

/// Its pods stay and are nobody's; a new set of that name has pods of its own.
pub async fn that_orphans(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let (_, orphans) = three_pods(&t).await?;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    delete(&t, orphan).await?;
    t.until("the set to go", |seen| is_gone(seen, "web")).await?;
    t.until("its pods to be nobody's", |seen| are_nobodys(seen, &orphans)).await?;

    t.create_set("web", 2).await?;
    let two = t.until("2 pods of the new set", |seen| seen.at_rest("web", 2)).await?;
    ensure!(two.iter().all(|pod| !orphans.contains(pod)), "of the orphans {orphans:?} the new set has {two:?}");
    t.scale("web", 1).await?;
    t.until("1 pod of the new set", |seen| seen.at_rest("web", 1)).await?;
    t.look(|seen| are_nobodys(seen, &orphans)).map_err(anyhow::Error::msg)
}

async fn three_pods(t: &Scene) -> Result<(String, Vec<String>)> {
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    let owner = t.look(|seen| seen.set("web").map(|set| uid(&set.metadata))).map_err(anyhow::Error::msg)?;
    Ok((owner, pods))
}

async fn delete(t: &Scene, how: DeleteParams) -> Result<()> {
    t.tell(&format!("delete set web: {:?}", how.propagation_policy));
    t.sets().delete("web", &how).await?;
    Ok(())
}

fn is_gone(seen: &View, set: &str) -> Seen {
    match seen.set(set) {
        Err(_) => Ok(()),
        Ok(object) => Err(format!("{set} is there, deleted at {:?}", object.metadata.deletion_timestamp)),
    }
}

fn are_nobodys(seen: &View, pods: &[String]) -> Seen {
    for name in pods {
        let pod = seen.pod(name)?;
        if pod.owner().is_some() || !pod.is_live() {
            return Err(format!("{name} is owned by {:?}, live: {}", pod.owner(), pod.is_live()));
        }
    }
    Ok(())
}

/// By the events: whatever the operator did after the three pods it would have told.
async fn made_no_others(t: &Scene, pods: &[String]) -> Result<()> {
    let told = t.look(|seen| seen.events_about("web"));
    ensure!(told.len() == 1, "more was done than making {pods:?}: {told:?}");
    // Consistent: the watch of the pods may be behind that of the sets.
    let left: BTreeSet<_> = t.pods().list(&ListParams::default()).await?.iter().map(|pod| pod.name_any()).collect();
    ensure!(left.is_empty(), "pods are left: {left:?}");
    Ok(())
}
