//! `podReplacementPolicy: TerminationComplete`: a terminating pod is replaced only after it has terminated.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::{Value, json};
use tokio::time::sleep;

/// How long to check that nothing happens.
const A_WHILE: Duration = Duration::from_secs(5);

pub fn scenarios() -> Vec<Scenario> {
    let scenario = Scenario::new("terminations_are_waited_for", are_waited_for);
    vec![scenario.local_only("a kubelet would stop the containers")]
}

/// A pod with a finalizer stands for one whose containers do not stop. A kubelet would stop them.
async fn are_waited_for(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set_from("web", json!({"replicas": 3, "podReplacementPolicy": "TerminationComplete"})).await?;
    let three = t.settles("web", 3).await?;

    hold(&t, &three[0], true).await?;
    t.log(&format!("delete pod {} with a grace period of 1 s", three[0]));
    t.kubectl().run(&["delete", "pod", &three[0], "--grace-period=1", "--wait=false"]).await?;
    t.until("a set that waits", waits).await?;
    let path = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].message}";
    let message = t.kubectl().run(&["get", "podset/web", path]).await?;
    let node = t.stored_pod(&three[0]).await?.spec.and_then(|spec| spec.node_name).context("a pod without a node")?;
    let expected = format!("2 of 3 pods are ready; waiting for {} on {node} to terminate", three[0]);
    ensure!(message == expected, "the message is '{message}' instead of '{expected}'");
    for _ in 0..A_WHILE.as_millis() / 100 {
        t.look(waits).map_err(anyhow::Error::msg).context("a set that waits, for a while")?;
        sleep(Duration::from_millis(100)).await;
    }
    hold(&t, &three[0], false).await?;
    t.settles("web", 3).await?;

    // A forced delete ends the wait, because the pod is gone.
    let three = t.look(|seen| seen.has_live("web", 3)).map_err(anyhow::Error::msg)?;
    t.kubectl().run(&["delete", "pod", &three[0], "--force", "--grace-period=0"]).await?;
    t.goes(&three[0]).await?;
    t.settles("web", 3).await.map(drop)
}

/// The set has two ready pods and waits for another one.
fn waits(seen: &View) -> Seen {
    seen.has_live("web", 2)?;
    let status = seen.set("web")?.state();
    if (status.terminating_replicas, status.ready_replicas) != (1, 2) {
        return Err(format!("terminatingReplicas and readyReplicas are {status:?}"));
    }
    let expected = [("Ready", "False/WaitingForTermination"), ("Reconciling", "True/WaitingForTermination")];
    seen.conditions("web", &expected)
}

/// Adds a foreign finalizer to a pod, or removes it.
async fn hold(t: &Scene, pod: &str, is_held: bool) -> Result<()> {
    let finalizers = if is_held { json!(["example.com/hold"]) } else { Value::Null };
    t.patch_pod(pod, json!({"metadata": {"finalizers": finalizers}})).await
}
