//! The objects and the process of each contestant.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::account::Account;
use e2e::operator::{Election, Operator, Settings};
use e2e::rights::{ACCOUNT, HOME};
use e2e::types::PodSet;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::place::{FLOOR, GO, NAMESPACE, Place};
use crate::records::Contestant;

/// The limits that kwokctl sets for clients without limits.
const QPS: &str = "--kube-api-qps=5000";
const BURST: &str = "--kube-api-burst=10000";

/// The kind of the contestant's sets; `None` for bare requests.
pub fn sets(contestant: Contestant) -> Option<ApiResource> {
    match contestant {
        Contestant::Operator | Contestant::Go => Some(ApiResource::erase::<PodSet>(&())),
        Contestant::ReplicaSet => Some(ApiResource::erase::<ReplicaSet>(&())),
        Contestant::Floor => None,
    }
}

/// The path of the sets of a namespace.
pub fn path(resource: &ApiResource, namespace: &str) -> String {
    format!("/apis/{}/namespaces/{namespace}/{}", resource.api_version, resource.plural)
}

/// A set of the operator's default pods, which are the same for every contestant.
pub fn set(resource: &ApiResource, name: &str, replicas: usize) -> Result<Value> {
    let mut spec = json!({"replicas": replicas});
    if resource.kind == "ReplicaSet" {
        spec["selector"] = json!({"matchLabels": labels(name)});
        spec["template"] = json!({"metadata": {"labels": labels(name)}, "spec": pod_spec()?});
    }
    Ok(json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}))
}

/// A bare pod, with the labels of this set.
pub fn pod(set: &str, name: &str) -> Result<Value> {
    let metadata = json!({"name": name, "generateName": format!("{set}-pod"), "labels": labels(set)});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()?}))
}

/// As many and as long as the operator's labels, but not the one by which it selects its pods.
fn labels(set: &str) -> Value {
    json!({"app": set, "version": "v0.1", "app.kubernetes.io/managed-by": "podset-benchmark"})
}

fn pod_spec() -> Result<Value> {
    serde_json::from_str(include_str!("../pod-spec.json")).context("pod-spec.json")
}

/// The contestant's user name at the API server.
pub fn user(contestant: Contestant) -> String {
    match contestant {
        Contestant::Operator => format!("system:serviceaccount:{HOME}:{ACCOUNT}"),
        Contestant::ReplicaSet => "system:serviceaccount:kube-system:replicaset-controller".to_owned(),
        Contestant::Go => format!("system:serviceaccount:{NAMESPACE}:{GO}"),
        Contestant::Floor => format!("system:serviceaccount:{NAMESPACE}:{FLOOR}"),
    }
}

/// Starts the contestant's process; bare requests have none.
pub async fn start(place: &Place, contestant: Contestant) -> Result<Option<Operator>> {
    match contestant {
        Contestant::Operator => start_operator(place).await.map(Some),
        Contestant::ReplicaSet => start_replicaset_controller(place).map(Some),
        Contestant::Go => start_go_peer(place).await.map(Some),
        Contestant::Floor => Ok(None),
    }
}

/// Starts the operator for all namespaces with the default flags, except for the ports of probes and metrics.
async fn start_operator(place: &Place) -> Result<Operator> {
    let name = format!("operator-{}", place.rounds);
    let account = Account::existing(&place.cluster, HOME, ACCOUNT).await?;
    let settings = Settings::default().elected(Election::DEFAULT).serving();
    Operator::join(&place.cluster, &place.binary, name, &account, &settings, &place.folder)
}

fn start_replicaset_controller(place: &Place) -> Result<Operator> {
    let mut command = Command::new(place.cluster.kubectl().with_file_name("kube-controller-manager"));
    command.arg("--kubeconfig").arg(place.cluster.kubeconfig()).args([
        "--controllers=replicaset-controller",
        "--use-service-account-credentials", // so that the audit log shows its own user
        "--leader-elect=false",              // the cluster's kube-controller-manager holds the Lease
        "--secure-port=0",
        QPS,
        BURST,
    ]);
    let name = format!("replicaset-{}", place.rounds);
    Operator::start(command, name, user(Contestant::ReplicaSet), &place.cluster, &place.folder)
}

async fn start_go_peer(place: &Place) -> Result<Operator> {
    let name = format!("go-{}", place.rounds);
    let kubeconfig = place.folder.join(format!("{name}.kubeconfig"));
    let account = Account::existing(&place.cluster, NAMESPACE, GO).await?;
    account.write_kubeconfig(place.cluster.server(), &kubeconfig)?;
    let mut command = Command::new(place.go_peer.as_deref().context("the Go operator was not built")?);
    command.arg("--kubeconfig").arg(kubeconfig);
    Operator::start(command, name, account.user(), &place.cluster, &place.folder)
}

/// Terminates it and waits. The operator releases its Lease.
pub async fn end(contestant: Contestant, process: Operator) -> Result<()> {
    let name = process.name().to_owned();
    let status = process.terminate(Duration::from_secs(30)).await?;
    ensure!(contestant != Contestant::Operator || status.success(), "after SIGTERM, {name} ended with {status}");
    Ok(())
}
