//! Tests of the simulated API server. [`conformance`] replays requests that were recorded from a real kube-apiserver and compares the
//! answers. The other files test what the recording does not cover: generated names, quotas, watches, the cluster's controllers and
//! injected faults. `promise` tests the observers, and `repeats` that a seed reproduces a run.

mod admission;
mod conformance;
mod controllers;
mod faults;
mod fronts;
mod lists;
mod promise;
mod repeats;
mod watch_faults;
mod watches;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    core::Status,
};
use serde_json::{Value, json};

use crate::apiserver::ApiServer;

/// Pods of namespace `default`, as the client `test` sees them.
fn pods(server: &ApiServer) -> Api<Pod> {
    Api::namespaced(server.client("test"), "default")
}

/// PodSets of namespace `default`, as the client `test` sees them.
fn podsets(server: &ApiServer) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "app.example.com".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "app.example.com/v1alpha1".to_owned(),
        kind: "PodSet".to_owned(),
        plural: "podsets".to_owned(),
    };
    Api::namespaced_with(server.client("test"), "default", &resource)
}

/// A pod to create, with this metadata.
fn pod(metadata: Value) -> Pod {
    let spec = json!({ "containers": [{ "name": "main", "image": "example.com/main" }] });
    from(json!({ "metadata": metadata, "spec": spec }))
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixture is of this type")
}

/// The Status with which the server refused.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a refusal with a Status, got {other:?}"),
    }
}
