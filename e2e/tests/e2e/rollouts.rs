//! A changed template reaches the pods, step by step.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::sleep;

/// The conditions of a set whose template the API server rejects.
const INVALID: [(&str, &str); 3] =
    [("Ready", "False/InvalidTemplate"), ("Stalled", "True/InvalidTemplate"), ("ReplicaFailure", "True/FailedCreate")];

/// The conditions of a set whose rollout makes no progress.
const NO_PROGRESS: [(&str, &str); 2] =
    [("Ready", "False/ProgressDeadlineExceeded"), ("Stalled", "True/ProgressDeadlineExceeded")];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rollout_reaches_all_pods", reaches_all_pods),
        Scenario::new("rollout_of_a_broken_template", of_a_broken_template),
        Scenario::new("rollout_of_an_invalid_template", of_an_invalid_template),
        Scenario::new("rollout_on_delete", on_delete),
    ]
}

/// A template with the annotation `version`. If it is broken, its node selector matches no node.
pub fn template(version: &str, is_broken: bool) -> Value {
    let container = json!({"name": "main", "image": "quay.io/amacdona/strauss", "command": ["sleep", "3600"]});
    let nowhere = if is_broken { json!({"nowhere": "yes"}) } else { Value::Null };
    json!({"metadata": {"annotations": {"version": version}}, "spec": {"containers": [container], "nodeSelector": nowhere}})
}

pub async fn change_template(t: &Scene, version: &str, is_broken: bool) -> Result<()> {
    t.log(&format!("template {version}, broken: {is_broken}"));
    t.patch_set("web", json!({"spec": {"template": template(version, is_broken)}})).await
}

/// Waits until all pods have the template of the spec, and returns their names.
pub async fn rolled_out(t: &Scene, set: &str, pods: usize) -> Result<Vec<String>> {
    let wanted = t.sets().get(set).await?.metadata.generation;
    t.until(&format!("{pods} pods of the new template"), |seen| {
        if seen.set(set)?.metadata.generation != wanted {
            return Err("the new template is not seen".to_owned());
        }
        let live = seen.at_rest(set, pods)?;
        let status = seen.set(set)?.state();
        let is_done =
            status.updated_available_replicas == pods as i64 && status.current_revision == status.update_revision;
        if is_done { Ok(live) } else { Err(format!("{status:?}")) }
    })
    .await
}

/// The set has exactly so many ready pods. Returns their names.
fn ready(seen: &View, pods: usize) -> Seen<Vec<String>> {
    let ready: Vec<_> = seen.live("web")?.into_iter().filter(|pod| pod.is_ready()).map(|pod| pod.name_any()).collect();
    if ready.len() == pods { Ok(ready) } else { Err(format!("{ready:?} are ready")) }
}

/// All pods are replaced, though only an annotation changes. Each template is stored once.
async fn reaches_all_pods(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set_from("web", json!({"replicas": 4, "template": template("one", false)})).await?;
    let first = rolled_out(&t, "web", 4).await?;
    change_template(&t, "two", false).await?;
    let second = rolled_out(&t, "web", 4).await?;
    ensure!(second.iter().all(|pod| !first.contains(pod)), "{first:?} were to be replaced: {second:?}");
    t.has_events("web", &["ScaledUp", "RolloutStarted", "RolloutComplete"]).await?;
    let revisions = t.kubectl().run(&["get", "controllerrevisions", "--output=name"]).await?;
    ensure!(revisions.lines().count() == 2, "two templates are stored as {revisions}");
    Ok(())
}

/// No more than `maxUnavailable` pods are lost, a lost pod gets the former template, and the next template replaces all.
async fn of_a_broken_template(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    let strategy = json!({"rollingUpdate": {"maxUnavailable": "40%"}});
    let spec = json!({"replicas": 5, "template": template("one", false), "updateStrategy": strategy, "progressDeadlineSeconds": 5});
    t.create_set_from("web", spec).await?;
    let first = rolled_out(&t, "web", 5).await?;
    change_template(&t, "two", true).await?;
    t.until("a rollout that makes no progress", |seen| {
        seen.has_live("web", 5)?;
        seen.conditions("web", &NO_PROGRESS)
    })
    .await?;
    sleep(Duration::from_secs(15)).await; // it deletes no further pods
    let three = t.look(|seen| ready(seen, 3)).map_err(anyhow::Error::msg).context("2 of 5 pods may be unavailable")?;
    t.delete_pod(&three[0]).await?;
    t.goes(&three[0]).await?;
    t.until("three ready pods", |seen| ready(seen, 3)).await?;

    change_template(&t, "three", false).await?;
    let third = rolled_out(&t, "web", 5).await?;
    ensure!(third.iter().all(|pod| !first.contains(pod)), "{first:?} were to be replaced: {third:?}");
    Ok(())
}

/// A dry run finds the mistake before any pod is deleted.
async fn of_an_invalid_template(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set_from("web", json!({"replicas": 3, "template": template("one", false)})).await?;
    let first = rolled_out(&t, "web", 3).await?;
    let invalid = json!({"template": {"spec": {"restartPolicy": "Sometimes"}}});
    t.patch_set("web", json!({"spec": invalid})).await?;
    t.until("a set whose template is invalid", |seen| seen.conditions("web", &INVALID)).await?;
    let live = t.look(|seen| seen.has_live("web", 3));
    ensure!(live == Ok(first.clone()), "{first:?} were to stay: {live:?}");
    t.patch_set("web", json!({"spec": {"template": {"spec": {"restartPolicy": "Always"}}}})).await?;
    rolled_out(&t, "web", 3).await.map(drop)
}

/// With `OnDelete`, only new pods get a changed template. A scale-down first deletes pods that are not scheduled, and then those that became
/// ready last, if as many pods are on each node.
async fn on_delete(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    let mut one = template("one", false);
    one["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    t.create_set_from("web", json!({"template": one, "updateStrategy": {"type": "OnDelete"}})).await?;
    let oldest = t.settles("web", 1).await?;
    sleep(Duration::from_secs(2)).await; // the times of pods have whole seconds
    t.scale("web", 2).await?;
    let two = t.settles("web", 2).await?;
    change_template(&t, "two", true).await?;
    t.scale("web", 4).await?;
    t.until("two pods that are never ready", |seen| seen.has_live("web", 4)).await?;
    change_template(&t, "one", false).await?;
    sleep(Duration::from_secs(2)).await;
    t.scale("web", 5).await?;
    let three = t.until("a third ready pod", |seen| ready(seen, 3)).await?;
    for (replicas, stay) in [(3, three), (2, two), (1, oldest)] {
        t.scale("web", replicas).await?;
        let left = t.settles("web", replicas as usize).await?;
        ensure!(left == stay, "{stay:?} were to stay: {left:?}");
    }
    Ok(())
}
