//! The label by which the operator watches its pods, taken away from one of them: the pod still counts.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use kube::ResourceExt;
use serde_json::json;

const LABEL: &str = "app.kubernetes.io/managed-by";

pub async fn taken_away_comes_back(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    for pod in &pods[..2] {
        t.patch_pod(pod, json!({"metadata": {"labels": {LABEL: null}}})).await?;
        t.until("the label to come back", |seen| is_labelled(seen, pod)).await?;
    }
    let same = t.until("the same 3 pods", |seen| seen.at_rest("web", 3)).await?;
    ensure!(same == pods, "of {pods:?} there are now {same:?}");
    t.scale("web", 1).await?;
    let one = t.until("1 pod", |seen| seen.at_rest("web", 1)).await?;
    ensure!(pods.contains(&one[0]), "of {pods:?} there is now {one:?}");
    Ok(())
}

/// While no operator runs, so that the next one does not find it by the label; and there is more to do than to repair:
/// one of three pods is too many, whether it carries the label or not.
pub async fn taken_away_unseen(t: Arc<Scene>) -> Result<()> {
    let operator = t.operator().await?;
    t.create_set("web", 3).await?;
    let three = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    operator.kill().await?;
    for pod in &three[..2] {
        t.patch_pod(pod, json!({"metadata": {"labels": {LABEL: null}}})).await?;
    }
    t.scale("web", 2).await?;
    let _operator = t.operator().await?;
    let two = t.until("2 pods", |seen| seen.at_rest("web", 2)).await?;
    ensure!(two.iter().all(|pod| three.contains(pod)), "of {three:?} there are now {two:?}");
    t.until("the label to come back", |seen| two.iter().try_for_each(|pod| is_labelled(seen, pod))).await
}

fn is_labelled(seen: &View, pod: &str) -> Seen {
    let labels = seen.pod(pod)?.labels();
    if labels.get(LABEL).is_some_and(|value| value == "podset-operator") {
        Ok(())
    } else {
        Err(format!("{pod} has {labels:?}"))
    }
}
