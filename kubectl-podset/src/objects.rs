//! PodSets, as far as the plugin reads them. Unknown and missing fields are accepted, so that it works with other versions of the operator.

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::{
        apis::meta::v1::{Condition, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::core::{ApiResource, GroupVersionKind, Object};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The resource with its group, as kubectl names it in errors.
pub const RESOURCE: &str = "podsets.app.example.com";
/// The kind with its group, as kubectl names it in results.
pub const KIND: &str = "podset.app.example.com";
/// The label of a pod that names its revision.
const LABEL_REVISION: &str = "controller-revision-hash";

/// A PodSet.
pub type PodSet = Object<Spec, Status>;

pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("app.example.com", "v1alpha1", "PodSet"), "podsets")
}

/// The spec of a PodSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub replicas: usize,
    pub pod_replacement_policy: String,
    pub min_ready_seconds: u32,
    pub update_strategy: UpdateStrategy,
    /// `null` if there is none.
    pub template: Value,
}

/// How a change of the template reaches the pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    #[serde(rename = "type")]
    pub type_: String,
    pub rolling_update: RollingUpdate,
}

/// The settings of a rolling update.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RollingUpdate {
    pub partition: Option<IntOrString>,
    pub paused: bool,
}

impl Spec {
    /// Whether pods of former templates stay until something else ends them.
    pub fn is_on_delete(&self) -> bool {
        self.update_strategy.type_ == "OnDelete"
    }

    /// How many pods keep their former template: none if the spec has the template that all pods had last.
    pub fn partition(&self, status: &Status) -> usize {
        if status.current_revision.is_some() && status.current_revision == status.update_revision {
            return 0;
        }
        let partition = match &self.update_strategy.rolling_update.partition {
            None => 0,
            Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or_default(),
            Some(IntOrString::String(percent)) => {
                let percent: usize = percent.trim_end_matches('%').parse().unwrap_or_default();
                (self.replicas * percent).div_ceil(100)
            }
        };
        partition.min(self.replicas)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub observed_generation: i64,
    pub available_replicas: usize,
    pub ready_replicas: usize,
    pub terminating_replicas: usize,
    pub updated_replicas: usize,
    pub updated_available_replicas: usize,
    pub current_revision: Option<String>,
    pub update_revision: Option<String>,
    #[serde(deserialize_with = "readable")]
    pub conditions: Vec<Condition>,
    pub written_by: Option<String>,
}

/// Skips conditions that cannot be decoded: another client may have written a time that this plugin does not support.
fn readable<'de, D: Deserializer<'de>>(conditions: D) -> Result<Vec<Condition>, D::Error> {
    let conditions = Vec::<Value>::deserialize(conditions)?.into_iter();
    Ok(conditions.filter_map(|condition| serde_json::from_value(condition).ok()).collect())
}

impl Status {
    /// The condition Ready, if there is one.
    pub fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == "Ready")
    }

    /// A condition, if it is present and has this status.
    pub fn condition(&self, type_: &str, status: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
    }
}

/// Whether the status describes a former spec.
pub fn is_behind(set: &PodSet, status: &Status) -> bool {
    status.observed_generation < set.metadata.generation.unwrap_or(1)
}

/// How many pods are being deleted and still count.
pub fn awaited(set: &PodSet, status: &Status) -> usize {
    if set.spec.pod_replacement_policy == "TerminationComplete" { status.terminating_replicas } else { 0 }
}

/// The name of an object.
pub fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Whether the object belongs to the set with this UID.
pub fn is_owned(metadata: &ObjectMeta, uid: Option<&String>) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| owner.controller == Some(true) && Some(&owner.uid) == uid)
}

/// The revision of a pod.
pub fn revision(pod: &Pod) -> Option<&String> {
    pod.metadata.labels.as_ref()?.get(LABEL_REVISION)
}

#[cfg(test)]
pub mod testing {
    //! A set for tests.

    use serde_json::{Map, Value, json};

    use super::PodSet;

    /// The set `web` with two pods, all as its spec wants, after this merge patch.
    pub fn set(patch: &str) -> PodSet {
        let at = "2026-01-01T00:57:00Z";
        let ready = json!({ "type": "Ready", "status": "True", "reason": "AllPodsReady", "message": "2 of 2", "lastTransitionTime": at });
        let mut set = json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "1", "generation": 3 },
            "spec": { "replicas": 2 },
            "status": {
                "observedGeneration": 3, "availableReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
                "updatedAvailableReplicas": 2, "currentRevision": "old", "updateRevision": "new", "writtenBy": "ops/leader",
                "conditions": { "ready": ready },
            },
        });
        merge(&mut set, &serde_json::from_str(patch).unwrap());
        let conditions = set["status"]["conditions"].as_object().cloned().unwrap_or_default();
        set["status"]["conditions"] = conditions.into_iter().map(|(_, condition)| condition).collect();
        serde_json::from_value(set).unwrap()
    }

    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *into = patch.clone() };
        let mut fields = into.as_object().cloned().unwrap_or_else(Map::new);
        for (field, value) in patch {
            merge(fields.entry(field).or_insert(Value::Null), value);
        }
        *into = fields.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_cannot_be_read_do_not_count() {
        let patch = r#"{"status":{"conditions":{"foreign":{"type":"A","status":"True","reason":"B","message":"","lastTransitionTime":"9999-12-31T23:59:59Z"}}}}"#;
        let status = testing::set(patch).status.unwrap();
        assert_eq!(status.conditions.iter().map(|condition| &*condition.type_).collect::<Vec<_>>(), ["Ready"]);
    }
}
