//! Rights: of an editor of a namespace, and the operator's right to finalizers. Every scenario fails if the operator sends a request that
//! `config/rbac` does not allow.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::cluster::needs::Need::*;
use e2e::kubectl::Kubectl;
use e2e::rights::grant_also;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rights_of_an_editor", of_an_editor),
        Scenario::new("rights_to_finalizers_are_needed", to_finalizers_are_needed).needs(&[Processes]),
    ]
}

/// An editor may write PodSets, but no MyCustomResources, which tell about pods in all namespaces.
async fn of_an_editor(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    let set =
        json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "x"}, "spec": {}});
    let seeker = json!({"apiVersion": "poc.test.domain/v1", "kind": "MyCustomResource", "metadata": {"name": "x"},
        "spec": {"name": "y"}});
    let create = ["create", "--dry-run=server", "--as=editor", "-f", "-"];
    kubectl.run(&["create", "rolebinding", "editors", "--clusterrole=edit", "--user=editor"]).await?;
    t.until_kubectl("an editor to create a PodSet", &create, &set, |it| it.is_ok()).await?;
    let rejection = kubectl.rejected(&create, &seeker.to_string()).await?;
    ensure!(rejection.contains("cannot create resource"), "an editor's MyCustomResource is rejected: {rejection}");
    let role = "--clusterrole=podset-operator-mycustomresource-editor-role";
    kubectl.run(&["create", "rolebinding", "seekers", role, "--user=editor"]).await?;
    t.until_kubectl("its editor to create a MyCustomResource", &create, &seeker, |it| it.is_ok()).await
}

/// With the admission plug-in OwnerReferencesPermissionEnforcement, as on OpenShift, no pod can be created without this right.
async fn to_finalizers_are_needed(t: Arc<Scene>) -> Result<()> {
    let without = t.namespace_without("without", "podsets/finalizers").await?;
    let _operator = t.operator_for(&[&without]).await?;
    let kubectl = Kubectl::new(t.cluster(), &without);
    let set = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "web"}, "spec": {"replicas": 2}});
    kubectl.run_with(&["apply", "-f", "-"], &set.to_string()).await?;
    kubectl.run(&["wait", "podset/web", "--for=condition=ReplicaFailure", "--timeout=90s"]).await?;
    let path = "--output=jsonpath={.status.conditions[?(@.type=='ReplicaFailure')].message}";
    let message = kubectl.run(&["get", "podset/web", path]).await?;
    ensure!(message.contains("cannot set blockOwnerDeletion"), "without the right, the condition says: {message}");
    grant_also(t.cluster(), t.namespace(), &without).await?;
    kubectl.run(&["wait", "podset/web", "--for=condition=Ready", "--timeout=90s"]).await.map(drop)
}
