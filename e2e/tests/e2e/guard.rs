//! The optional policy of `config/guard`: pods of PodSets cannot be removed by force, except by Kubernetes itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::root;
use e2e::scene::Scene;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::wait;

const FORCE: [&str; 2] = ["--force", "--grace-period=0"];

/// In a cluster of its own: the policy is for all namespaces.
pub async fn rejects_forced_deletes(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    let _operator = t.operator().await?;
    t.create_set("web", 4).await?;
    let pods = t.until("4 pods", |seen| seen.at_rest("web", 4)).await?;
    t.create_pod(t.namespace(), "other", json!({})).await?;
    // The administrator's account is also the one of the simulated kubelets.
    let administrator = kubectl.run(&["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"]).await?;
    let policy = kubectl.run(&["kustomize", &root().join("config/guard").to_string_lossy()]).await?;
    let exempt = "'system:kube-controller-manager',";
    ensure!(policy.contains(exempt), "the policy exempts no controllers:\n{policy}");
    let policy = policy.replace(exempt, &format!("'{administrator}', {exempt}"));
    kubectl.run_with(&["apply", "-f", "-"], &policy).await?;
    let somebody = ["--as=somebody", "--as-group=system:masters"];
    let forced = |pod| ["delete", "pod", pod, FORCE[0], FORCE[1], somebody[0], somebody[1]];
    wait::until("the policy to come into force", Duration::from_secs(60), || async {
        let deleted = kubectl.run(&[&forced(&pods[0])[..], &["--dry-run=server"]].concat()).await;
        Ok(if deleted.is_err() { Ok(()) } else { Err("it is not".to_owned()) })
    })
    .await?;

    let refusal = kubectl.refused(&forced(&pods[0]), "").await?;
    ensure!(refusal.contains("delete it without --force"), "a forced delete is refused with other words: {refusal}");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pods[0]},
        "deleteOptions": {"gracePeriodSeconds": 0}});
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", t.namespace(), pods[0]);
    let evict = ["create", "--raw", &path, "-f", "-", somebody[0], somebody[1]];
    let refusal = kubectl.refused(&evict, &eviction.to_string()).await?;
    ensure!(refusal.contains("delete it without --force"), "an eviction is refused with other words: {refusal}");

    // Others, and by all other means.
    kubectl.run(&forced("other")).await?;
    kubectl.run(&["delete", "pod", &pods[0], somebody[0], somebody[1]]).await?;
    replaced(&t, &pods[..1]).await?;
    let pods = t.look(|seen| seen.has_live("web", 4)).map_err(anyhow::Error::msg)?;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pods[0]}});
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", t.namespace(), pods[0]);
    let evict = ["create", "--raw", &path, "-f", "-", somebody[0], somebody[1]];
    kubectl.run_with(&evict, &eviction.to_string()).await?;
    replaced(&t, &pods[..1]).await?;

    let pods = t.look(|seen| seen.has_live("web", 4)).map_err(anyhow::Error::msg)?;
    for (pod, user) in pods.iter().zip([
        "system:node:node-0",
        "system:serviceaccount:kube-system:pod-garbage-collector",
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
    ]) {
        // An administrator who acts as this user: the group gives the right to delete.
        let user = format!("--as={user}");
        kubectl.run(&["delete", "pod", pod, FORCE[0], FORCE[1], &user, "--as-group=system:masters"]).await?;
    }
    replaced(&t, &pods).await?;

    // The controllers themselves: the node of a pod is deleted, then the set.
    let pods = t.look(|seen| seen.has_live("web", 4)).map_err(anyhow::Error::msg)?;
    let node = t.stored_pod(&pods[0]).await?.spec.and_then(|spec| spec.node_name).unwrap_or_default();
    Api::<Node>::all(t.client()).delete(&node, &DeleteParams::default()).await?;
    replaced(&t, &pods[..1]).await?;
    t.delete_set("web").await?;
    t.until("no pod", |seen| match seen.pods.all().count() {
        0 => Ok(()),
        left => Err(format!("{left} pods are left")),
    })
    .await
}

/// Waits until these pods are gone and the set has 4 again.
async fn replaced(t: &Scene, pods: &[String]) -> Result<()> {
    t.within(Duration::from_secs(180), "other pods in their place", |seen| {
        match pods.iter().find(|pod| seen.pod(pod).is_ok()) {
            Some(pod) => Err(format!("{pod} is still there")),
            None => seen.at_rest("web", 4),
        }
    })
    .await
    .map(drop)
}
