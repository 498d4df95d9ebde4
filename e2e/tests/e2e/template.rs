//! The pod template: for new pods only, checked by the API server, and the default that needs none.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

pub async fn is_for_new_pods(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set_from("web", json!({"replicas": 1, "template": template("one", "example.com/app:1")})).await?;
    let old = t.until("a pod of the first template", |seen| seen.at_rest("web", 1)).await?;
    looks_like(&t, &old[0], "one", "example.com/app:1").await?;
    let first = t.stored_pod(&old[0]).await?;

    t.patch_set("web", json!({"spec": {"template": template("two", "example.com/app:2")}})).await?;
    t.until("the new generation to be observed", |seen| seen.at_rest("web", 1)).await?;
    t.scale("web", 2).await?;
    let both = t.until("a second pod", |seen| seen.at_rest("web", 2)).await?;
    let new = both.iter().find(|name| **name != old[0]).expect("one of two names differs");
    looks_like(&t, new, "two", "example.com/app:2").await?;
    let still = t.stored_pod(&old[0]).await?;
    ensure!(still.uid() == first.uid() && still.labels() == first.labels(), "the running pod was touched");

    t.create_set_from("plain", json!({"replicas": 1, "template": {"metadata": {"labels": {"tier": "three"}}}})).await?;
    let plain = t.until("a pod of a template without a spec", |seen| seen.at_rest("plain", 1)).await?;
    looks_like(&t, &plain[0], "three", "quay.io/amacdona/strauss").await
}

fn template(tier: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"tier": tier}, "annotations": {"example.com/note": tier}},
        "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 7}
    })
}

async fn looks_like(t: &Scene, name: &str, tier: &str, image: &str) -> Result<()> {
    let pod = t.stored_pod(name).await?;
    let labels = json!(pod.labels());
    ensure!(labels["tier"] == tier && labels["version"] == "v0.1", "{name} has the labels {labels}");
    let spec = json!(pod.spec);
    ensure!(spec["containers"][0]["image"] == image, "{name} runs {}", spec["containers"]);
    Ok(())
}

/// By rules that the schema of a PodSet does not express.
pub async fn that_is_invalid_stalls(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let broken = [
        ("value", json!({"restartPolicy": "Sometimes", "containers": [{"name": "main", "image": "example.com/app"}]})),
        ("name", json!({"containers": [{"name": "Main", "image": "example.com/app"}]})),
        ("image", json!({"containers": [{"name": "main"}]})),
        ("containers", json!({"containers": []})),
    ];
    for (set, spec) in &broken {
        t.create_set_from(set, json!({"replicas": 2, "template": {"spec": spec}})).await?;
    }
    for (set, _) in &broken {
        t.until(&format!("the set with a wrong {set} to stall"), |seen| is_stalled(seen, set)).await?;
    }
    let words = t.look(|seen| seen.message("value", "Stalled")).map_err(anyhow::Error::msg)?;
    ensure!(words.contains("Sometimes"), "the condition Stalled does not say what is wrong: {words}");
    for (set, _) in &broken {
        t.until(&format!("one event about the set with a wrong {set}"), |seen| {
            let told = seen.events_about(set);
            if told.len() == 1 && told[0].starts_with("FailedCreate") { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await?;
        t.patch_set(set, json!({"spec": {"template": null}})).await?;
        let at_once = Duration::from_secs(15);
        t.within(at_once, "the corrected set to recover at once", |seen| seen.at_rest(set, 2)).await?;
    }
    Ok(())
}

fn is_stalled(seen: &View, set: &str) -> Seen {
    seen.has_live(set, 0)?;
    let expected = [
        ("Ready", "False/InvalidTemplate"),
        ("Stalled", "True/InvalidTemplate"),
        ("ReplicaFailure", "True/FailedCreate"),
    ];
    seen.conditions(set, &expected)?;
    seen.status_is_right(set)
}

pub async fn under_pod_security(t: Arc<Scene>) -> Result<()> {
    let restricted = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(t.client());
    namespaces.patch(t.namespace(), &PatchParams::default(), &Patch::Merge(restricted)).await?;
    let _operator = t.operator().await?;
    t.create_set("default", 2).await?;
    t.until("default pods in a restricted namespace", |seen| seen.at_rest("default", 2)).await?;

    let root = json!({"replicas": 2, "template": {"spec": {"containers": [
        {"name": "main", "image": "example.com/app", "securityContext": {"privileged": true}}]}}});
    t.create_set_from("root", root).await?;
    t.until("the refusal of a privileged pod", |seen| {
        seen.has_live("root", 0)?;
        let retried = [
            ("Ready", "False/PodsNotReady"),
            ("Reconciling", "True/Retrying"),
            ("ReplicaFailure", "True/FailedCreate"),
        ];
        seen.conditions("root", &retried)
    })
    .await?;
    let words = t.look(|seen| seen.message("root", "ReplicaFailure")).map_err(anyhow::Error::msg)?;
    ensure!(words.contains("violates PodSecurity") && words.contains("privileged"), "the condition says: {words}");
    Ok(())
}
