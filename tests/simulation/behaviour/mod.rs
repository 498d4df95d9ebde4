//! Tests of the simulated API server. [`conformance`] replays requests that were recorded from a real kube-apiserver and compares the
//! answers. The other files test what the recording does not cover: watches, the cluster's controllers and injected faults. `promise`
//! tests the observers.

mod conformance;
mod controllers;
mod faults;
mod promise;
mod quorum;
mod watches;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, PostParams, WatchParams},
    core::Status,
};
use podset_operator::api::PodSet;
use serde_json::{Value, json};

use crate::{
    apiserver::{self, ApiServer, Fault, PODS, PODSETS, PodScript, Requests, object},
    seconds,
};

/// Pods of namespace `default`, as the client `test` sees them.
fn pods(server: &ApiServer) -> Api<Pod> {
    Api::namespaced(server.client("test"), "default")
}

fn exists(server: &ApiServer, name: &str) -> bool {
    !server.pod("default", name).is_null()
}

/// PodSets of namespace `default`, as the client `test` sees them.
fn podsets(server: &ApiServer) -> Api<PodSet> {
    Api::namespaced(server.client("test"), "default")
}

/// A pod that belongs to the PodSet `web` of this UID.
fn owned_pod(server: &ApiServer, owner: &str, name: &str) {
    let metadata = json!({ "name": name, "ownerReferences": [object::owner_reference("web", owner)] });
    server.create(&PODS, "default", apiserver::pod(metadata));
}

fn pod(metadata: Value) -> Pod {
    serde_json::from_value(apiserver::pod(metadata)).expect("a pod")
}

fn failure<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a Status of failure, got {other:?}"),
    }
}
