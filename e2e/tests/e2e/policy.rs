//! The sample of `config/policy`: what templates of PodSets may have while it is installed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::root;
use e2e::scene::Scene;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// In a cluster of its own: the policy is for all namespaces.
pub async fn restricts_templates(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    let older = podset("older", json!({"hostNetwork": true}));
    kubectl.run_with(&["create", "-f", "-"], &older).await?;
    kubectl.run(&["apply", "-k", &root().join("config/policy").to_string_lossy()]).await?;
    let in_force = async {
        while kubectl
            .refused(&["create", "--dry-run=server", "-f", "-"], &podset("web", json!({"hostPID": true})))
            .await
            .is_err()
        {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(Duration::from_secs(60), in_force).await.context("the policy does not come into force")?;

    let volume =
        |source: &str, with: Value| json!({"volumes": [{"name": "ok", "emptyDir": {}}, {"name": "v", source: with}]});
    let container = |context: Value| json!([{"name": "x", "image": "x", "securityContext": context}]);
    for (bad, words) in [
        (json!({"hostNetwork": true}), "may not use the host's"),
        (json!({"hostPID": true}), "may not use the host's"),
        (json!({"hostIPC": true}), "may not use the host's"),
        (volume("hostPath", json!({"path": "/"})), "may not mount a path of the host"),
        (json!({"containers": container(json!({"privileged": true}))}), "may not have privileged containers"),
        (json!({"initContainers": container(json!({"privileged": true}))}), "may not have privileged containers"),
        (json!({"serviceAccountName": "admin"}), "may name these ServiceAccounts only: default"),
        (json!({"serviceAccount": "admin"}), "may name these ServiceAccounts only: default"),
        (json!({"nodeName": "node-1"}), "may not name a node"),
    ] {
        let refusal = kubectl.refused(&["create", "--dry-run=server", "-f", "-"], &podset("web", bad.clone())).await?;
        ensure!(refusal.contains(words), "{bad} is refused with other words than '{words}': {refusal}");
    }
    for good in [
        json!({}),
        json!({"hostNetwork": false, "serviceAccountName": "default"}),
        volume("emptyDir", json!({})),
        json!({"containers": container(json!({"privileged": false}))}),
    ] {
        kubectl.run_with(&["create", "--dry-run=server", "-f", "-"], &podset("web", good)).await?;
    }
    kubectl.run(&["apply", "-k", &root().join("config/samples").to_string_lossy(), "--dry-run=server"]).await?;

    // An older PodSet is not stuck: it can be scaled and deleted, and not be given another forbidden spec.
    kubectl.run(&["scale", "podset/older", "--replicas=3"]).await?;
    let refusal = kubectl
        .refused(&["patch", "podset/older", "--type=merge", "--patch", r#"{"spec":{"replicas":2}}"#], "")
        .await?;
    ensure!(refusal.contains("may not use the host's"), "an older set is refused with other words: {refusal}");
    kubectl
        .run(&["patch", "podset/older", "--type=merge", "--patch", r#"{"metadata":{"finalizers":["example.com/x"]}}"#])
        .await?;
    kubectl.run(&["delete", "podset/older", "--wait=false"]).await?;
    kubectl.run(&["patch", "podset/older", "--type=merge", "--patch", r#"{"metadata":{"finalizers":null}}"#]).await?;
    kubectl.run(&["wait", "podset/older", "--for=delete", "--timeout=60s"]).await.map(drop)
}

/// A PodSet whose template has these fields, and a container unless they name others.
fn podset(name: &str, fields: Value) -> String {
    let mut pod = json!({"containers": [{"name": "main", "image": "example.com/nothing"}]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        pod[field] = value.clone();
    }
    json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": name},
        "spec": {"template": {"spec": pod}}})
    .to_string()
}
