//! `podReplacementPolicy: TerminationComplete`: a terminating pod is replaced only after it has terminated.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::Wanted;
use e2e::cluster::needs::Need::*;
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::{Value, json};
use tokio::time::sleep;

/// For this time nothing may happen.
const A_WHILE: Duration = Duration::from_secs(5);

pub fn scenarios() -> Vec<Scenario> {
    let scripted = Wanted { stages: true, ..Wanted::default() };
    vec![
        Scenario::new("terminations_are_waited_for", are_waited_for).needs(&[SimulatedPods]),
        Scenario::new("terminations_on_a_lost_node", on_a_lost_node)
            .in_own_cluster(scripted)
            .needs(&[SimulatedPods, LocalCluster]),
    ]
}

/// A pod with a finalizer stands for one whose containers do not stop. A kubelet would stop them.
async fn are_waited_for(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set_from("web", json!({"replicas": 3, "podReplacementPolicy": "TerminationComplete"})).await?;
    let three = t.settles("web", 3).await?;

    hold(&t, &three[0], true).await?;
    t.delete_pod(&three[0]).await?;
    t.until("a set that waits", |seen| waits(seen, 2, 1)).await?;
    let message = t.look(|seen| seen.message("web", "Ready")).map_err(anyhow::Error::msg)?;
    let node = t.stored_pod(&three[0]).await?.spec.and_then(|spec| spec.node_name).context("a pod without a node")?;
    let expected = format!("2 of 3 pods are ready; waiting for {} on {node} to terminate", three[0]);
    ensure!(message == expected, "the message is '{message}' instead of '{expected}'");
    stays(&t, "a set that waits", |seen| waits(seen, 2, 1)).await?;
    hold(&t, &three[0], false).await?;
    t.settles("web", 3).await?;

    // A terminal phase ends the wait, before the finalizer is removed.
    let three = t.look(|seen| seen.has_live("web", 3)).map_err(anyhow::Error::msg)?;
    hold(&t, &three[0], true).await?;
    t.delete_pod(&three[0]).await?;
    t.until("a set that waits", |seen| waits(seen, 2, 1)).await?;
    t.patch_pod_status(&three[0], json!({"phase": "Succeeded"})).await?;
    t.settles("web", 3).await?;
    ensure!(t.look(|seen| seen.pod(&three[0]).is_ok()), "the finished pod is still there");
    hold(&t, &three[0], false).await?;

    // Scaled from 3 to 1 and back: the two terminating pods still count.
    let three = t.look(|seen| seen.has_live("web", 3)).map_err(anyhow::Error::msg)?;
    for pod in &three {
        hold(&t, pod, true).await?;
    }
    t.scale("web", 1).await?;
    t.until("1 pod, and 2 that terminate", |seen| waits(seen, 1, 2)).await?;
    let is_answered =
        |seen: &View| seen.set("web").is_ok_and(|set| set.state().observed_generation == set.metadata.generation);
    ensure!(!t.look(is_answered), "the generation is answered while 3 pods may run");
    t.scale("web", 3).await?;
    stays(&t, "no new pod", |seen| seen.has_live("web", 1).map(drop)).await?;
    for pod in &three {
        hold(&t, pod, false).await?;
    }
    t.settles("web", 3).await?;

    // A forced delete ends the wait: the operator cannot know more.
    let three = t.look(|seen| seen.has_live("web", 3)).map_err(anyhow::Error::msg)?;
    t.kubectl().run(&["delete", "pod", &three[0], "--force", "--grace-period=0"]).await?;
    t.settles("web", 3).await.map(drop)
}

/// The set has `ready` pods and waits for `terminating` others.
fn waits(seen: &View, ready: usize, terminating: i64) -> Seen {
    seen.has_live("web", ready)?;
    let status = seen.set("web")?.state();
    if (status.terminating_replicas, status.ready_replicas) != (terminating, ready as i64) {
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

async fn stays(t: &Scene, what: &str, mut holds: impl FnMut(&View) -> Seen) -> Result<()> {
    for _ in 0..A_WHILE.as_millis() / 100 {
        t.look(&mut holds).map_err(anyhow::Error::msg).with_context(|| format!("{what}, for a while"))?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A node without a kubelet.
const LOST: &str = "lost";

/// Nothing simulates the kubelets.
async fn on_a_lost_node(t: Arc<Scene>) -> Result<()> {
    t.kubectl().run(&["delete", "stages", "--all"]).await?;
    create_node(&t).await?;
    let _operator = t.operator().await?;
    let on_it = json!({"nodeName": LOST, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "example.com/nothing"}]});
    let spec = json!({"replicas": 2, "podReplacementPolicy": "TerminationComplete", "template": {"spec": on_it}});
    t.create_set_from("web", spec).await?;

    let deleted = lose(&t).await?;
    stays(&t, "a set that waits", |seen| waits(seen, 1, 1)).await?;
    t.kubectl().run(&["delete", "pod", &deleted, "--force", "--grace-period=0"]).await?;
    t.until("2 pods after the forced delete", |seen| seen.has_live("web", 2)).await?;

    lose(&t).await?;
    let condition = json!([{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]);
    patch_node_status(&t, json!({"conditions": condition})).await?;
    t.kubectl().run(&["taint", "node", LOST, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]).await?;
    t.until("2 pods after the taint", |seen| seen.has_live("web", 2)).await?;

    // The pods of a deleted node are deleted. The set's pods cannot run anywhere else.
    let deleted = lose(&t).await?;
    t.kubectl().run(&["delete", "node", LOST]).await?;
    t.within(Duration::from_secs(180), "the terminating pod to be collected", |seen| match seen.pod(&deleted) {
        Ok(_) => Err(format!("{deleted} is still there")),
        Err(_) => Ok(()),
    })
    .await
}

/// Two pods run on the lost node, and one of them is deleted. Returns its name.
async fn lose(t: &Scene) -> Result<String> {
    let live = t.until("2 pods", |seen| seen.has_live("web", 2)).await?;
    for pod in &live {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        t.patch_pod_status(pod, json!({"phase": "Running", "conditions": ready})).await?;
    }
    t.settles("web", 2).await?;
    t.delete_pod(&live[0]).await?;
    t.until("a set that waits", |seen| waits(seen, 1, 1)).await?;
    Ok(live[0].clone())
}

async fn create_node(t: &Scene) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": LOST},
        "spec": {"taints": [{"key": "lost", "effect": "NoSchedule"}]}});
    t.kubectl().run_with(&["create", "-f", "-"], &node.to_string()).await?;
    let room = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    patch_node_status(t, json!({"capacity": room, "allocatable": room})).await
}

async fn patch_node_status(t: &Scene, status: Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    t.kubectl().run(&["patch", "node", LOST, "--subresource=status", "--patch", &patch]).await.map(drop)
}
