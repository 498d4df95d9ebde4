//! Functions that read and build JSON objects.

use serde_json::{Value, json};

/// `metadata.<field>` as text, empty if absent.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// `metadata.namespace`, empty if cluster-scoped.
pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// `metadata.generation`, 0 if absent.
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

pub fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// `status.phase`, empty if absent.
pub fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

pub fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

pub fn is_live(pod: &Value) -> bool {
    !is_terminating(pod) && !is_finished(pod)
}

pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|c| c["status"] == "True")
}

/// Whether a pod or a template has a broken image, so that the pod never becomes ready.
pub fn has_broken_image(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["image"].as_str().is_some_and(|image| image.contains("broken"))
}

/// How many pods of a set may be unavailable during a rollout.
pub fn max_unavailable(set: &Value) -> u64 {
    let max_unavailable = match &set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] {
        Value::String(percent) => {
            let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
            percent.trim_end_matches('%').parse().unwrap_or(0) * replicas / 100
        }
        number => number.as_u64().unwrap_or(1),
    };
    max_unavailable.max(1)
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// UID of the controller among the owner references.
pub fn controller_uid(object: &Value) -> Option<&str> {
    owners(object).iter().find(|r| r["controller"] == true)?["uid"].as_str()
}

/// A reference to the PodSet of this name and UID as the controller.
pub fn owner_reference(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

pub fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str).collect()
}

/// Adds a condition to `status.conditions`, or replaces the one of its type.
pub fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let list = object["status"]["conditions"].as_array_mut().expect("made an array just above");
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

/// `metadata.resourceVersion` as a number, which it is since Kubernetes 1.35; 0 if absent.
pub fn version(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().unwrap_or(0)
}
