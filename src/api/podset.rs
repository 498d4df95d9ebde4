//! `PodSet`, `app.example.com/v1alpha1`: the types behind its schema.
//!
//! Only this file knows the bounds of `spec.replicas`. All other code must be correct for any number.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps},
    apimachinery::pkg::{apis::meta::v1::Condition, util::intstr::IntOrString},
};
use kube::{
    CustomResource, CustomResourceExt, KubeSchema,
    core::{Message, Rule},
};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{LABEL_REVISION, pod_spec};

/// A PodSet keeps a number of identical pods running, and never more. By default, a pod that is being deleted does not count.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, Serialize)]
#[kube(
    group = "app.example.com",
    version = "v1alpha1",
    kind = "PodSet",
    plural = "podsets",
    shortname = "pset",
    category = "all",
    namespaced,
    status = "PodSetStatus",
    doc = "A PodSet keeps a number of identical pods running, and never more. By default, a pod that is being deleted does not count.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.availableReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Up-to-date", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        description = "How many pods are ready, and why the others are not",
        priority = 1
    ),
    validation = name_rule(),
    validation = label_rule("app", Some(("self.metadata.name", "the name of the PodSet"))),
    validation = label_rule("version", Some(("'v0.1'", "'v0.1'"))),
    validation = label_rule("app.kubernetes.io/managed-by", Some(("'podset-operator'", "'podset-operator'"))),
    validation = label_rule(LABEL_REVISION, None),
    validation = deadline_rule()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = grace_period_rule())]
pub struct PodSetSpec {
    /// The number of pods that the set keeps. Defaults to 1.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 10))]
    #[x_kube(validation = replicas_rule())]
    pub replicas: i32,
    /// When a pod that is being deleted is replaced. TerminationStarted: at once, while its containers may still run.
    /// TerminationComplete: when it is Succeeded, Failed or gone, so that never more than spec.replicas pods run. A pod without a node is
    /// replaced at once.
    #[serde(default)]
    pub pod_replacement_policy: PodReplacementPolicy,
    /// The number of seconds that a pod must be ready before a rollout counts it as available. Defaults to 0.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0, max = 2147483647))]
    pub min_ready_seconds: u32,
    /// For how many seconds a rollout may make no progress before the condition Stalled says so. The rollout goes on. Defaults to 600.
    #[serde(default = "default_deadline")]
    #[schemars(with = "i32", range(min = 1, max = 2147483647))]
    pub progress_deadline_seconds: u32,
    /// How many old ControllerRevisions are kept, in addition to those in use. Surplus ones are deleted when the next new template is
    /// stored. Defaults to 10.
    #[serde(default = "default_history")]
    #[schemars(with = "i32", range(min = 0, max = 2147483647))]
    pub revision_history_limit: u32,
    /// The strategy that replaces pods after a change of the template.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,
    /// The template of the pods. Without the template, or without its spec, pods get the default spec of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodTemplate")]
    pub template: Option<PodTemplate>,
}

/// When a pod that is being deleted is replaced.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum PodReplacementPolicy {
    /// At once.
    #[default]
    TerminationStarted,
    /// When the pod is Succeeded, Failed or gone. A pod without a node is replaced at once.
    TerminationComplete,
}

/// The strategy that replaces pods after a change of the template.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// RollingUpdate: pods of former templates are replaced, step by step. OnDelete: they stay until they finish or are deleted for another
    /// reason.
    #[serde(rename = "type")]
    pub type_: UpdateStrategyType,
    /// The settings of RollingUpdate.
    pub rolling_update: RollingUpdate,
}

/// The type of the strategy.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
pub enum UpdateStrategyType {
    /// Pods of former templates are replaced, step by step.
    #[default]
    RollingUpdate,
    /// Pods of former templates stay until they finish or are deleted for another reason.
    OnDelete,
}

/// The settings of RollingUpdate.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many pods may be unavailable during a rollout: a number of at least 1, or a percentage of spec.replicas from 1% to 100% that is
    /// rounded down, but to no less than 1.
    #[schemars(schema_with = "max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// How many pods keep their former template: a number, or a percentage of spec.replicas that is rounded up. Raising it does not roll
    /// pods back. The partition does not apply to a change back to the former template.
    #[schemars(schema_with = "partition")]
    pub partition: Option<IntOrString>,
    /// Pauses the rollout: no pod is deleted because of its template.
    pub paused: bool,
}

impl Default for RollingUpdate {
    fn default() -> Self {
        Self { max_unavailable: Some(IntOrString::Int(1)), partition: Some(IntOrString::Int(0)), paused: false }
    }
}

/// The template of a set's pods.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct PodTemplate {
    /// Labels and annotations of the pods, in addition to the set's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PodTemplateMetadata")]
    pub metadata: Option<PodTemplateMetadata>,
    /// The spec of the pods, a core/v1 PodSpec of Kubernetes 1.36. An invalid value that this schema does not reject shows
    /// in the conditions Stalled and ReplicaFailure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_spec::schema")]
    // As text, because it is only passed on. Decoded it would take more than ten times the memory.
    pub spec: Option<Box<RawValue>>,
}

