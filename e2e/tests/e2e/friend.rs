//! A MyCustomResource and its friend, a pod in another namespace.

use std::sync::Arc;

use anyhow::Result;
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::types::in_short;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::json;

pub async fn appears_and_vanishes(t: Arc<Scene>) -> Result<()> {
    let elsewhere = t.other_namespace("elsewhere").await?;
    let _operator = t.operator_for(&[t.namespace(), &elsewhere]).await?;
    t.apply_sample("poc_v1_mycustomresource.yaml").await?;
    t.until("Healthy false, written, without the friend", |seen| is(seen, false, "FriendMissing")).await?;

    t.create_pod(&elsewhere, "funny-joe", json!({})).await?;
    t.until("Healthy true once the friend is there", |seen| is(seen, true, "FriendFound")).await?;

    let pods: Api<Pod> = Api::namespaced(t.client(), &elsewhere);
    pods.delete("funny-joe", &DeleteParams::default()).await?;
    t.until("Healthy false once the friend is gone", |seen| is(seen, false, "FriendMissing")).await?;

    t.create_pod(t.namespace(), "silly-jane", json!({})).await?;
    t.kubectl()
        .run(&["patch", "mycustomresource", SEEKER, "--type=merge", r#"--patch={"spec":{"name":"silly-jane"}}"#])
        .await?;
    t.until("Healthy true for another friend", |seen| is(seen, true, "FriendFound")).await
}

const SEEKER: &str = "my-custom-resource-01";

/// The whole status: Healthy explicitly, Ready for that reason, for the generation that is there.
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
