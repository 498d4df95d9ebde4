//! The two custom resources: their types, their schemas and the names that belong to them.
//!
//! Nothing here acts: no client, no clock, no decision. What a user may write and what the operator answers is
//! declared in these types, and [`crds`] is what `podset-operator crd` prints and `config/crd/bases` holds.

mod mycustomresource;
mod podset;

pub use mycustomresource::{MyCustomResource, MyCustomResourceSpec, MyCustomResourceStatus};
pub(crate) use podset::default_replicas;
pub use podset::{PodSet, PodSetSpec, PodSetStatus, PodTemplate, PodTemplateMetadata};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Field manager of every apply, `app.kubernetes.io/managed-by` of every pod, reporting controller of every event.
pub const MANAGER: &str = "podset-operator";

/// Label of a pod that names its set.
pub const LABEL_APP: &str = "app";
/// Label of a pod that names the layout of the labels.
pub const LABEL_VERSION: &str = "version";
/// Value of [`LABEL_VERSION`].
pub const VERSION: &str = "v0.1";
/// Label by which the operator watches its pods; its value is [`MANAGER`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The selector of the operator's own pods, [`LABEL_MANAGED_BY`]`=`[`MANAGER`].
pub const WATCHED_PODS: &str = "app.kubernetes.io/managed-by=podset-operator";

/// Annotation of a pod that replaces a finished one: how many replacements in a row led to it.
pub const ANNOTATION_REPLACEMENTS: &str = "app.example.com/replacements";

/// Condition types that the status of the resources carries.
pub mod condition {
    /// True when the object is as its spec wants it (and, for a friend, when the status is current).
    pub const READY: &str = "Ready";
    /// True while the controller is at work on the object.
    pub const RECONCILING: &str = "Reconciling";
    /// True when nothing but a change of the spec can help.
    pub const STALLED: &str = "Stalled";
    /// True while the API server rejects creates or deletes of pods of the set.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
}

/// The custom resource definitions in the order in which they are printed, each with the name of its file under
/// `config/crd/bases`.
pub fn crds() -> [(&'static str, CustomResourceDefinition); 2] {
    [
        ("app.example.com_podsets.yaml", PodSet::crd()),
        ("poc.test.domain_mycustomresources.yaml", MyCustomResource::crd()),
    ]
}

/// A definition as a YAML document, as it is committed and printed.
///
/// # Errors
///
/// When it cannot be written as YAML.
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    let text = serde_saphyr::to_string(crd)?;
    Ok(format!("{}\n", text.trim_end()))
}