/// The metadata that a template sets on its pods.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PodTemplateMetadata {
    /// Labels of the pods. The labels app, version, app.kubernetes.io/managed-by and controller-revision-hash
    /// belong to the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The observed state of a PodSet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetStatus {
    /// The names of the pods in availableReplicas, sorted.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_names: Vec<Arc<str>>,
    /// Pods of this set that are Pending or Running and not being deleted, ready or not. minReadySeconds does not matter here.
    pub available_replicas: i32,
    /// Pods in availableReplicas whose condition Ready is True.
    pub ready_replicas: i32,
    /// Pods of this set that are being deleted and have not finished. With TerminationStarted, a smaller number is written with the next
    /// other change of the status, or when it becomes 0.
    pub terminating_replicas: i32,
    /// Pods in availableReplicas that have the template of the spec.
    pub updated_replicas: i32,
    /// Pods in updatedReplicas that are ready.
    pub updated_ready_replicas: i32,
    /// Pods in updatedReplicas that have been ready for minReadySeconds.
    pub updated_available_replicas: i32,
    /// The last revision with which all pods were available, a value of the label controller-revision-hash. During a rollout, this is the
    /// former template. Absent until all pods have been available once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub current_revision: Option<Arc<str>>,
    /// The revision of the template in the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub update_revision: Option<Arc<str>>,
    /// How often the name of a new ControllerRevision was taken by one with other content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub collision_count: Option<i32>,
    /// The generation of the spec that this status describes. During a scale-down it is the former one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// The label selector of the pods, for `kubectl scale` and autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub selector: Option<String>,
    /// Ready is always present. Reconciling, Stalled and ReplicaFailure are present only while they are True. If another client also wrote
    /// one, it stays as False with the reason Over.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The installation that wrote this status: namespace and name of its Lease, or the identity of a process without leader election.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub written_by: Option<Arc<str>>,
}

fn default_replicas() -> i32 {
    1
}

fn default_deadline() -> u32 {
    600
}

fn default_history() -> u32 {
    10
}

fn max_unavailable(_: &mut schemars::SchemaGenerator) -> Schema {
    int_or_percent(
        "type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^([1-9][0-9]?|100)%$')",
        "maxUnavailable must be a number of at least 1, or a percentage from 1% to 100%: with 0, no pod could be updated",
    )
}

fn partition(_: &mut schemars::SchemaGenerator) -> Schema {
    int_or_percent(
        "type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^([1-9]?[0-9]|100)%$')",
        "partition must be a number of at least 0, or a percentage from 0% to 100%",
    )
}

fn int_or_percent(rule: &str, message: &str) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [{ "rule": rule, "message": message }],
    })
}

fn name_rule() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message("the name of a PodSet becomes a label of its pods, so it may have at most 63 characters")
        .field_path(".metadata.name")
}

/// Explains the bounds. The API server's own message has no explanation.
fn replicas_rule() -> Rule {
    Rule::new("self >= 1 && self <= 10")
        .message("a PodSet keeps 1 to 10 pods: to keep none, delete the PodSet; to keep more, create another PodSet")
}

/// Belongs to the spec, not to the whole object: the API server then skips it when something else changes, such as the status.
fn grace_period_rule() -> Rule {
    let period = "template.spec.terminationGracePeriodSeconds";
    Rule::new(
        "self.podReplacementPolicy != 'TerminationComplete' || \
         self.?template.?spec.?terminationGracePeriodSeconds.orValue(30) != 0",
    )
    .field_path(format!(".{period}"))
    .message(Message::Message(format!(
        "with podReplacementPolicy TerminationComplete the grace period must not be 0, because a pod is then deleted while its \
         containers may still run: set spec.{period} to at least 1, or leave it out"
    )))
}

/// The definition of PodSet. Its schema names `metadata.name`, because the API server rejects a rule whose fieldPath is not in the schema.
pub(super) fn crd() -> CustomResourceDefinition {
    let schema = |type_: &str| JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() };
    let properties = BTreeMap::from([("name".to_owned(), schema("string"))]);
    let metadata = JSONSchemaProps { properties: Some(properties), ..schema("object") };
    let mut crd = PodSet::crd();
    let schemas =
        crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        schema.properties.get_or_insert_default().insert("metadata".to_owned(), metadata.clone());
    }
    crd
}

fn deadline_rule() -> Rule {
    Rule::new("self.spec.progressDeadlineSeconds > self.spec.minReadySeconds")
        .field_path(".spec.progressDeadlineSeconds")
        .message("progressDeadlineSeconds must be greater than minReadySeconds, or every rollout would miss it")
}

/// A template may repeat a label of the set, but not contradict it. `value` is the value of the label, in CEL and in words. `None`: the
/// operator computes it from the template, which must not have the label.
fn label_rule(label: &str, value: Option<(&str, &str)>) -> Rule {
    let labels = "self.spec.template.metadata.labels";
    let (or_same, or_remedy) = match value {
        Some((value, in_words)) => {
            (format!(" || {labels}['{label}'] == {value}"), format!(", or set it to {in_words}"))
        }
        None => (String::new(), String::new()),
    };
    Rule::new(format!(
        "!has(self.spec.template) || !has(self.spec.template.metadata) || !has({labels}) || \
         !('{label}' in {labels}){or_same}"
    ))
    .field_path(".spec.template.metadata.labels")
    .message(Message::Message(format!(
        "the operator sets the label {label} on the pods: leave it out of spec.template.metadata.labels{or_remedy}"
    )))
}
