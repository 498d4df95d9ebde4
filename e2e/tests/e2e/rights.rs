//! The operator's right to finalizers. Every scenario fails if the operator sends a request that `config/rbac` does not allow.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::cluster::needs::Need::*;
use e2e::kubectl::Kubectl;
use e2e::rights::grant_also;
use e2e::scene::Scene;
use e2e::suite::Scenario;

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("rights_to_finalizers_are_needed", to_finalizers_are_needed).needs(&[Processes])]
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
