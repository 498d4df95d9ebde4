//! A quota allows fewer pods than a set wants.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("quota_rejects_and_grows", rejects_and_grows)]
}

async fn rejects_and_grows(t: Arc<Scene>) -> Result<()> {
    t.kubectl().run(&["create", "quota", "few", "--hard=pods=2"]).await?;
    // Until the quota was counted for the first time, every pod is rejected.
    let counted = ["get", "quota/few", "--output=jsonpath={.status.hard.pods}"];
    t.until_kubectl("the quota to be counted", &counted, &json!(null), |it| it.is_ok_and(|pods| pods == "2")).await?;

    let _operator = t.operator().await?;
    t.create_set("web", 5).await?;
    t.until("2 pods, and the rejection in the conditions", |seen| {
        seen.has_live("web", 2)?;
        let expected = [
            ("Ready", "False/PodsNotReady"),
            ("Reconciling", "True/Retrying"),
            ("ReplicaFailure", "True/FailedCreate"),
        ];
        seen.conditions("web", &expected)?;
        seen.status_is_right("web")
    })
    .await?;
    let wide = t.kubectl().run(&["get", "podset", "--output=wide"]).await?;
    let reason = "2 of 5 pods are ready: pods \"web-pod\" is forbidden: exceeded quota";
    ensure!(wide.contains(reason), "kubectl get podset -o wide shows\n{wide}");

    t.kubectl().run(&["patch", "quota", "few", "--patch", r#"{"spec": {"hard": {"pods": "5"}}}"#]).await?;
    t.settles("web", 5).await?;
    let events = t.look(|seen| seen.events("web"));
    let failures = events.iter().filter(|event| event.starts_with("FailedCreate")).count();
    ensure!(failures == 1, "{failures} events FailedCreate: {events:?}");
    Ok(())
}
