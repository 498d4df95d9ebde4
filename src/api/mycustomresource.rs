//! `MyCustomResource`, `poc.test.domain/v1`: the types behind its schema.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A MyCustomResource looks for its friend, a pod of a given name in any namespace.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "poc.test.domain",
    version = "v1",
    kind = "MyCustomResource",
    plural = "mycustomresources",
    namespaced,
    status = "MyCustomResourceStatus",
    derive = "PartialEq",
    doc = "A MyCustomResource looks for its friend, a pod of a given name in any namespace.",
    printcolumn(name = "Friend", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Healthy", type_ = "boolean", json_path = ".status.Healthy"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct MyCustomResourceSpec {
    /// The name of the friend, a pod in any namespace that the operator watches.
    #[schemars(length(max = 253))]
    #[x_kube(validation = pod_name_rule())]
    pub name: String,
}

/// The observed state of a MyCustomResource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MyCustomResourceStatus {
    /// Whether at least one pod of this name exists, in any phase.
    #[serde(rename = "Healthy")]
    pub healthy: bool,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Ready is True when the status is up to date. Its reason is FriendFound or FriendMissing.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn pod_name_rule() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message(
        "the friend's name must be the name of a pod: lower-case letters, digits, '-' and '.', with a letter or digit \
         at both ends",
    )
}
