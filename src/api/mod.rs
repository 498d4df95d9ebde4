//! The two custom resources: types, schemas, and the names of labels, annotations and conditions. No I/O, no decision.
//!
//! `podset-operator crd` prints [`crds`], and `config/crd/bases` contains them.

mod mycustomresource;
mod pod_spec;
mod podset;

pub use mycustomresource::{MyCustomResource, MyCustomResourceSpec, MyCustomResourceStatus};
pub(crate) use podset::default_replicas;
pub use podset::{PodReplacementPolicy, PodSet, PodSetSpec, PodSetStatus, PodTemplate, PodTemplateMetadata};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use serde_saphyr::FlowMap;

/// The field manager of every apply, the label `app.kubernetes.io/managed-by` of every pod, and the reporting controller of every event.
pub const MANAGER: &str = "podset-operator";

/// Label of a pod: the name of its set.
pub const LABEL_APP: &str = "app";
/// Label of a pod: the version of its labels.
pub const LABEL_VERSION: &str = "version";
/// Value of [`LABEL_VERSION`].
pub const VERSION: &str = "v0.1";
/// Label of a pod by which the operator watches it; its value is [`MANAGER`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The selector for [`LABEL_MANAGED_BY`]`=`[`MANAGER`].
pub const WATCHED_PODS: &str = "app.kubernetes.io/managed-by=podset-operator";

/// Annotation of a pod that replaces a finished one: how many replacements in a row there were, including this one.
pub const ANNOTATION_REPLACEMENTS: &str = "app.example.com/replacements";

/// Condition types that the status of the resources carries.
pub mod condition {
    /// True when the object matches its spec, or, for a MyCustomResource, when its status is current.
    pub const READY: &str = "Ready";
    /// True while the controller works on the object.
    pub const RECONCILING: &str = "Reconciling";
    /// True when only a change of the spec can help.
    pub const STALLED: &str = "Stalled";
    /// True while the API server rejects creates or deletes of pods of the set.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
}

/// The custom resource definitions, each with the name of its file in `config/crd/bases`.
pub fn crds() -> [(&'static str, CustomResourceDefinition); 2] {
    [
        ("app.example.com_podsets.yaml", podset::crd()),
        ("poc.test.domain_mycustomresources.yaml", MyCustomResource::crd()),
    ]
}

/// A definition as a YAML document, with each field that has no fields of its own on one line. The schema of a PodSpec is deep: with more
/// lines, most of the document would be indentation.
///
/// # Errors
///
/// If it cannot be written as YAML.
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    let crd = serde_json::to_value(crd).map_err(|error| error.to_string())?;
    let text = serde_saphyr::to_string(&Node(&crd))?;
    Ok(format!("{}\n", text.trim_end()))
}

/// A node of a YAML document.
struct Node<'a>(&'a Value);

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) if is_field(fields) => FlowMap(fields).serialize(serializer),
            Value::Object(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, Node(value)))),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Node)),
            scalar => scalar.serialize(serializer),
        }
    }
}

/// Whether this is the schema of a field without fields of its own.
fn is_field(schema: &Map<String, Value>) -> bool {
    let has = |name| schema.get(name).is_some_and(|value| !value.is_object());
    (has("type") || has("x-kubernetes-int-or-string"))
        && !schema.contains_key("properties")
        && !has("x-kubernetes-validations")
        && schema.values().filter_map(Value::as_object).all(is_field)
}
