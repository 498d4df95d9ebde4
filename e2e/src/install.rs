//! Installs what a user installs before the operator runs: the CRDs and the rights of `config/rbac`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::process::{eventually, printed};

/// Name of the CRD of PodSets.
pub const SETS: &str = "podsets.app.example.com";
const RESOURCES: &str = "mycustomresources.poc.test.domain";

/// Installs the CRDs of this binary and the rights. The garbage collector looks for new kinds only every 30 s.
pub async fn install(cluster: &Cluster, binary: &Path) -> Result<()> {
    let mut crd = Command::new(binary);
    crd.arg("crd");
    let crds = printed(crd).await?;
    let kubectl = Kubectl::new(cluster, "");
    kubectl.run_with(&["apply", "-f", "-"], &crds).await?;
    let names = [format!("crd/{SETS}"), format!("crd/{RESOURCES}")];
    // Until the API server has filled in the conditions, `kubectl wait` fails instead of waiting.
    let wait = ["wait", "--for=condition=Established", &names[0], &names[1]];
    eventually("the CRDs to be established", Duration::from_secs(60), || kubectl.run(&wait)).await?;
    let rbac = crate::root().join("config/rbac");
    kubectl.run(&["apply", "-k", &rbac.to_string_lossy()]).await.map(drop)
}
