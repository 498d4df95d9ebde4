//! The pod template: with OnDelete it is for new pods only, and the API server checks it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::cluster::needs::Need::*;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use kube::ResourceExt;
use serde_json::json;

/// The conditions of a set whose template the API server rejects.
pub const INVALID: [(&str, &str); 3] =
    [("Ready", "False/InvalidTemplate"), ("Stalled", "True/InvalidTemplate"), ("ReplicaFailure", "True/FailedCreate")];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        // Its images do not exist.
        Scenario::new("template_is_for_new_pods", is_for_new_pods).needs(&[SimulatedPods]),
        Scenario::new("template_that_is_invalid_stalls", that_is_invalid_stalls),
        Scenario::new("template_under_pod_security", under_pod_security),
    ]
}

async fn is_for_new_pods(t: Arc<Scene>) -> Result<()> {
    let template = |tier| {
        json!({"metadata": {"labels": {"tier": tier}},
            "spec": {"containers": [{"name": "main", "image": format!("example.com/{tier}")}]}})
    };
    let _operator = t.operator().await?;
    let on_delete = json!({"type": "OnDelete"});
    t.create_set_from("web", json!({"replicas": 1, "template": template("one"), "updateStrategy": on_delete})).await?;
    let old = t.settles("web", 1).await?;
    looks_like(&t, &old[0], "one", "example.com/one").await?;
    let uid = t.stored_pod(&old[0]).await?.uid();
    t.patch_set("web", json!({"spec": {"replicas": 2, "template": template("two")}})).await?;
    for pod in t.settles("web", 2).await? {
        let tier = if pod == old[0] { "one" } else { "two" };
        looks_like(&t, &pod, tier, &format!("example.com/{tier}")).await?;
    }
    ensure!(t.stored_pod(&old[0]).await?.uid() == uid, "the running pod was replaced");

    t.create_set_from("plain", json!({"replicas": 1, "template": {"metadata": {"labels": {"tier": "three"}}}})).await?;
    let plain = t.settles("plain", 1).await?;
    looks_like(&t, &plain[0], "three", "quay.io/amacdona/strauss").await
}

async fn looks_like(t: &Scene, name: &str, tier: &str, image: &str) -> Result<()> {
    let pod = t.stored_pod(name).await?;
    let (labels, spec) = (json!(pod.labels()), json!(pod.spec));
    ensure!(labels["tier"] == tier && labels["version"] == "v0.1", "{name} has the labels {labels}");
    ensure!(spec["containers"][0]["image"] == image, "{name} runs {}", spec["containers"]);
    Ok(())
}

/// By a rule that the schema of a PodSet does not have. The API server rejects the pods, and the operator waits for a correction.
async fn that_is_invalid_stalls(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let spec = json!({"restartPolicy": "Sometimes", "containers": [{"name": "main", "image": "example.com/app"}]});
    t.create_set_from("web", json!({"replicas": 2, "template": {"spec": spec}})).await?;
    t.until("the set to stall", |seen| {
        seen.has_live("web", 0)?;
        seen.conditions("web", &INVALID)
    })
    .await?;
    t.patch_set("web", json!({"spec": {"template": null}})).await?;
    t.settles("web", 2).await.map(drop)
}

/// The default pods comply with the profile restricted.
async fn under_pod_security(t: Arc<Scene>) -> Result<()> {
    let label = "pod-security.kubernetes.io/enforce=restricted";
    t.kubectl().run(&["label", "namespace", t.namespace(), label]).await?;
    let _operator = t.operator().await?;
    t.create_set("web", 2).await?;
    t.settles("web", 2).await.map(drop)
}
