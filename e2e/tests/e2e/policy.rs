//! Policies: the sample of `config/policy` restricts the templates of PodSets, and Pod Security the pods.

use std::sync::Arc;

use anyhow::{Context, Result};
use e2e::cluster::Wanted;
use e2e::process::eventually;
use e2e::root;
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;
use e2e::types::podset;
use serde_json::{Value, json};

use crate::rejections::{accepted, rejected};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        // The policy applies to all namespaces.
        Scenario::new("policy_restricts_templates", restricts_templates).in_own_cluster(Wanted::default()),
        Scenario::new("policy_of_pod_security", of_pod_security),
    ]
}

/// The default pods comply with the profile restricted.
async fn of_pod_security(t: Arc<Scene>) -> Result<()> {
    let label = "pod-security.kubernetes.io/enforce=restricted";
    t.kubectl().run(&["label", "namespace", &t.namespace, label]).await?;
    let (kubectl, run) = (t.kubectl(), ["run", "x", "--image=x", "--dry-run=server"]);
    let rejection = async || kubectl.rejected(&run, "").await?.find("violates PodSecurity").context("another error");
    eventually("the policy", PATIENCE, rejection).await?;
    t.operator().await?;
    t.create_set("web", 2).await?;
    t.settles("web", 2).await.map(drop)
}

async fn restricts_templates(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    t.post(podset_of("older", json!({"hostNetwork": true}))).await?;
    kubectl.run(&["apply", "-k", &root().join("config/policy").to_string_lossy()]).await?;
    let forbidden = podset_of("web", json!({"hostPID": true}));
    let is_rejected = || rejected(&t, &forbidden, "may not use the host's");
    eventually("the policy to come into force", PATIENCE, is_rejected).await?;

    let volume = |source: &str, with: Value| json!({"volumes": [{"name": "v", source: with}]});
    let privileged = |is| json!([{"name": "x", "image": "x", "securityContext": {"privileged": is}}]);
    for (bad, words) in [
        (json!({"hostNetwork": true}), "may not use the host's"),
        (volume("hostPath", json!({"path": "/"})), "may not mount a path of the host"),
        (json!({"containers": privileged(true)}), "may not have privileged containers"),
        (json!({"initContainers": privileged(true)}), "may not have privileged containers"),
        (json!({"serviceAccountName": "admin"}), "may name these ServiceAccounts only: default"),
        (json!({"nodeName": "node-1"}), "may not name a node"),
    ] {
        rejected(&t, &podset_of("web", bad), words).await?;
    }
    for good in [json!({"serviceAccountName": "default"}), volume("emptyDir", json!({}))] {
        accepted(&t, &podset_of("web", good)).await?;
    }
    // An older PodSet can be scaled and deleted.
    kubectl.run(&["scale", "podset/older", "--replicas=3"]).await?;
    kubectl.run(&["delete", "podset/older", "--timeout=60s"]).await.map(drop)
}

/// A PodSet whose template has these fields, and a container unless they have others.
fn podset_of(name: &str, mut pod: Value) -> Value {
    if pod["containers"].is_null() {
        pod["containers"] = json!([{"name": "main", "image": "example.com/nothing"}]);
    }
    podset(name, json!({"template": {"spec": pod}}))
}
