//! A PodDisruptionBudget bounds how many pods of a set a drain takes at a time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::process::eventually;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// No other scenario has a set of this name: a drain takes the pods of all namespaces.
const SET: &str = "drained";

pub fn scenarios() -> Vec<Scenario> {
    let scenario = Scenario::new("drain_respects_a_disruption_budget", respects_a_disruption_budget);
    vec![scenario.local_only("the pods of the drained node move to another one")]
}

async fn respects_a_disruption_budget(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set(SET, 4).await?;
    let pods = t.settles(SET, 4).await?;
    let mut nodes = Vec::new();
    for pod in &pods {
        nodes.extend(t.stored_pod(pod).await?.spec.and_then(|spec| spec.node_name));
    }
    nodes.sort();
    // A cluster has three nodes, so one of them has two pods.
    let of_node = |node: &str| nodes.iter().filter(|other| *other == node).count();
    let node = nodes.iter().max_by_key(|node| of_node(node)).context("the pods have no nodes")?;
    ensure!(of_node(node) > 1, "no node has two pods: {nodes:?}");

    let kubectl = t.kubectl();
    // The disruption controller reads the number of pods from the scale subresource of their controller.
    let apply = async |max_unavailable: u32, allowed: &str| {
        let spec = json!({"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": SET}}});
        let budget =
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": SET}, "spec": spec});
        kubectl.run_with(&["apply", "-f", "-"], &budget.to_string()).await?;
        let counts = "--output=jsonpath={.status.expectedPods} {.status.disruptionsAllowed}";
        // Its controller looks for new kinds every 30 s, and recounts a budget only when the budget changes.
        let count = || async {
            let note = format!("example.com/counted-at={}", Timestamp::now().as_millisecond());
            let is = kubectl.run(&["annotate", "pdb", SET, "--overwrite", &note, counts]).await?;
            ensure!(is == allowed, "expected pods and allowed disruptions are {is:?}");
            Ok(())
        };
        eventually("the budget", Duration::from_secs(90), count).await
    };
    apply(0, "4 0").await?;
    let drain = ["drain", node, "--pod-selector=app=drained"];
    let rejection = kubectl.rejected(&[&drain[..], &["--timeout=3s"]].concat(), "").await;
    let allows = apply(1, "4 1").await;
    let drained = kubectl.run(&[&drain[..], &["--timeout=60s"]].concat()).await;
    // The other scenarios need the node, also if this one fails.
    kubectl.run(&["uncordon", node]).await?;

    let rejection = allows.and(rejection)?;
    ensure!(rejection.contains("violate the pod's disruption budget"), "the drain fails otherwise: {rejection}");
    t.log(&drained?);
    for pod in t.settles(SET, 4).await? {
        let spec = t.stored_pod(&pod).await?.spec;
        ensure!(spec.and_then(|spec| spec.node_name).as_ref() != Some(node), "{pod} is on the drained node");
    }
    Ok(())
}
