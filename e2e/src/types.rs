//! The objects as a client of the cluster sees them: the fields that the scenarios look at, decoded from what the API
//! server sends. Types of our own, because a mistake in the operator's types must not hide itself from its tests.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};

/// A PodSet's spec, as far as the scenarios read it.
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

/// A MyCustomResource's spec.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "poc.test.domain",
    version = "v1",
    kind = "MyCustomResource",
    namespaced,
    status = "MyCustomResourceStatus",
    schema = "disabled"
)]
pub struct MyCustomResourceSpec {
    /// Name of the friend, a pod in any namespace.
    pub name: String,
}

/// A MyCustomResource's status.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MyCustomResourceStatus {
    /// Whether the friend is there; absent is not the same as false.
    #[serde(rename = "Healthy")]
    pub healthy: Option<bool>,
    /// The generation that the status answers.
    pub observed_generation: Option<i64>,
    /// Ready, with the reason FriendFound or FriendMissing.
    pub conditions: Vec<Condition>,
}

/// A pod, without the fields that no scenario reads: a thousand of them are decoded many times.
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
    /// When the status changed last.
    pub last_transition_time: Option<Time>,
}

impl Pod {
    /// Counts for the bound: not being deleted and not finished, whatever its labels.
    pub fn is_live(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && !self.is_finished()
    }

    /// Counts for the bound of a set with TerminationComplete: it may run, although it may be being deleted.
    pub fn may_run(&self) -> bool {
        let is_bound = self.spec.node_name.is_some();
        !self.is_finished() && (self.metadata.deletion_timestamp.is_none() || is_bound)
    }

    /// Its containers ended for good.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase(), "Failed" | "Succeeded")
    }

    /// What `status.availableReplicas` counts.
    pub fn is_available(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && matches!(self.phase(), "Pending" | "Running")
    }

    /// Its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    /// When it became ready, if it is.
    pub fn ready_since(&self) -> Option<&Time> {
        self.condition("Ready").filter(|ready| ready.status == "True")?.last_transition_time.as_ref()
    }

    /// Its phase; a pod without one was created just now and is Pending.
    pub fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or("Pending")
    }

    /// The UID in its controller owner reference.
    pub fn owner(&self) -> Option<&str> {
        controller(&self.metadata)
    }

    fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl PodSet {
    /// The status, empty when none was written yet.
    pub fn state(&self) -> PodSetStatus {
        self.status.clone().unwrap_or_default()
    }
}

/// The conditions as `Type=Status/Reason`, by which a scenario compares and reports them.
pub fn in_short(conditions: &[Condition]) -> BTreeMap<String, String> {
    conditions.iter().map(|c| (c.type_.clone(), format!("{}/{}", c.status, c.reason))).collect()
}

/// The resourceVersion as the number that it is from Kubernetes 1.35 on; 0 where there is none.
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The UID in the controller owner reference.
pub fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// The UID, which every object that was read from a cluster has.
pub fn uid(metadata: &ObjectMeta) -> String {
    metadata.uid.clone().unwrap_or_default()
}
