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

/// By the schema of a pod's spec, and what kubectl shows of it.
pub async fn of_a_template(t: Arc<Scene>) -> Result<()> {
    let main = |rest: Value| {
        let mut main = json!({"name": "main", "image": "example.com/app"});
        main.as_object_mut().expect("an object").extend(rest.as_object().cloned().unwrap_or_default());
        json!({"containers": [main]})
    };
    let probe = json!({"livenessProbe": {"httpGet": {"port": "http"}, "periodSecond": 3}});
    let twice = json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]});
    for (spec, words) in [
        (json!({"kontainers": []}), r#"unknown field "spec.template.spec.kontainers""#),
        (main(probe), r#"unknown field "spec.template.spec.containers[0].livenessProbe.periodSecond""#),
        (
            main(json!({"ephemeralContainers": []})),
            r#"unknown field "spec.template.spec.containers[0].ephemeralContainers""#,
        ),
        (json!({"containers": "none"}), r#"spec.template.spec.containers: Invalid value: "string""#),
        (main(json!({"tty": "yes"})), r#"spec.template.spec.containers[0].tty: Invalid value: "string""#),
        (json!({"hostname": "web"}), "spec.template.spec.containers: Required value"),
        (main(twice), "spec.template.spec.containers[0].env[1]: Duplicate value"),
    ] {
        refused(&t, &podset("web", json!({"template": {"spec": spec}})), words).await?;
    }
    let named = json!({"template": {"metadata": {"generateName": "web"}}});
    refused(&t, &podset("web", named), r#"unknown field "spec.template.metadata.generateName""#).await?;
    ends_after(&t, 0, "TerminationStarted", None).await?;
    ends_after(&t, 1, "TerminationComplete", None).await?;
    let path = "spec.template.spec.terminationGracePeriodSeconds: Invalid value";
    for words in [path, "terminationGracePeriodSeconds to at least 1, or leave it out"] {
        ends_after(&t, 0, "TerminationComplete", Some(words)).await?;
    }

    let kubectl = t.kubectl();
    for (field, words) in [("", "terminationGracePeriodSeconds"), (".containers.livenessProbe", "periodSeconds")] {
        let explained = kubectl.run(&["explain", &format!("podset.spec.template.spec{field}")]).await?;
        ensure!(explained.contains(words), "kubectl explains the template's spec{field} as {explained}");
    }

    // Two managers of one list: each keeps its own items.
    for (manager, variable) in [("one", "A"), ("two", "B")] {
        let spec = main(json!({"env": [{"name": variable, "value": manager}], "ports": [{"containerPort": 80}]}));
        let manifest = podset("shared", json!({"template": {"spec": spec}}));
        let arguments = ["apply", "--server-side", "--field-manager", manager, "-f", "-"];
        kubectl.run_with(&arguments, &manifest).await?;
    }
    let shared: Value = serde_json::from_str(&kubectl.run(&["get", "podset", "shared", "--output=json"]).await?)?;
    let containers = &shared["spec"]["template"]["spec"]["containers"];
    ensure!(containers[0]["env"].as_array().map(Vec::len) == Some(2), "of two managers' lists stayed {containers}");
    ensure!(containers[0]["ports"] == json!([{"containerPort": 80, "protocol": "TCP"}]), "the ports are {containers}");
    Ok(())
}

/// A set whose pods have a grace period of so many seconds is accepted, or refused in these words.
async fn ends_after(t: &Scene, seconds: i64, policy: &str, words: Option<&str>) -> Result<()> {
    let spec =
        json!({"terminationGracePeriodSeconds": seconds, "containers": [{"name": "main", "image": "example.com/app"}]});
    let manifest = podset("web", json!({"podReplacementPolicy": policy, "template": {"spec": spec}}));
    match words {
        Some(words) => refused(t, &manifest, words).await,
        None => accepted(t, &manifest).await,
    }
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
