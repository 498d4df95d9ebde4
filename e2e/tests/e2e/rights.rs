//! The operator's rights. Every scenario fails if the operator sends a request that `config/rbac` does not allow. These scenarios fail if it
//! allows more than the operator needs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::needs::Need::*;
use e2e::kubectl::Kubectl;
use e2e::operator::Election;
use e2e::rights::{HOME, grant_also};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt;
use serde_json::json;

use crate::rollouts;

const LABEL: &str = "app.kubernetes.io/managed-by";

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rights_are_all_used", are_all_used).needs(&[Processes]),
        Scenario::new("rights_to_finalizers_are_needed", to_finalizers_are_needed).needs(&[Processes]),
    ]
}

/// Used only for metrics, after a conflict, and by an admission plug-in.
const RARELY_USED: [&str; 4] =
    ["create subjectaccessreviews", "create tokenreviews", "get mycustomresources", "update podsets/finalizers"];

/// The life of a set with two leaders, in which the operator uses its rights. The audit log shows which.
async fn are_all_used(t: Arc<Scene>) -> Result<()> {
    let first = t.run(t.settings().elected(Election::DEFAULT)).await?;
    t.apply_sample("poc_v1_mycustomresource.yaml").await?;
    t.create_set("web", 3).await?;
    let pods = t.settles("web", 3).await?;
    t.patch_pod(&pods[0], json!({"metadata": {"labels": {LABEL: null}}})).await?;
    t.until("the label to come back", |seen| match seen.pod(&pods[0])?.labels().get(LABEL) {
        Some(_) => Ok(()),
        None => Err("no label".to_owned()),
    })
    .await?;
    // One template after another: each is stored, the second one twice, and the oldest is deleted.
    let template = |version: &str| json!({"metadata": {"annotations": {"version": version}}});
    let spec = json!({"replicas": 1, "revisionHistoryLimit": 0, "template": template("1")});
    t.create_set_from("updated", spec).await?;
    rollouts::rolled_out(&t, "updated", 1).await?;
    for version in ["2", "1", "3", "4"] {
        t.patch_set("updated", json!({"spec": {"template": template(version)}})).await?;
        rollouts::rolled_out(&t, "updated", 1).await?;
    }
    t.scale("web", 2).await?;
    let two = t.settles("web", 2).await?;
    let gone = pods.iter().find(|pod| !two.contains(pod)).context("all of 3 pods are left")?;
    t.until("the third one to go", |seen| seen.pod(gone).map_or(Ok(()), |_| Err(format!("{gone} is there")))).await?;
    first.terminate(Duration::from_secs(20)).await?;
    // The next leader wants to use this name first. It reads the pod, and the set.
    t.create_pod(t.namespace(), gone, json!({})).await?;
    let second = t.run(t.settings().elected(Election::DEFAULT)).await?;
    t.scale("web", 3).await?;
    t.settles("web", 3).await?;
    second.terminate(Duration::from_secs(20)).await?;

    let used = t.requests()?.kinds();
    for (kind, role) in
        [("clusterrole", "podset-operator-manager-role"), ("role", "podset-operator-leader-election-role")]
    {
        let role = Kubectl::new(t.cluster(), HOME).run(&["get", kind, role, "--output=json"]).await?;
        let role: ClusterRole = serde_json::from_str(&role.replace("\"Role\"", "\"ClusterRole\""))?;
        for rule in role.rules.unwrap_or_default() {
            for resource in rule.resources.unwrap_or_default() {
                let rights = rule.verbs.iter().map(|verb| format!("{verb} {resource}"));
                let unused: Vec<_> = rights.filter(|right| !used.contains_key(right)).collect();
                let expected = unused.iter().all(|right| RARELY_USED.contains(&right.as_str()));
                ensure!(expected, "config/rbac allows {unused:?}, and used are only {used:?}");
            }
        }
    }
    Ok(())
}

/// With the admission plug-in OwnerReferencesPermissionEnforcement, as on OpenShift, no pod can be created without this right.
async fn to_finalizers_are_needed(t: Arc<Scene>) -> Result<()> {
    let without = t.namespace_without("without", "podsets/finalizers").await?;
    let _operator = t.operator_for(&[&without]).await?;
    let kubectl = Kubectl::new(t.cluster(), &without);
    let sample = e2e::root().join("config/samples/app_v1alpha1_podset.yaml");
    kubectl.run(&["apply", "-f", &sample.to_string_lossy()]).await?;
    kubectl.run(&["wait", "podset/podset-sample", "--for=condition=ReplicaFailure", "--timeout=90s"]).await?;
    let path = "--output=jsonpath={.status.conditions[?(@.type=='ReplicaFailure')].message}";
    let message = kubectl.run(&["get", "podset/podset-sample", path]).await?;
    ensure!(message.contains("cannot set blockOwnerDeletion"), "without the right, the condition says: {message}");
    grant_also(t.cluster(), t.namespace(), &without).await?;
    kubectl.run(&["wait", "podset/podset-sample", "--for=condition=Ready", "--timeout=90s"]).await.map(drop)
}
