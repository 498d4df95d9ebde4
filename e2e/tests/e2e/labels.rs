//! The label by which the operator watches its pods, taken away from one of them: the pod still counts.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use kube::ResourceExt;
use serde_json::json;

const LABEL: &str = "app.kubernetes.io/managed-by";

pub async fn taken_away_comes_back(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator()?;
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

/// While no operator runs, so that it never sees it happen; then there is more to do than to repair.
pub async fn taken_away_unseen(t: Arc<Scene>) -> Result<()> {
    let operator = t.operator()?;
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    operator.kill().await?;
    t.patch_pod(&pods[0], json!({"metadata": {"labels": {LABEL: null}}})).await?;
    let _operator = t.operator()?;
    t.scale("web", 4).await?;
    let four = t.until("one pod more", |seen| seen.at_rest("web", 4)).await?;
    ensure!(pods.iter().all(|pod| four.contains(pod)), "of {pods:?} there are now {four:?}");
    t.until("the label to come back", |seen| is_labelled(seen, &pods[0])).await
}

fn is_labelled(seen: &View, pod: &str) -> Seen {
    let labels = seen.pod(pod)?.labels();
    if labels.get(LABEL).is_some_and(|value| value == "podset-operator") {
        Ok(())
    } else {
        Err(format!("{pod} has {labels:?}"))
    }
}
