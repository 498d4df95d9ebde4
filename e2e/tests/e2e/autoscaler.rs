//! A HorizontalPodAutoscaler scales a set by its scale subresource.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;

use crate::rollouts::{rolled_out, template};

/// The autoscaler syncs every 15 s.
const SYNCS: Duration = Duration::from_secs(60);

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("autoscaler_keeps_a_set_within_its_bounds", keeps_a_set_within_its_bounds),
        Scenario::new("autoscaler_scales_during_a_rollout", scales_during_a_rollout),
    ]
}

async fn keeps_a_set_within_its_bounds(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
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

async fn scales_during_a_rollout(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set_from("web", json!({"replicas": 4, "template": template("one", false)})).await?;
    let first = rolled_out(&t, "web", 4).await?;
    // So slow that the rollout lasts until the autoscaler has synced.
    t.patch_set("web", json!({"spec": {"minReadySeconds": 20, "template": template("two", false)}})).await?;
    apply(&t, 6, 8).await?;
    t.within(SYNCS, "6 pods, during the rollout", |seen| {
        let pods = seen.has_live("web", 6)?;
        let updated = seen.set("web")?.state().updated_replicas;
        if updated < 6 { Ok(pods) } else { Err(format!("the rollout is over: {updated} updated pods")) }
    })
    .await?;
    t.patch_set("web", json!({"spec": {"minReadySeconds": 1}})).await?;
    let second = rolled_out(&t, "web", 6).await?;
    ensure!(second.iter().all(|pod| !first.contains(pod)), "{first:?} were to be replaced: {second:?}");
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
