//! What the API server rejects by the rules of the CRDs, in the words that a user reads.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use e2e::types::podset;
use serde_json::{Value, json};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rejections_of_a_podset", of_a_podset),
        Scenario::new("rejections_of_a_template", of_a_template),
        Scenario::new("rejections_of_a_mycustomresource", of_a_mycustomresource),
    ]
}

async fn of_a_podset(t: Arc<Scene>) -> Result<()> {
    for (replicas, words) in [(0, "to keep none, delete the PodSet"), (11, "to keep more, create another PodSet")] {
        rejected(&t, &podset("web", json!({"replicas": replicas})), words).await?;
    }
    rejected(&t, &podset(&"a".repeat(64), json!({})), "may have at most 63 characters").await?;
    accepted(&t, &podset(&"a".repeat(63), json!({}))).await?;
    for (label, value) in [("app", "other"), ("version", "v2"), ("app.kubernetes.io/managed-by", "Helm")] {
        let other = podset("web", json!({"template": {"metadata": {"labels": {label: value}}}}));
        rejected(&t, &other, &format!("the operator sets the label {label} on the pods")).await?;
    }
    let same = json!({"app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator", "tier": "x"});
    accepted(&t, &podset("web", json!({"template": {"metadata": {"labels": same}}}))).await?;

    t.create_set_from("default", json!({})).await?;
    let default = t.sets().get("default").await?;
    ensure!(default.spec.replicas == 1, "the default of spec.replicas is {}", default.spec.replicas);
    Ok(())
}

/// The CRD has the whole schema of a pod's spec, so kubectl explains it, and server-side apply merges its lists.
async fn of_a_template(t: Arc<Scene>) -> Result<()> {
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
        (main(json!({"tty": "yes"})), r#"spec.template.spec.containers[0].tty: Invalid value: "string""#),
        (json!({"hostname": "web"}), "spec.template.spec.containers: Required value"),
        (main(twice), "spec.template.spec.containers[0].env[1]: Duplicate value"),
    ] {
        rejected(&t, &podset("web", json!({"template": {"spec": spec}})), words).await?;
    }
    let named = json!({"template": {"metadata": {"generateName": "web"}}});
    rejected(&t, &podset("web", named), r#"unknown field "spec.template.metadata.generateName""#).await?;
    let ends_after = |seconds, policy| {
        let mut spec = main(json!({}));
        spec["terminationGracePeriodSeconds"] = json!(seconds);
        podset("web", json!({"podReplacementPolicy": policy, "template": {"spec": spec}}))
    };
    accepted(&t, &ends_after(0, "TerminationStarted")).await?;
    accepted(&t, &ends_after(1, "TerminationComplete")).await?;
    let words = "terminationGracePeriodSeconds to at least 1, or leave it out";
    rejected(&t, &ends_after(0, "TerminationComplete"), words).await?;

    let kubectl = t.kubectl();
    let explained = kubectl.run(&["explain", "podset.spec.template.spec.containers.livenessProbe"]).await?;
    ensure!(explained.contains("periodSeconds"), "kubectl explains a field of the template as {explained}");

    // Two managers of one list: each keeps its own items.
    for (manager, variable) in [("one", "A"), ("two", "B")] {
        let spec = main(json!({"env": [{"name": variable, "value": manager}], "ports": [{"containerPort": 80}]}));
        let manifest = podset("shared", json!({"template": {"spec": spec}}));
        let arguments = ["apply", "--server-side", "--field-manager", manager, "-f", "-"];
        kubectl.run_with(&arguments, &manifest.to_string()).await?;
    }
    let shared: Value = serde_json::from_str(&kubectl.run(&["get", "podset", "shared", "--output=json"]).await?)?;
    let containers = &shared["spec"]["template"]["spec"]["containers"];
    ensure!(containers[0]["env"].as_array().map(Vec::len) == Some(2), "the lists of two managers became {containers}");
    ensure!(containers[0]["ports"] == json!([{"containerPort": 80, "protocol": "TCP"}]), "the ports are {containers}");
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

/// Fails unless the API server rejects this object in these words.
pub async fn rejected(t: &Scene, manifest: &Value, words: &str) -> Result<()> {
    let create = ["create", "--dry-run=server", "-f", "-"];
    let rejection = t.kubectl().rejected(&create, &manifest.to_string()).await?;
    ensure!(rejection.contains(words), "{manifest} is rejected with another message than '{words}': {rejection}");
    Ok(())
}

/// Fails unless the API server would create this object.
pub async fn accepted(t: &Scene, manifest: &Value) -> Result<()> {
    t.kubectl().run_with(&["create", "--dry-run=server", "-f", "-"], &manifest.to_string()).await.map(drop)
}
