//! Pods of others that look like those of a set: never counted, never changed, never deleted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::audit::Requests;
use e2e::kubectl::Kubectl;
use e2e::scene::Scene;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::time::sleep;

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

/// A pod of another namespace is Ready and then says that it belongs to the set. The garbage collector deletes it some time later.
pub async fn pods_claim_a_set_of_another_namespace(t: Arc<Scene>) -> Result<()> {
    let elsewhere = t.other_namespace("claims").await?;
    let _operator = t.operator_for(&[t.namespace(), &elsewhere]).await?;
    t.create_set("web", 3).await?;
    let own = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    let uid = t.look(|seen| seen.set("web").map(|set| set.uid())).map_err(anyhow::Error::msg)?;
    let owner = json!([{
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web", "uid": uid, "controller": true
    }]);
    let labels = json!({"app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator"});
    let kubectl = Kubectl::new(t.cluster(), &elsewhere);
    for claim in ["first", "second", "third"] {
        t.create_pod(&elsewhere, claim, labels.clone()).await?;
        kubectl.run(&["wait", "pod", claim, "--for=condition=Ready", "--timeout=60s"]).await?;
        // Any other pod is deleted before it.
        let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": "100"});
        let metadata = json!({"annotations": annotations, "ownerReferences": owner});
        kubectl
            .run(&["patch", "pod", claim, "--type=merge", "--patch", &json!({"metadata": metadata}).to_string()])
            .await?;
        t.tell(&format!("{claim} claims the set"));
        sleep(Duration::from_secs(2)).await;
        let now = t.look(|seen| seen.at_rest("web", 3)).map_err(anyhow::Error::msg)?;
        ensure!(now == own, "the set had {own:?} before another pod claimed it, and has {now:?}");
    }
    t.scale("web", 4).await?;
    let four = t.until("4 pods beside the claims", |seen| seen.at_rest("web", 4)).await?;
    ensure!(own.iter().all(|pod| four.contains(pod)), "the set had {own:?} and has {four:?}");
    kubectl.run(&["delete", "pods", "--all", "--timeout=60s"]).await?;
    sleep(Duration::from_secs(2)).await;
    let now = t.look(|seen| seen.at_rest("web", 4)).map_err(anyhow::Error::msg)?;
    ensure!(now == four, "the set had {four:?} while pods claimed it, and has {now:?}");
    let asked = Requests::read(t.cluster().audit_log()?, &elsewhere)?.but_watches();
    let writes: Vec<_> = asked.iter().filter(|request| !request.contains("list ")).collect();
    ensure!(writes.is_empty(), "the operator touched the claims: {writes:#?}");
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
