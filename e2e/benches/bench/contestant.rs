//! Who works on the sets: its objects, and its process.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::account::Account;
use e2e::bench::records::Contestant;
use e2e::operator::{Election, Operator, Plan, Settings};
use e2e::rights::{ACCOUNT, HOME};
use e2e::types::PodSet;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::api::ApiResource;
use serde_json::{Value, json};

use crate::place::{FLOOR, GO, NAMESPACE, Place};

/// What kwokctl gives to clients that shall have no limits.
const QPS: &str = "--kube-api-qps=5000";
const BURST: &str = "--kube-api-burst=10000";

/// The sets of a contestant, where it has such.
pub fn sets(contestant: Contestant) -> Option<ApiResource> {
    match contestant {
        Contestant::Operator | Contestant::Go => Some(ApiResource::erase::<PodSet>(&())),
        Contestant::ReplicaSet => Some(ApiResource::erase::<ReplicaSet>(&())),
        Contestant::Floor => None,
    }
}

/// Where the API server has the sets of a namespace.
pub fn path(resource: &ApiResource, namespace: &str) -> String {
    format!("/apis/{}/namespaces/{namespace}/{}", resource.api_version, resource.plural)
}

/// A set of the operator's default pods: whoever makes them, they are the same.
pub fn set(resource: &ApiResource, name: &str, replicas: usize) -> Value {
    let mut spec = json!({"replicas": replicas});
    if resource.kind == "ReplicaSet" {
        spec["selector"] = json!({"matchLabels": labels(name)});
        spec["template"] = json!({"metadata": {"labels": labels(name)}, "spec": pod_spec()});
    }
    json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec})
}

/// A pod of a set that is none.
pub fn pod(set: &str, name: &str) -> Value {
    let prefix = format!("{set}-pod");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "generateName": prefix, "labels": labels(set)},
        "spec": pod_spec()
    })
}

/// As many and as long as the operator's, and not its own: it watches pods by the last one.
fn labels(set: &str) -> Value {
    json!({"app": set, "version": "v0.1", "app.kubernetes.io/managed-by": "podset-benchmark"})
}

fn pod_spec() -> Value {
    json!({"containers": [{
        "name": "fancy-alpine",
        "image": "quay.io/amacdona/strauss",
        "command": ["sleep", "3600"],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"}
        }
    }]})
}

/// What the API server calls a contestant.
pub fn user(contestant: Contestant) -> String {
    match contestant {
        Contestant::Operator => format!("system:serviceaccount:{HOME}:{ACCOUNT}"),
        Contestant::ReplicaSet => "system:serviceaccount:kube-system:replicaset-controller".to_owned(),
        Contestant::Go => format!("system:serviceaccount:{NAMESPACE}:{GO}"),
        Contestant::Floor => format!("system:serviceaccount:{NAMESPACE}:{FLOOR}"),
    }
}

/// Starts a contestant's process, where it has one.
pub async fn start(place: &Place, contestant: Contestant) -> Result<Option<Operator>> {
    match contestant {
        Contestant::Operator => start_operator(place, "operator", None).await.map(Some),
        Contestant::ReplicaSet => start_replicaset_controller(place).map(Some),
        Contestant::Go => start_go_peer(place).await.map(Some),
        Contestant::Floor => Ok(None),
    }
}

/// Starts the operator for all namespaces, with its defaults but for the ports of probes and metrics.
pub async fn start_operator(place: &Place, role: &str, log_level: Option<&'static str>) -> Result<Operator> {
    let name = format!("{role}-{}", place.courses);
    let account = Account::existing(place.client(), HOME, ACCOUNT).await?;
    let settings = Settings { log_level, ..Settings::default() }.elected(Election::DEFAULT).serving();
    Operator::join(&place.cluster, &place.binary, name, &account, &settings, &place.folder)
}

fn start_replicaset_controller(place: &Place) -> Result<Operator> {
    let arguments = [
        "--controllers=replicaset-controller",
        "--use-service-account-credentials", // so that the audit log tells its requests from others'
        "--leader-elect=false",              // the cluster's own one holds that Lease
        "--secure-port=0",
        QPS,
        BURST,
    ];
    Operator::start(Plan {
        binary: &place.cluster.kubectl().with_file_name("kube-controller-manager"),
        user: user(Contestant::ReplicaSet),
        kubeconfig: place.cluster.kubeconfig().to_owned(),
        arguments: arguments.map(str::to_owned).into(),
        environment: Vec::new(),
        cluster: &place.cluster,
        folder: &place.folder,
        name: format!("replicaset-controller-{}", place.courses),
    })
}

async fn start_go_peer(place: &Place) -> Result<Operator> {
    let name = format!("go-{}", place.courses);
    let account = Account::existing(place.client(), NAMESPACE, GO).await?;
    let kubeconfig = place.folder.join(format!("{name}.kubeconfig"));
    account.write_kubeconfig(place.cluster.server(), &kubeconfig)?;
    Operator::start(Plan {
        binary: place.go_peer.as_deref().context("the Go operator was not built")?,
        user: account.user(),
        kubeconfig,
        arguments: Vec::new(),
        environment: Vec::new(),
        cluster: &place.cluster,
        folder: &place.folder,
        name,
    })
}

/// Asks it to end, and waits for that. The operator gives its Lease back.
pub async fn end(contestant: Contestant, process: Operator) -> Result<()> {
    let name = process.name().to_owned();
    let status = process.terminate(Duration::from_secs(30)).await?;
    ensure!(contestant != Contestant::Operator || status.success(), "asked to end, {name} ended with {status}");
    Ok(())
}
