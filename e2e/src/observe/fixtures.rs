//! What the tests of the observer observe.

use serde_json::json;

use crate::types::{Pod, PodSet};

/// The PodSet `web`.
pub fn set(version: u64, observed: Option<i64>, generation: i64, replicas: i64) -> PodSet {
    serde_json::from_value(json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
        "metadata": {"name": "web", "uid": "web-uid", "generation": generation, "resourceVersion": version.to_string()},
        "spec": {"replicas": replicas}, "status": {"observedGeneration": observed}
    }))
    .unwrap()
}

/// A pod of the PodSet `web`.
pub fn pod(version: u64, name: &str, phase: &str) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "ownerReferences": [
            {"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web", "uid": "web-uid", "controller": true}
        ]},
        "status": {"phase": phase}
    }))
    .unwrap()
}
