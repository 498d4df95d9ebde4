//! Which pods go first when a set shrinks.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use kube::ResourceExt;
use serde_json::json;

/// The label by which the operator watches its pods.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

pub async fn of_victims(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 4).await?;
    let good = t.until("4 good pods", |seen| seen.at_rest("web", 4)).await?;

    // No node has this label: the two pods that are added are never scheduled.
    let nowhere = json!({"nodeSelector": {"example.com/nowhere": "true"}, "containers": [{"name": "main", "image": "example.com/app"}]});
    t.patch_set("web", json!({"spec": {"replicas": 6, "template": {"spec": nowhere}}})).await?;
    let six = t.until("2 pods more", |seen| {
        let six = seen.has_live("web", 6)?;
        seen.status_is_right("web").map(|()| six)
    });
    let pending: BTreeSet<_> = six.await?.into_iter().filter(|name| !good.contains(name)).collect();
    t.scale("web", 5).await?;
    let five = t.until("5 pods", |seen| seen.has_live("web", 5)).await?;
    ensure!(good.iter().all(|name| five.contains(name)), "of {good:?} and pending {pending:?}, {five:?} were kept");
    t.scale("web", 4).await?;
    let four = t.until("4 pods", |seen| seen.has_live("web", 4)).await?;
    ensure!(four == good, "of {good:?} and pending {pending:?}, {four:?} were kept");

    t.patch_pod_status(&good[1], json!({"conditions": [{"type": "Ready", "status": "False"}]})).await?;
    t.until("the unready pod in the status", |seen| seen.status_is_right("web")).await?;
    goes_first(&t, &good[1], 3).await?;

    costs(&t, &good[0], "100").await?;
    costs(&t, &good[2], "-5").await?;
    goes_first(&t, &good[2], 2).await?;
    goes_first(&t, &good[3], 1).await
}

/// Says what the end of this pod costs, and waits until the operator has heard it: it gives back a label that was taken in the same
/// moment.
async fn costs(t: &Scene, pod: &str, cost: &str) -> Result<()> {
    let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
    t.patch_pod(pod, json!({"metadata": {"annotations": annotations, "labels": {MANAGED_BY: null}}})).await?;
    t.until("the label to be given back", |seen| {
        let pod = seen.pod(pod)?;
        let is_told = pod.annotations().values().any(|told| told == cost) && pod.labels().contains_key(MANAGED_BY);
        if is_told { Ok(()) } else { Err(format!("{:?}, {:?}", pod.annotations(), pod.labels())) }
    })
    .await
}

async fn goes_first(t: &Scene, victim: &String, left: usize) -> Result<()> {
    let before = t.look(|seen| seen.has_live("web", left + 1)).map_err(anyhow::Error::msg)?;
    t.scale("web", left as i64).await?;
    let after = t.until("one pod less", |seen| seen.at_rest("web", left)).await?;
    ensure!(!after.contains(victim), "of {before:?}, {after:?} were kept and not {victim} deleted");
    Ok(())
}
