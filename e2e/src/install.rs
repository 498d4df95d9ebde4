//! Installs what a user installs before the operator runs: the CRDs and the rights of `config/rbac`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::process::printed;

const SETS: &str = "podsets.app.example.com";
const SEEKERS: &str = "mycustomresources.poc.test.domain";

/// Installs the CRDs of this binary and the rights. The garbage collector looks for new kinds only every 30 s.
pub async fn install(cluster: &Cluster, binary: &Path) -> Result<()> {
    let mut crd = Command::new(binary);
    crd.arg("crd");
    let crds = printed(crd).await?;
    let kubectl = Kubectl::new(cluster, "");
    kubectl.run_with(&["apply", "-f", "-"], &crds).await?;
    let names = [format!("crd/{SETS}"), format!("crd/{SEEKERS}")];
    // Until the API server has filled in the conditions, `kubectl wait` fails instead of waiting.
    let established = async {
        while kubectl.run(&["wait", "--for=condition=Established", &names[0], &names[1]]).await.is_err() {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(Duration::from_secs(60), established).await.context("the CRDs are not established")?;
    let rbac = crate::root().join("config/rbac");
    kubectl.run(&["apply", "-k", &rbac.to_string_lossy()]).await.map(drop)
}

/// Raises the maximum of `spec.replicas`, and waits until that is in force.
pub async fn raise_bound(cluster: &Cluster, most: usize) -> Result<()> {
    let kubectl = Kubectl::new(cluster, "default");
    let replicas = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
    let patch = json!([
        {"op": "replace", "path": format!("{replicas}/maximum"), "value": most},
        {"op": "add", "path": format!("{replicas}/x-kubernetes-validations"), "value": []},
    ])
    .to_string();
    kubectl.run(&["patch", "crd", SETS, "--type=json", "--patch", &patch]).await?;
    let largest = json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "largest"},
        "spec": {"replicas": most}
    })
    .to_string();
    let accepted = async {
        while kubectl.run_with(&["create", "--dry-run=server", "-f", "-"], &largest).await.is_err() {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(Duration::from_secs(30), accepted).await.context("the higher maximum does not come into force")
}
