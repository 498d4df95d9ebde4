//! What the API server rejects by the rules of the CRDs, in the words that a user reads.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::{Value, json};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rejections_of_a_podset", of_a_podset),
        Scenario::new("rejections_of_a_mycustomresource", of_a_mycustomresource),
    ]
}

async fn of_a_podset(t: Arc<Scene>) -> Result<()> {
    for (replicas, words) in [
        (0, "spec.replicas in body should be greater than or equal to 1"),
        (11, "spec.replicas in body should be less than or equal to 10"),
        (0, "to keep none, delete the PodSet"),
        (11, "to keep more, create another PodSet"),
    ] {
        rejected(&t, &podset("web", json!({"replicas": replicas})), words).await?;
    }
    rejected(&t, &podset(&"a".repeat(64), json!({})), "may have at most 63 characters").await?;
    accepted(&t, &podset(&"a".repeat(63), json!({}))).await?;
    for (label, value) in [("app", "other"), ("version", "v2"), ("app.kubernetes.io/managed-by", "Helm")] {
        let other = podset("web", json!({"template": {"metadata": {"labels": {label: value}}}}));
        rejected(&t, &other, &format!("the label {label} belongs to the set")).await?;
    }
    let same = json!({"app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator", "tier": "x"});
    accepted(&t, &podset("web", json!({"template": {"metadata": {"labels": same}}}))).await?;

    t.create_set_from("default", json!({})).await?;
    let default = t.sets().get("default").await?;
    ensure!(default.spec.replicas == 1, "the default of spec.replicas is {}", default.spec.replicas);
    Ok(())
}

async fn of_a_mycustomresource(t: Arc<Scene>) -> Result<()> {
    let seeker = |spec| json!({"apiVersion": "poc.test.domain/v1", "kind": "MyCustomResource", "metadata": {"name": "seeker"}, "spec": spec});
    rejected(&t, &seeker(json!({})), "spec.name: Required value").await?;
    for name in ["", "Funny-Joe", "funny_joe", "-joe", "funny..joe"] {
        rejected(&t, &seeker(json!({"name": name})), "the friend's name must be the name of a pod").await?;
    }
    rejected(&t, &seeker(json!({"name": "a".repeat(254)})), "may not be more than 253").await?;
    for name in ["j", "funny-joe", "funny.joe", &"a".repeat(253)] {
        accepted(&t, &seeker(json!({"name": name}))).await?;
    }
    Ok(())
}

fn podset(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": name}, "spec": spec})
}

async fn rejected(t: &Scene, manifest: &Value, words: &str) -> Result<()> {
    let create = ["create", "--dry-run=server", "-f", "-"];
    let rejection = t.kubectl().rejected(&create, &manifest.to_string()).await?;
    ensure!(rejection.contains(words), "{manifest} is rejected with other words than '{words}': {rejection}");
    Ok(())
}

async fn accepted(t: &Scene, manifest: &Value) -> Result<()> {
    t.kubectl().run_with(&["create", "--dry-run=server", "-f", "-"], &manifest.to_string()).await.map(drop)
}
