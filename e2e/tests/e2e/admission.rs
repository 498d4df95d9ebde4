//! Admission policies that change or refuse the operator's pods, as webhooks do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::LABEL;
use e2e::scene::Scene;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::wait;

const TAKES_THE_LABEL: &str =
    r#"[JSONPatch{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey("app.kubernetes.io/managed-by")}]"#;
const TAKES_THE_OWNER: &str = r#"[JSONPatch{op: "remove", path: "/metadata/ownerReferences"}]"#;
const ADDS: &str = r#"[JSONPatch{op: "add", path: "/metadata/labels/mesh", value: "in"}]"#;

/// What the operator finds its pods by is gone: such a pod is deleted, one at a time, and what is wrong is said.
pub async fn takes_the_label_away(t: Arc<Scene>) -> Result<()> {
    takes_away(&t, TAKES_THE_LABEL, "without the label app.kubernetes.io/managed-by=podset-operator").await
}

/// Pods that nobody owns would be made without end.
pub async fn takes_the_owner_away(t: Arc<Scene>) -> Result<()> {
    takes_away(&t, TAKES_THE_OWNER, "without the owner reference").await
}

async fn takes_away(t: &Scene, expression: &str, words: &str) -> Result<()> {
    let _operator = t.operator().await?;
    begin(t, "Mutating", mutation(expression)).await?;
    t.create_set("web", 3).await?;
    t.until("the set to say what is wrong", |seen| {
        let message = seen.message("web", "ReplicaFailure")?;
        if message.contains(words) { Ok(()) } else { Err(message) }
    })
    .await?;
    // Each round of its back-off makes one pod at most, which goes before the next one.
    t.until("the pod that was changed to go", |seen| {
        let left: Vec<_> = seen.pods.all().filter(|pod| pod.is_live()).map(|pod| pod.name_any()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are there")) }
    })
    .await?;
    end(t, "Mutating").await?;
    t.until("3 pods once they are left as they were made", |seen| seen.at_rest("web", 3)).await?;
    t.until("no pod but these", |seen| {
        let all: Vec<_> = seen.pods.all().filter(|pod| pod.is_live()).map(|pod| pod.name_any()).collect();
        if all.len() == 3 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await
}

/// As service meshes do: no concern of the operator's.
pub async fn adds_to_pods(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    begin(&t, "Mutating", mutation(ADDS)).await?;
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    for pod in &pods {
        let labels = t.stored_pod(pod).await?.metadata.labels.unwrap_or_default();
        ensure!(labels.get("mesh").is_some_and(|value| value == "in"), "{pod} has the labels {labels:?}");
    }
    end(&t, "Mutating").await
}

pub async fn refuses_pods(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    let rule = json!({"validations": [{"expression": "false", "message": "no pods on a Sunday"}]});
    begin(&t, "Validating", rule).await?;
    t.create_set("web", 3).await?;
    t.until("the refusal in the conditions", |seen| {
        seen.has_live("web", 0)?;
        let expected = [
            ("Ready", "False/PodsNotReady"),
            ("Reconciling", "True/Retrying"),
            ("ReplicaFailure", "True/FailedCreate"),
        ];
        seen.conditions("web", &expected)
    })
    .await?;
    let message = t.look(|seen| seen.message("web", "ReplicaFailure")).map_err(anyhow::Error::msg)?;
    ensure!(message.contains("no pods on a Sunday"), "the condition says: {message}");
    end(&t, "Validating").await?;
    t.until("3 pods by themselves", |seen| seen.at_rest("web", 3)).await.map(drop)
}

fn mutation(expression: &str) -> Value {
    json!({
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]
    })
}

/// Lets a policy for the creation of pods in the scenario's namespace come into force.
async fn begin(t: &Scene, kind: &str, rule: Value) -> Result<()> {
    apply(t, kind, rule, "CREATE").await?;
    let what = "the policy to come into force";
    wait::until(what, Duration::from_secs(60), || async {
        Ok(if is_in_force(t).await? { Ok(()) } else { Err("it is not".to_owned()) })
    })
    .await
}

/// Applies a policy for an operation on the pods of the scenario's namespace. It comes into force some time later.
pub async fn apply(t: &Scene, kind: &str, rule: Value, operation: &str) -> Result<()> {
    let name = t.namespace();
    let metadata = json!({"name": name, "labels": {LABEL: t.cluster().name()}});
    let mut spec = rule;
    spec["failurePolicy"] = "Fail".into();
    spec["matchConstraints"] = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}]
    });
    let group = "admissionregistration.k8s.io/v1";
    let policy =
        json!({"apiVersion": group, "kind": format!("{kind}AdmissionPolicy"), "metadata": metadata, "spec": spec});
    let mut bound = json!({"policyName": name});
    if kind == "Validating" {
        bound["validationActions"] = json!(["Deny"]);
    }
    let binding = json!({"apiVersion": group, "kind": format!("{kind}AdmissionPolicyBinding"), "metadata": metadata, "spec": bound});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
    t.kubectl().run_with(&["apply", "-f", "-"], &list.to_string()).await?;
    t.tell("a policy for pods");
    Ok(())
}

/// Removes the policy of this kind.
pub async fn end(t: &Scene, kind: &str) -> Result<()> {
    let kind = kind.to_lowercase();
    for object in [format!("{kind}admissionpolicybinding"), format!("{kind}admissionpolicy")] {
        t.kubectl().run(&["delete", &object, t.namespace()]).await?;
    }
    t.tell("the policy is gone");
    Ok(())
}

/// Whether a pod like the operator's is changed or refused.
async fn is_in_force(t: &Scene) -> Result<bool> {
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}]);
    let labels = json!({"app.kubernetes.io/managed-by": "podset-operator"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": labels, "ownerReferences": owner},
        "spec": {"containers": [{"name": "main", "image": "example.com/nothing"}]}
    });
    let arguments = ["create", "--dry-run=server", "--output=json", "-f", "-"];
    let Ok(made) = t.kubectl().run_with(&arguments, &pod.to_string()).await else { return Ok(true) };
    let made: Value = serde_json::from_str(&made)?;
    Ok(made["metadata"]["labels"] != labels || made["metadata"]["ownerReferences"] != owner)
}
