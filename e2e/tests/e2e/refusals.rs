//! What the API server refuses by the rules of the CRDs, in the words that a user reads.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use serde_json::{Value, json};

pub async fn of_a_podset(t: Arc<Scene>) -> Result<()> {
    for (replicas, words) in [
        (0, "spec.replicas in body should be greater than or equal to 1"),
        (-1, "spec.replicas in body should be greater than or equal to 1"),
        (11, "spec.replicas in body should be less than or equal to 10"),
        (0, "to keep none, delete the PodSet"),
        (11, "to keep more, create another PodSet"),
    ] {
        refused(&t, &podset("web", json!({"replicas": replicas})), words).await?;
    }
    refused(&t, &podset(&"a".repeat(64), json!({})), "may have at most 63 characters").await?;
    refused(&t, &podset(&"a".repeat(64), json!({})), "metadata.name: Invalid value").await?;
    accepted(&t, &podset(&"a".repeat(63), json!({}))).await?;
    for (label, value) in [("app", "other"), ("version", "v2"), ("app.kubernetes.io/managed-by", "Helm")] {
        let contradiction = json!({"template": {"metadata": {"labels": {label: value}}}});
        let contradiction = podset("web", contradiction);
        refused(&t, &contradiction, &format!("the label {label} belongs to the set")).await?;
        refused(&t, &contradiction, "spec.template.metadata.labels: Invalid value").await?;
    }
    let repeats =
        json!({"app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator", "tier": "x"});
    accepted(&t, &podset("web", json!({"template": {"metadata": {"labels": repeats}}}))).await?;

    t.kubectl().run_with(&["apply", "-f", "-"], &podset("default", json!({}))).await?;
    let default = t.sets().get("default").await?;
    ensure!(default.spec.replicas == 1, "without spec.replicas it is {}", default.spec.replicas);
    Ok(())
}

pub async fn of_a_mycustomresource(t: Arc<Scene>) -> Result<()> {
    refused(&t, &seeker(json!({})), "spec.name: Required value").await?;
    for name in ["", "Funny-Joe", "funny_joe", "-joe", "joe-", "funny..joe", "funny joe"] {
        refused(&t, &seeker(json!({"name": name})), "the friend's name must be the name of a pod").await?;
    }
    refused(&t, &seeker(json!({"name": "a".repeat(254)})), "may not be more than 253").await?;
    for name in ["j", "funny-joe", "funny.joe", "0", &"a".repeat(253)] {
        accepted(&t, &seeker(json!({"name": name}))).await?;
    }
    Ok(())
}

fn podset(name: &str, spec: Value) -> String {
    json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

fn seeker(spec: Value) -> String {
    json!({"apiVersion": "poc.test.domain/v1", "kind": "MyCustomResource", "metadata": {"name": "seeker"}, "spec": spec})
        .to_string()
}

async fn refused(t: &Scene, manifest: &str, words: &str) -> Result<()> {
    let refusal = t.kubectl().refused(&["create", "--dry-run=server", "-f", "-"], manifest).await?;
    ensure!(refusal.contains(words), "{manifest} is refused with other words than '{words}': {refusal}");
    Ok(())
}

async fn accepted(t: &Scene, manifest: &str) -> Result<()> {
    t.kubectl().run_with(&["create", "--dry-run=server", "-f", "-"], manifest).await.map(drop)
}
