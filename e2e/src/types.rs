//! The fields of objects that scenarios read. They are not the operator's types, which could hide its mistakes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "app.example.com",
    version = "v1alpha1",
    kind = "PodSet",
    namespaced,
    status = "PodSetStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct PodSetSpec {
    /// Pods wanted; the API server fills in the default.
    pub replicas: i64,
    /// TerminationStarted or TerminationComplete.
    #[serde(default)]
    pub pod_replacement_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetStatus {
    pub pod_names: Vec<String>,
    /// Pending or Running pods that are not being deleted.
    pub available_replicas: i64,
    pub ready_replicas: i64,
    /// Pods that are being deleted and have not finished.
    pub terminating_replicas: i64,
    pub updated_replicas: i64,
    pub updated_available_replicas: i64,
    pub current_revision: Option<String>,
    pub update_revision: Option<String>,
    pub observed_generation: Option<i64>,
    pub selector: Option<String>,
    /// Ready, Reconciling, Stalled, ReplicaFailure.
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize, Resource, Serialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
pub struct Pod {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

/// What the check of the bound reads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct PodStatus {
    pub phase: Option<String>,
    pub conditions: Vec<PodCondition>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
}

impl Pod {
    /// Neither terminating nor finished.
    pub fn is_live(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && !matches!(self.phase(), "Failed" | "Succeeded")
    }

    /// Counts in `status.availableReplicas`.
    pub fn is_available(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && matches!(self.phase(), "Pending" | "Running")
    }

    /// Its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Its phase; a new pod is Pending.
    pub fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or("Pending")
    }

    /// The UID of its controller.
    pub fn owner(&self) -> Option<&str> {
        controller(&self.metadata)
    }
}

impl PodSet {
    pub fn state(&self) -> PodSetStatus {
        self.status.clone().unwrap_or_default()
    }
}

/// The manifest of a PodSet.
pub fn podset(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": name}, "spec": spec})
}

/// The resourceVersion as a number, which it is since Kubernetes 1.35; 0 if there is none.
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The UID of the controller.
pub fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

pub fn uid(metadata: &ObjectMeta) -> String {
    metadata.uid.clone().unwrap_or_default()
}
