//! What kubectl shows and does: `scale`, `get`, `wait`, and the scale subresource.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::{Value, json};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("kubectl_scales_and_shows", scales_and_shows)]
}

async fn scales_and_shows(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    let kubectl = t.kubectl();
    t.create_set("web", 2).await?;
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=90s", "podset/web"]).await?;
    kubectl.run(&["scale", "podset/web", "--replicas=4"]).await?;
    t.settles("web", 4).await?;
    for (replicas, words) in [("0", "greater than or equal to 1"), ("11", "less than or equal to 10")] {
        let rejection = kubectl.rejected(&["scale", "podset/web", "--replicas", replicas], "").await?;
        ensure!(rejection.contains(words), "scaling to {replicas} is rejected with another message: {rejection}");
    }

    let table = kubectl.run(&["get", "pset"]).await?;
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (head, row) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
    let columns = ["NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "STATUS", "AGE"];
    let is_right = row.len() == 7 && row[..6] == ["web", "4", "4", "4", "4", "AllPodsReady"];
    ensure!(head == columns && is_right, "kubectl get pset shows\n{table}");

    let path = format!("/apis/app.example.com/v1alpha1/namespaces/{}/podsets/web/scale", t.namespace);
    let scale: Value = serde_json::from_str(&kubectl.run(&["get", "--raw", &path]).await?)?;
    let selector = "app=web,version=v0.1,app.kubernetes.io/managed-by=podset-operator";
    let status = json!({"replicas": 4, "selector": selector});
    ensure!(scale["status"] == status, "the scale subresource has the status {}", scale["status"]);
    let selected = kubectl.run(&["get", "pods", "--output=name", "--selector", selector]).await?;
    ensure!(selected.lines().count() == 4, "the selector finds\n{selected}");
    Ok(())
}
