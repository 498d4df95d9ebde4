//! Admission policies that change the operator's pods so that it would not recognise them.

use std::sync::Arc;

use anyhow::Result;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;

const REMOVE_LABEL: &str =
    r#"[JSONPatch{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey("app.kubernetes.io/managed-by")}]"#;
const REMOVE_OWNER: &str = r#"[JSONPatch{op: "remove", path: "/metadata/ownerReferences"}]"#;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("admission_removes_the_label", |t| {
            removes(t, REMOVE_LABEL, "without the label app.kubernetes.io/managed-by=podset-operator")
        }),
        Scenario::new("admission_removes_the_owner", |t| removes(t, REMOVE_OWNER, "without the owner reference")),
    ]
}

/// Such a pod is deleted and reported. Otherwise the operator would create pods without end.
async fn removes(t: Arc<Scene>, expression: &str, words: &str) -> Result<()> {
    let _operator = t.operator().await?;
    let (policy, metadata) = policy(&t, expression);
    t.kubectl().run_with(&["apply", "-f", "-"], &policy).await?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "example.com/nothing"}]}});
    t.until_kubectl(
        "the policy to come into force",
        &["create", "--dry-run=server", "-f", "-", "-o=json"],
        &pod,
        |it| it.is_ok_and(|pod| !pod.contains("podset-operator") || !pod.contains("ownerReferences")),
    )
    .await?;
    t.create_set("web", 3).await?;
    t.until("the set to say what is wrong", |seen| {
        let message = seen.message("web", "ReplicaFailure")?;
        if message.contains(words) { Ok(()) } else { Err(message) }
    })
    .await?;
    t.until("the pod that was changed to go", |seen| no_live_pods(seen, 0)).await?;
    for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
        t.kubectl().run(&["delete", kind, t.namespace()]).await?;
    }
    t.settles("web", 3).await?;
    t.until("no pod but these", |seen| no_live_pods(seen, 3)).await
}

fn no_live_pods(seen: &e2e::observe::view::View, but: usize) -> e2e::observe::view::Seen {
    let live = seen.pods.all().filter(|pod| pod.is_live()).count();
    if live == but { Ok(()) } else { Err(format!("{live} live pods")) }
}

/// A policy for new pods in the scenario's namespace; and the metadata of a pod that it changes.
fn policy(t: &Scene, expression: &str) -> (String, serde_json::Value) {
    let (group, name) = ("admissionregistration.k8s.io/v1", t.namespace());
    let metadata = json!({"name": name});
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let policy = json!({"apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": {
        "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        "matchConstraints": {"resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    }});
    let binding = json!({"apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": name}});
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}]);
    let labels = json!({"app.kubernetes.io/managed-by": "podset-operator"});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
    (list.to_string(), json!({"name": "probe", "labels": labels, "ownerReferences": owner}))
}
