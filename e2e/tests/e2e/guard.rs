//! The optional policy of `config/guard`: only Kubernetes itself may delete pods of PodSets by force.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::Wanted;
use e2e::process::eventually;
use e2e::root;
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;
use serde_json::json;

const SOMEBODY: [&str; 2] = ["--as=somebody", "--as-group=system:masters"];

pub fn scenarios() -> Vec<Scenario> {
    // The policy applies to all namespaces.
    let scenario = Scenario::new("guard_rejects_forced_deletes", rejects_forced_deletes);
    vec![scenario.in_own_cluster(Wanted::default()).local_only("its policy takes the administrator for the kubelet")]
}

async fn rejects_forced_deletes(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    t.operator().await?;
    t.create_set("web", 4).await?;
    let pods = t.settles("web", 4).await?;
    t.create_pod(&t.namespace, "other").await?;
    // The simulated kubelets use the administrator's account.
    let administrator = kubectl.run(&["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"]).await?;
    let policy = kubectl.run(&["kustomize", &root().join("config/guard").to_string_lossy()]).await?;
    let exempt = "'system:kube-controller-manager',";
    ensure!(policy.contains(exempt), "the policy exempts no controllers:\n{policy}");
    let policy = policy.replace(exempt, &format!("'{administrator}', {exempt}"));
    kubectl.run_with(&["apply", "-f", "-"], &policy).await?;
    let forced = |pod| ["delete", "pod", pod, "--force", "--grace-period=0", SOMEBODY[0], SOMEBODY[1]];
    let dry = [&forced(&pods[0])[..], &["--dry-run=server"]].concat();
    eventually("the policy to come into force", PATIENCE, || kubectl.rejected(&dry, "")).await?;

    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", t.namespace, pods[0]);
    let evict = ["create", "--raw", &path, "-f", "-", SOMEBODY[0], SOMEBODY[1]];
    let eviction = |options| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pods[0]}, "deleteOptions": options})
            .to_string()
    };
    let by_force = eviction(json!({"gracePeriodSeconds": 0}));
    for rejection in [kubectl.rejected(&forced(&pods[0]), "").await?, kubectl.rejected(&evict, &by_force).await?] {
        ensure!(rejection.contains("delete it without --force"), "it is rejected with another message: {rejection}");
    }

    // Pods of others, an ordinary eviction, and an ordinary delete.
    kubectl.run(&forced("other")).await?;
    kubectl.run_with(&evict, &eviction(json!(null))).await?;
    kubectl.run(&["delete", "pod", &pods[1], SOMEBODY[0], SOMEBODY[1]]).await?;
    let pods = are_replaced(&t, &pods[..2]).await?;
    for (pod, user) in pods.iter().zip([
        "system:node:node-0",
        "system:serviceaccount:kube-system:pod-garbage-collector",
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
    ]) {
        let user = format!("--as={user}");
        kubectl.run(&["delete", "pod", pod, "--force", "--grace-period=0", &user, SOMEBODY[1]]).await?;
    }
    are_replaced(&t, &pods).await.map(drop)
}

/// Waits until these pods are gone and the set has 4 again. Returns their names.
async fn are_replaced(t: &Scene, pods: &[String]) -> Result<Vec<String>> {
    t.within(Duration::from_secs(180), "the replacements of deleted pods", |seen| {
        match pods.iter().find(|pod| seen.pod(pod).is_ok()) {
            Some(pod) => Err(format!("{pod} is still there")),
            None => seen.at_rest("web", 4),
        }
    })
    .await
}
