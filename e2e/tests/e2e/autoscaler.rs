//! A HorizontalPodAutoscaler scales a set by its scale subresource.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;

/// The autoscaler syncs every 15 s.
const SYNCS: Duration = Duration::from_secs(60);

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("autoscaler_keeps_a_set_within_its_bounds", keeps_a_set_within_its_bounds)]
}

async fn keeps_a_set_within_its_bounds(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set("web", 2).await?;
    t.settles("web", 2).await?;
    // Without metrics it only enforces its bounds. That shows that it reads and writes the scale.
    apply(&t, 4, 6).await?;
    t.within(SYNCS, "4 pods, its minimum", |seen| seen.at_rest("web", 4)).await?;
    apply(&t, 1, 3).await?;
    t.within(SYNCS, "3 pods, its maximum", |seen| seen.at_rest("web", 3)).await?;
    let path = "--output=jsonpath={.status.conditions[?(@.type=='AbleToScale')].status}";
    let able = t.kubectl().run(&["get", "hpa/web", path]).await?;
    ensure!(able == "True", "the autoscaler's condition AbleToScale is {able:?}");
    Ok(())
}

async fn apply(t: &Scene, least: u32, most: u32) -> Result<()> {
    t.log(&format!("an autoscaler for {least} to {most} pods"));
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web"},
            "minReplicas": least, "maxReplicas": most, "metrics": [{"type": "Resource", "resource": cpu}]
        }
    });
    t.kubectl().run_with(&["apply", "-f", "-"], &autoscaler.to_string()).await.map(drop)
}
