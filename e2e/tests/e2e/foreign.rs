//! Pods of others that look like those of a set: never counted, never changed, never deleted.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::scene::Scene;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::json;

pub async fn pods_are_left_alone(t: Arc<Scene>) -> Result<()> {
    let labels = json!({"app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator"});
    t.create_pod(t.namespace(), "nobodys", labels.clone()).await?;
    let _operator = t.operator().await?;
    t.create_set("web", 3).await?;
    t.until("3 pods beside that of nobody's", |seen| seen.at_rest("web", 3)).await?;

    // Owned by another object, and one that says it is a PodSet of that name.
    let maps: Api<ConfigMap> = Api::namespaced(t.client(), t.namespace());
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owner"}}))?;
    let owner = maps.create(&PostParams::default(), &map).await?.uid().context("a ConfigMap without a UID")?;
    let owned: Pod = serde_json::from_value(json!({
        "metadata": {"name": "anothers", "labels": labels, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner, "controller": true}]},
        "spec": {"containers": [{"name": "main", "image": "example.com/nothing"}]}
    }))?;
    Api::<Pod>::namespaced(t.client(), t.namespace()).create(&PostParams::default(), &owned).await?;
    let before = [looks(&t, "nobodys").await?, looks(&t, "anothers").await?];

    t.scale("web", 1).await?;
    t.until("1 pod beside those of others", |seen| seen.at_rest("web", 1)).await?;
    t.scale("web", 4).await?;
    t.until("4 pods beside those of others", |seen| seen.at_rest("web", 4)).await?;
    t.delete_set("web").await?;
    t.until("the set's pods to go", |seen| {
        let left: Vec<_> = seen.pods.all().map(|pod| pod.name_any()).collect();
        if left.len() == 2 { Ok(()) } else { Err(format!("{left:?} are there")) }
    })
    .await?;
    let after = [looks(&t, "nobodys").await?, looks(&t, "anothers").await?];
    ensure!(before == after, "the pods of others were touched: they were\n{before:#?}\nand are\n{after:#?}");
    Ok(())
}

/// What nobody but the operator would change.
async fn looks(t: &Scene, pod: &str) -> Result<serde_json::Value> {
    let metadata = t.stored_pod(pod).await?.metadata;
    Ok(json!([
        metadata.uid,
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
        metadata.deletion_timestamp
    ]))
}
