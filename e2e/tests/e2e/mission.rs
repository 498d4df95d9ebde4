//! The three stories that the operator exists for: a set is scaled up, scaled down, and deleted.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("scale_up", scale_up),
        Scenario::new("scale_down", scale_down),
        Scenario::new("deletion_in_the_background", deletion),
    ]
}

/// The sample gets its three pods, then seven more. The first three stay.
async fn scale_up(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.apply_sample("app_v1alpha1_podset.yaml").await?;
    let three = t.settles("podset-sample", 3).await?;
    for pod in &three {
        is_a_pod_of_the_sample(&t.stored_pod(pod).await?)?;
    }
    t.scale("podset-sample", 10).await?;
    let ten = t.settles("podset-sample", 10).await?;
    ensure!(three.iter().all(|pod| ten.contains(pod)), "scaling {three:?} up made {ten:?}: pods were replaced");
    t.has_events("podset-sample", &["ScaledUp", "ScaledUp"]).await
}

/// Three of the ten pods remain, and none of them is new.
async fn scale_down(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set("web", 10).await?;
    t.settles("web", 10).await?;
    let uids: Vec<_> = t.look(|seen| seen.pods.all().map(|pod| pod.uid()).collect());
    t.scale("web", 3).await?;
    for pod in t.settles("web", 3).await? {
        ensure!(uids.contains(&t.stored_pod(&pod).await?.uid()), "{pod} is a new pod");
    }
    t.has_events("web", &["ScaledUp", "ScaledDown"]).await
}

/// The garbage collector deletes the pods of a deleted set, and the operator creates no others.
async fn deletion(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set("web", 3).await?;
    t.settles("web", 3).await?;
    t.delete_set("web").await?;
    t.until("no set and no pod", |seen| match (seen.set("web"), seen.pods.all().count()) {
        (Err(_), 0) => Ok(()),
        (set, pods) => Err(format!("{pods} pods; the set is there: {}", set.is_ok())),
    })
    .await?;
    t.has_events("web", &["ScaledUp"]).await
}

fn is_a_pod_of_the_sample(pod: &Pod) -> Result<()> {
    let (name, owner, spec) = (pod.name_any(), json!(pod.metadata.owner_references), json!(pod.spec));
    let labels = json!({"app": "podset-sample", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator",
        "controller-revision-hash": pod.labels().get("controller-revision-hash")});
    ensure!(json!(pod.labels()) == labels, "{name} has the labels {:?}", pod.labels());
    let expected = json!([{"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "podset-sample",
        "controller": true, "blockOwnerDeletion": true, "uid": owner[0]["uid"]}]);
    ensure!(owner == expected, "{name} has the owners {owner}");
    ensure!(pod.finalizers().is_empty(), "{name} has a finalizer");
    let container = &spec["containers"][0];
    ensure!(container["image"] == "quay.io/amacdona/strauss", "{name} runs {container}");
    ensure!(container["command"] == json!(["sleep", "3600"]), "{name} runs {container}");
    Ok(())
}
