//! The objects and the process of each contestant.

use anyhow::{Context, Result};
use e2e::account::Account;
use e2e::operator::{Operator, Settings, Times};
use e2e::rights::{ACCOUNT, HOME};
use e2e::types::PodSet;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::place::{NAMESPACE, PEER, Place};
use crate::records::Contestant;

/// The kind of the contestant's sets; `None` for bare requests.
pub fn sets(contestant: Contestant) -> Option<ApiResource> {
    match contestant {
        Contestant::Operator | Contestant::Go => Some(ApiResource::erase::<PodSet>(&())),
        Contestant::ReplicaSet => Some(ApiResource::erase::<ReplicaSet>(&())),
        Contestant::Deployment => Some(ApiResource::erase::<Deployment>(&())),
        Contestant::Floor => None,
    }
}

/// A set of the operator's default pods, which are the same for every contestant. If it `rolls`, half of them may be down at once.
pub fn set(resource: &ApiResource, name: &str, replicas: usize, rolls: bool) -> Result<Value> {
    let mut spec = json!({"replicas": replicas});
    if resource.kind != "PodSet" {
        spec["selector"] = json!({"matchLabels": labels(name)});
        spec["template"] = json!({"metadata": {"labels": labels(name)}, "spec": pod_spec()?});
    } else if rolls {
        spec["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": "50%"}});
        spec["template"] = json!({"spec": pod_spec()?});
    }
    if resource.kind == "Deployment" {
        spec["strategy"] = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}});
    }
    Ok(json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}))
}

/// A bare pod, with the labels of this set.
pub fn pod(set: &str) -> Result<Value> {
    let metadata = json!({"generateName": format!("{set}-pod"), "labels": labels(set)});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()?}))
}

/// As many and as long as the operator's labels, but not the one by which it selects its pods.
fn labels(set: &str) -> Value {
    json!({"app": set, "version": "v0.1", "app.kubernetes.io/managed-by": "podset-benchmark"})
}

fn pod_spec() -> Result<Value> {
    serde_json::from_str(include_str!("../pod-spec.json")).context("pod-spec.json")
}

/// The patch that restarts the pods of a set, as `kubectl rollout restart` does.
pub fn restart() -> Value {
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": Timestamp::now()});
    json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})
}

/// Starts a process of the contestant; bare requests have none. The operator has the default flags, except for the ports of probes and
/// metrics. Its account and Lease are in the namespace `home`. A tenant's operator watches only this namespace.
pub async fn start(place: &Place, contestant: Contestant, name: String, home: &str) -> Result<Option<Operator>> {
    let process = match contestant {
        Contestant::Operator => {
            let account = Account::existing(&place.cluster, home, ACCOUNT).await?;
            let namespaces: &[_] = if home == HOME { &[] } else { &[home] };
            let settings = Settings { serves: true, ..Settings::of(namespaces).elected(Times::DEFAULT) };
            Operator::join(&place.cluster, &place.binary, name, &account, &settings, &place.folder)
        }
        Contestant::ReplicaSet => start_controllers(place, name, "replicaset-controller"),
        Contestant::Deployment => start_controllers(place, name, "deployment-controller,replicaset-controller"),
        Contestant::Go => {
            let account = Account::existing(&place.cluster, NAMESPACE, PEER).await?;
            let kubeconfig = place.folder.join(format!("{name}.kubeconfig"));
            account.write_kubeconfig(&place.cluster.server, &kubeconfig)?;
            let mut command = Command::new(place.go_peer.as_deref().context("the Go operator was not built")?);
            command.arg("--kubeconfig").arg(kubeconfig);
            Operator::start(command, name, account.user(), &place.cluster, &place.folder)
        }
        Contestant::Floor => return Ok(None),
    };
    process.map(Some)
}

/// Starts a kube-controller-manager with these controllers only.
fn start_controllers(place: &Place, name: String, controllers: &str) -> Result<Operator> {
    let mut command = Command::new(place.cluster.kubectl.with_file_name("kube-controller-manager"));
    command.arg("--kubeconfig").arg(&place.cluster.kubeconfig).args([
        &format!("--controllers={controllers}"),
        "--use-service-account-credentials", // the audit log has only the requests of these users
        "--leader-elect=false",              // the cluster's kube-controller-manager holds the Lease
        "--secure-port=0",
        "--kube-api-qps=5000", // kwokctl sets these limits for clients without limits
        "--kube-api-burst=10000",
    ]);
    Operator::start(command, name, "kube-controller-manager".to_owned(), &place.cluster, &place.folder)
}
