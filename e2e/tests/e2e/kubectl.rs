//! kubectl's own view: `scale`, `get`, `wait`, `apply -k`, and the scale subresource as an autoscaler reads it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::kubectl::Kubectl;
use e2e::operator::relative;
use e2e::rights;
use e2e::root;
use e2e::scene::Scene;
use serde_json::{Value, json};

pub async fn scales_and_shows(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let kubectl = t.kubectl();
    t.create_set("web", 2).await?;
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=90s", "podset/web"]).await?;
    kubectl.run(&["scale", "podset/web", "--replicas=4"]).await?;
    t.until("4 pods by kubectl scale", |seen| seen.at_rest("web", 4)).await?;
    for (replicas, words) in [("0", "greater than or equal to 1"), ("11", "less than or equal to 10")] {
        let refusal = kubectl.refused(&["scale", "podset/web", "--replicas", replicas], "").await?;
        ensure!(refusal.contains(words), "scaling to {replicas} is refused with other words: {refusal}");
    }

    let table = kubectl.run(&["get", "pset"]).await?;
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (head, row) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
    ensure!(head == ["NAME", "DESIRED", "CURRENT", "READY", "STATUS", "AGE"], "kubectl get pset shows\n{table}");
    ensure!(row.len() == 6 && row[..5] == ["web", "4", "4", "4", "AllPodsReady"], "kubectl get pset shows\n{table}");
    let all = kubectl.run(&["get", "all"]).await?;
    ensure!(all.contains("podset.app.example.com/web"), "kubectl get all does not show the set:\n{all}");

    let path = format!("/apis/app.example.com/v1alpha1/namespaces/{}/podsets/web/scale", t.namespace());
    let scale: Value = serde_json::from_str(&kubectl.run(&["get", "--raw", &path]).await?)?;
    let selector = "app=web,version=v0.1,app.kubernetes.io/managed-by=podset-operator";
    ensure!(scale["spec"] == json!({"replicas": 4}), "the scale subresource has the spec {}", scale["spec"]);
    let status = json!({"replicas": 4, "selector": selector});
    ensure!(scale["status"] == status, "the scale subresource has the status {}", scale["status"]);
    let selected = kubectl.run(&["get", "pods", "--output=name", "--selector", selector]).await?;
    ensure!(selected.lines().count() == 4, "the selector finds\n{selected}");
    Ok(())
}

pub async fn applies_the_folders(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    let crd = root().join("config/crd");
    // Client-side: the whole object goes into an annotation, which holds 256 KiB.
    let applied = kubectl.run(&["apply", "-k", &crd.to_string_lossy()]).await?;
    ensure!(applied.lines().count() == 2, "config/crd holds other things than two CRDs:\n{applied}");
    let samples = root().join("config/samples");
    kubectl.run(&["apply", "-k", &samples.to_string_lossy()]).await?;
    let set = t.sets().get("podset-sample").await?;
    ensure!(set.spec.replicas == 3, "the sample wants {} pods", set.spec.replicas);
    let seeker = t.seekers().get("my-custom-resource-01").await?;
    ensure!(seeker.spec.name == "funny-joe", "the sample looks for {}", seeker.spec.name);
    traces_are_a_component(&t).await
}

/// In a kustomization of one's own, as docs/tracing.md has it.
async fn traces_are_a_component(t: &Scene) -> Result<()> {
    let overlay = t.file("overlay");
    std::fs::create_dir_all(&overlay)?;
    let overlay = overlay.canonicalize()?;
    let folder =
        |name: &str| Ok::<_, anyhow::Error>(relative(&overlay, &root().join("config").join(name).canonicalize()?));
    let kustomization = json!({"resources": [folder("default")?], "components": [folder("tracing")?]});
    std::fs::write(overlay.join("kustomization.yaml"), kustomization.to_string())?;
    let path = overlay.to_string_lossy();
    let kubectl = Kubectl::new(t.cluster(), rights::HOME);
    let built = kubectl.run(&["apply", "--dry-run=server", "--output=json", "-k", &path]).await?;
    let built: Value = serde_json::from_str(&built)?;
    let deployments = built["items"].as_array().into_iter().flatten().filter(|item| item["kind"] == "Deployment");
    let variables: Vec<_> = deployments
        .flat_map(|item| item["spec"]["template"]["spec"]["containers"][0]["env"].as_array().into_iter().flatten())
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "POD_NAME", "POD_NAMESPACE", "POD_UID"] {
        ensure!(variables.contains(&name), "the Deployment has no {name}: {variables:?}");
    }
    Ok(())
}
