//! Pods of others that look like pods of a set are never counted, changed or deleted.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("foreign_pods_are_left_alone", pods_are_left_alone)]
}

async fn pods_are_left_alone(t: Arc<Scene>) -> Result<()> {
    let labels = json!({"app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator"});
    t.create_pod(t.namespace(), "without-owner", labels.clone()).await?;
    t.create_pod(t.namespace(), "of-another", labels).await?;
    let maps: Api<ConfigMap> = Api::namespaced(t.client(), t.namespace());
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owner"}}))?;
    let uid = maps.create(&PostParams::default(), &map).await?.uid().context("a ConfigMap without a UID")?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true});
    t.patch_pod("of-another", json!({"metadata": {"ownerReferences": [owner]}})).await?;
    let before = [metadata(&t, "without-owner").await?, metadata(&t, "of-another").await?];

    let _operator = t.operator().await?;
    t.create_set("web", 3).await?;
    for replicas in [3, 1, 4] {
        t.scale("web", replicas).await?;
        t.settles("web", replicas as usize).await?;
    }
    t.delete_set("web").await?;
    t.until("the set's pods to go", |seen| match seen.pods.all().count() {
        2 => Ok(()),
        pods => Err(format!("{pods} pods are there")),
    })
    .await?;
    let after = [metadata(&t, "without-owner").await?, metadata(&t, "of-another").await?];
    ensure!(before == after, "foreign pods were changed: they were\n{before:#?}\nand are\n{after:#?}");
    Ok(())
}

/// What only the operator would change.
async fn metadata(t: &Scene, pod: &str) -> Result<Value> {
    let it = t.stored_pod(pod).await?.metadata;
    Ok(json!([it.uid, it.labels, it.annotations, it.owner_references, it.deletion_timestamp]))
}
