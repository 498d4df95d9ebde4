//! A cluster that is there already, and stays: named on purpose, never the current context by accident. What is made in it is removed
//! in the end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::guard::{Ending, Guard};
use super::{Found, k3s};
use crate::process::printed;
use crate::rights::HOME;
use crate::root;

/// Every namespace and every object without one that a run makes carries it, with the cluster's name.
pub const LABEL: &str = "podset-operator.e2e/run";

const CRDS: [&str; 2] = ["podsets.app.example.com", "mycustomresources.poc.test.domain"];

/// Of these kinds a run may make objects; no namespace takes them along.
const OF_NO_NAMESPACE: [&str; 5] = [
    "clusterrolebinding",
    "mutatingadmissionpolicy",
    "mutatingadmissionpolicybinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
];

/// A cluster by file and context.
#[derive(Clone, Debug)]
pub struct Named {
    file: PathBuf,
    context: String,
}

impl Named {
    /// As the environment names it: by `E2E_KUBECONFIG` and `E2E_CONTEXT`, both of them.
    pub fn from_environment() -> Result<Self> {
        let named = |variable: &str| std::env::var(variable).ok().filter(|value| !value.is_empty());
        let (Some(file), Some(context)) = (named("E2E_KUBECONFIG"), named("E2E_CONTEXT")) else {
            bail!(
                "E2E_CLUSTER=kubeconfig wants a cluster named on purpose: E2E_KUBECONFIG=FILE and E2E_CONTEXT=NAME \
                 ('kubectl config get-contexts' lists the names). The current context is never taken"
            );
        };
        let file = std::fs::canonicalize(&file).with_context(|| format!("E2E_KUBECONFIG={file}"))?;
        Ok(Self { file, context })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the context {} of {}", self.context, self.file.display())
    }
}

/// What a run has made in a cluster that stays.
#[derive(Debug, Deserialize, Serialize)]
pub struct Traces {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    /// The CRDs that were not there before.
    crds: Vec<String>,
}

/// Takes it, after a look whether an operator is there: that would work on the scenarios' sets as well.
pub async fn take(name: &str, named: &Named, folder: &Path) -> Result<Found> {
    let kubectl = k3s::kubectl().await?;
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let kubeconfig = folder.join("kubeconfig.yaml");
    let mut view = tokio::process::Command::new(&kubectl);
    view.arg("--kubeconfig").arg(&named.file).args(["--context", &named.context]);
    view.args(["config", "view", "--raw", "--flatten", "--minify"]);
    write_secret(&kubeconfig, &printed(view).await.with_context(|| format!("there is no {named}"))?)?;

    let there =
        exists(&kubectl, &kubeconfig, "namespace", HOME).await.with_context(|| format!("{named} cannot be used"))?;
    ensure!(
        !there,
        "the namespace {HOME} is in this cluster: the operator there would work on the scenarios' PodSets too. Take another \
         cluster, or remove it first: make undeploy"
    );
    let mut crds = Vec::new();
    for crd in CRDS {
        if !exists(&kubectl, &kubeconfig, "crd", crd).await? {
            crds.push(crd.to_owned());
        }
    }
    let traces = Traces { kubectl: kubectl.clone(), kubeconfig: kubeconfig.clone(), crds };
    let guard = Guard::start(name, Ending::Kubeconfig(traces))?;
    Ok(Found { kubeconfig, kubectl, audit_log: None, guard })
}

async fn exists(kubectl: &Path, kubeconfig: &Path, kind: &str, name: &str) -> Result<bool> {
    let mut get = tokio::process::Command::new(kubectl);
    get.arg("--kubeconfig").arg(kubeconfig).args(["get", kind, name, "--ignore-not-found", "--output=name"]);
    get.arg("--request-timeout=20s");
    Ok(!printed(get).await?.is_empty())
}

/// Only its owner may read it: it is an administrator's.
fn write_secret(file: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(file)?;
    Ok(file.write_all(text.as_bytes())?)
}

impl Traces {
    /// Removes all of it, and waits until it is gone.
    pub fn remove(&self, name: &str) -> Result<()> {
        let label = format!("--selector={LABEL}={name}");
        let rbac = root().join("config/rbac");
        let mut failed = false;
        // First what holds PodSets, while there is somebody to ask for their kind.
        failed |= !self.delete(&["namespace", &label]);
        let kinds = OF_NO_NAMESPACE.join(",");
        failed |= !self.delete(&[&kinds, &label]);
        failed |= !self.delete(&["-k", &rbac.to_string_lossy()]);
        for crd in &self.crds {
            failed |= !self.delete(&["crd", crd]);
        }
        // The folder is ours, and what is in it is of no use any more.
        let _ = self.kubeconfig.parent().map(std::fs::remove_dir_all);
        ensure!(!failed, "look for what has the label {LABEL}={name} in the cluster, and for the namespace {HOME}");
        Ok(())
    }

    fn delete(&self, what: &[&str]) -> bool {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["delete", "--ignore-not-found", "--timeout=180s"])
            .args(what);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}
