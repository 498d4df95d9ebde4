//! A HorizontalPodAutoscaler scales a set: by the scale subresource, as it does with a Deployment.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use serde_json::json;

/// It looks every 15 s.
const LOOKS: Duration = Duration::from_secs(60);

pub async fn keeps_a_set_within_its_bounds(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 2).await?;
    t.until("2 pods", |seen| seen.at_rest("web", 2)).await?;
    // Without metrics it only keeps to its bounds, and that is enough to see that it reads and writes the scale.
    apply(&t, 4, 6).await?;
    t.within(LOOKS, "4 pods, the least that it wants", |seen| seen.at_rest("web", 4)).await?;
    apply(&t, 1, 3).await?;
    t.within(LOOKS, "3 pods, the most that it allows", |seen| seen.at_rest("web", 3)).await?;
    let path = "--output=jsonpath={.status.conditions[?(@.type=='AbleToScale')].status}";
    let able = t.kubectl().run(&["get", "hpa/web", path]).await?;
    ensure!(able == "True", "the autoscaler's condition AbleToScale is {able:?}");
    Ok(())
}

async fn apply(t: &Scene, least: u32, most: u32) -> Result<()> {
    t.tell(&format!("an autoscaler for {least} to {most} pods"));
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web"},
            "minReplicas": least, "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]
        }
    });
    t.kubectl().run_with(&["apply", "-f", "-"], &autoscaler.to_string()).await.map(drop)
}
