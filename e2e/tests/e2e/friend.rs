//! A MyCustomResource and its friend, a pod in another namespace.

use std::sync::Arc;

use anyhow::Result;
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use e2e::types::in_short;
use serde_json::json;

const SEEKER: &str = "my-custom-resource-01";

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("friend_appears_and_vanishes", appears_and_vanishes)]
}

async fn appears_and_vanishes(t: Arc<Scene>) -> Result<()> {
    let elsewhere = t.other_namespace("elsewhere").await?;
    let _operator = t.operator_for(&[t.namespace(), &elsewhere]).await?;
    t.apply_sample("poc_v1_mycustomresource.yaml").await?;
    t.until("Healthy false without the friend", |seen| is(seen, false, "FriendMissing")).await?;
    t.create_pod(&elsewhere, "funny-joe", json!({})).await?;
    t.until("Healthy true with the friend", |seen| is(seen, true, "FriendFound")).await?;
    t.kubectl().run(&["delete", "pod", "funny-joe", "--namespace", &elsewhere]).await?;
    t.until("Healthy false after the friend is gone", |seen| is(seen, false, "FriendMissing")).await?;
    t.create_pod(t.namespace(), "silly-jane", json!({})).await?;
    let rename = r#"--patch={"spec":{"name":"silly-jane"}}"#;
    t.kubectl().run(&["patch", "mycustomresource", SEEKER, "--type=merge", rename]).await?;
    t.until("Healthy true for another friend", |seen| is(seen, true, "FriendFound")).await
}

/// The whole status of the current generation.
fn is(seen: &View, healthy: bool, reason: &str) -> Seen {
    let seeker = seen.seeker(SEEKER)?;
    let status = seeker.status.clone().unwrap_or_default();
    let conditions = in_short(&status.conditions);
    let ready = conditions.len() == 1 && conditions.get("Ready") == Some(&format!("True/{reason}"));
    let current = status.observed_generation == seeker.metadata.generation;
    if status.healthy == Some(healthy) && ready && current {
        return Ok(());
    }
    Err(format!("generation {:?} has the status {}", seeker.metadata.generation, json!(seeker.status)))
}
