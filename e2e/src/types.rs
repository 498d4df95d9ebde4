//! The fields of objects that scenarios read. Not the operator's types, in which a mistake would hide itself.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};

/// A PodSet's spec.
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

/// A PodSet's status.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetStatus {
    /// Names of the available pods.
    pub pod_names: Vec<String>,
    /// Pending or Running pods that are not being deleted.
    pub available_replicas: i64,
    /// Of those, the ready ones.
    pub ready_replicas: i64,
    /// Pods that are being deleted and have not finished.
    pub terminating_replicas: i64,
    /// The generation that the status answers.
    pub observed_generation: Option<i64>,
    /// The set's labels as a selector.
    pub selector: Option<String>,
    /// Ready, Reconciling, Stalled, ReplicaFailure.
    pub conditions: Vec<Condition>,
}

/// A pod.
#[derive(Clone, Debug, Deserialize, Resource, Serialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
pub struct Pod {
    /// Names, labels, owners.
    pub metadata: ObjectMeta,
    /// The node only.
    #[serde(default)]
    pub spec: PodSpec,
    /// Phase and conditions.
    #[serde(default)]
    pub status: PodStatus,
}

/// The part of a pod's spec that scenarios read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Where it was scheduled to.
    pub node_name: Option<String>,
}

/// The part of a pod's status that scenarios read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed, Unknown.
    pub phase: Option<String>,
    /// Ready among them.
    pub conditions: Vec<PodCondition>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// Ready, PodScheduled, …
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
}

impl Pod {
    /// Neither terminating nor finished.
    pub fn is_live(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && !self.is_finished()
    }

    /// Its containers may run, also if it is terminating.
    pub fn may_run(&self) -> bool {
        let is_bound = self.spec.node_name.is_some();
        !self.is_finished() && (self.metadata.deletion_timestamp.is_none() || is_bound)
    }

    /// Failed or Succeeded.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase(), "Failed" | "Succeeded")
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
    /// The status, empty if there is none.
    pub fn state(&self) -> PodSetStatus {
        self.status.clone().unwrap_or_default()
    }
}

/// The conditions by type, as `Status/Reason`.
pub fn in_short(conditions: &[Condition]) -> BTreeMap<String, String> {
    conditions.iter().map(|c| (c.type_.clone(), format!("{}/{}", c.status, c.reason))).collect()
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

/// The UID.
pub fn uid(metadata: &ObjectMeta) -> String {
    metadata.uid.clone().unwrap_or_default()
}
