//! The two custom resources: types, schemas, and the names of labels, annotations and conditions. No I/O, no decision.
//!
//! `config/crd/bases` contains [`crds`] as YAML, and `podset-operator crd` prints these files.

mod mycustomresource;
mod pod_spec;
mod podset;

pub use mycustomresource::{MyCustomResource, MyCustomResourceSpec, MyCustomResourceStatus};
pub use podset::{
    PodReplacementPolicy, PodSet, PodSetSpec, PodSetStatus, PodTemplate, PodTemplateMetadata, RollingUpdate,
    UpdateStrategy, UpdateStrategyType,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

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

/// Label of a pod: the revision of the template that it was made from.
pub const LABEL_REVISION: &str = "controller-revision-hash";

/// The selector for [`LABEL_MANAGED_BY`]`=`[`MANAGER`].
pub const WATCHED_PODS: &str = "app.kubernetes.io/managed-by=podset-operator";

/// Annotation of a set, and of the ControllerRevision of its template: why the template was changed, for `kubectl podset rollout history`.
pub const ANNOTATION_CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// Annotation of a pod that replaces a finished one: how many replacements in a row there were, including this one.
pub const ANNOTATION_REPLACEMENTS: &str = "app.example.com/replacements";

/// Condition types that the status of the resources carries.
pub mod condition {
    /// True when the object matches its spec, or, for a MyCustomResource, when its status is current.
    pub const READY: &str = "Ready";
    /// True while the controller works on the object.
    pub const RECONCILING: &str = "Reconciling";
    /// True if the spec is invalid, or a rollout makes no progress in time.
    pub const STALLED: &str = "Stalled";
    /// True while creates or deletes of pods of the set are rejected or get no answer.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
}

/// The files of `config/crd/bases`, which `podset-operator crd` prints. The code that generates them would add 1 MB to the binary.
pub const CRD_FILES: &[&str] = &[
    include_str!("../../config/crd/bases/app.example.com_podsets.yaml"),
    include_str!("../../config/crd/bases/poc.test.domain_mycustomresources.yaml"),
];

/// The custom resource definitions, each with the name of its file in `config/crd/bases`.
pub fn crds() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![
        ("app.example.com_podsets.yaml", podset::crd()),
        ("poc.test.domain_mycustomresources.yaml", MyCustomResource::crd()),
    ]
}
