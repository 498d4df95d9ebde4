//! A MyCustomResource and its friend, a pod in another namespace.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::process::eventually;
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;

const SEEKER: &str = "mycustomresource/my-custom-resource-01";

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("friend_appears_and_vanishes", appears_and_vanishes)]
}

async fn appears_and_vanishes(t: Arc<Scene>) -> Result<()> {
    let elsewhere = t.other_namespace("elsewhere").await?;
    t.operator_for(&[&t.namespace, &elsewhere]).await?;
    t.apply_sample("poc_v1_mycustomresource.yaml").await?;
    has_status(&t, "false True/FriendMissing 1").await?;
    t.create_pod(&elsewhere, "funny-joe").await?;
    has_status(&t, "true True/FriendFound 1").await?;
    t.kubectl().run(&["delete", "pod", "funny-joe", "--namespace", &elsewhere]).await?;
    has_status(&t, "false True/FriendMissing 1").await?;
    t.create_pod(&t.namespace, "silly-jane").await?;
    t.kubectl().run(&["patch", SEEKER, "--type=merge", r#"--patch={"spec":{"name":"silly-jane"}}"#]).await?;
    has_status(&t, "true True/FriendFound 2").await
}

/// Healthy, the condition Ready, and the observed generation.
async fn has_status(t: &Scene, status: &str) -> Result<()> {
    let path = "--output=jsonpath={.status.Healthy} {.status.conditions[?(@.type=='Ready')].status}/\
                {.status.conditions[0].reason} {.status.observedGeneration}";
    let kubectl = t.kubectl();
    let has_it = async || {
        let is = kubectl.run(&["get", SEEKER, path]).await?;
        ensure!(is == status, "its status is '{is}'");
        Ok(())
    };
    eventually(&format!("the status '{status}'"), PATIENCE, has_it).await
}
