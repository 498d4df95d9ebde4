//! The local way: the parts of Kubernetes as processes of this machine, by `hack/cluster`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::Command;
use tokio::time::sleep;

use super::guard::{Guard, MARK, script};
use super::{Cluster, Found, Wanted};
use crate::process::printed;

/// As on OpenShift: setting blockOwnerDeletion requires the right to change the owner's finalizers.
const STRICT: &str = "kube-apiserver=enable-admission-plugins=OwnerReferencesPermissionEnforcement";

/// The audit log is not rotated.
const ONE_LOG: &str = "kube-apiserver=audit-log-maxsize=100000";

/// A busy disk delays no Lease. The data survives the end of etcd, but not of the machine.
const NO_FSYNC: &str = "etcd=unsafe-no-fsync=true";

/// Starts a cluster. The first time, that builds Kubernetes.
pub async fn start(name: &str, wanted: &Wanted, folder: &Path) -> Result<Found> {
    let bin = binaries().await?;
    let guard = Guard::start(name, None)?;
    let mut up = Command::new(script());
    up.args(["up", name, "--", "--kube-audit-policy"]).arg(&wanted.audit_policy);
    // kwokctl panics unless the first argument of each part comes before any second one.
    up.args(["--extra-args", STRICT]);
    if !wanted.is_durable {
        up.args(["--extra-args", NO_FSYNC]);
    }
    up.args(&wanted.arguments);
    if let Some(collector) = wanted.traces {
        up.args(traced(collector, &folder.join(format!("{name}-tracing.yaml")))?);
    }
    up.args(["--extra-args", ONE_LOG]);
    up.env("NODES", wanted.nodes.to_string()).env("NODE_PODS", wanted.pods_a_node.to_string());
    // The guard ends it, too.
    up.env(MARK, name);
    let kubeconfig = PathBuf::from(printed(up).await?);
    let audit_log = kubeconfig.with_file_name("logs").join("audit.log");
    Ok(Found { kubeconfig, kubectl: bin.join("kubectl"), audit_log, guard })
}

/// Lets the API server and etcd send the traces that clients have started to this collector.
fn traced(collector: SocketAddr, file: &Path) -> Result<Vec<String>> {
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration",
        "endpoint": collector.to_string(), "samplingRatePerMillion": 0,
    });
    std::fs::write(file, config.to_string()).with_context(|| format!("writing {}", file.display()))?;
    let arguments = [
        "etcd=enable-distributed-tracing=true".to_owned(),
        format!("kube-apiserver=tracing-config-file={}", file.display()),
        format!("etcd=distributed-tracing-address={collector}"),
    ];
    Ok(arguments.into_iter().flat_map(|argument| ["--extra-args".to_owned(), argument]).collect())
}

/// The folder of kubectl and of the parts, which are built if they are missing.
async fn binaries() -> Result<PathBuf> {
    let mut bin = Command::new(script());
    bin.arg("bin");
    Ok(printed(bin).await?.into())
}

/// kubectl from the PATH, or the one of the local cluster.
pub async fn kubectl() -> Result<PathBuf> {
    let mut version = Command::new("kubectl");
    version.args(["version", "--client"]).stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().await.is_ok_and(|status| status.success()) {
        return Ok("kubectl".into());
    }
    let bin = binaries().await.context("kubectl is not on the PATH, and cannot be built: install it")?;
    Ok(bin.join("kubectl"))
}

impl Cluster {
    /// Kills a part of the control plane (kube-apiserver, etcd, …), and waits until it has ended or is a zombie.
    pub async fn kill_part(&self, part: &str) -> Result<()> {
        let file = self.kubeconfig.with_file_name("pids").join(format!("{part}.pid"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let id = Pid::from_raw(text.trim().parse()?).context("a process without a number")?;
        kill_process(id, Signal::KILL).with_context(|| format!("killing {part}"))?;
        while std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Starts the parts of the control plane that have ended, and waits until all work.
    pub async fn heal(&self) -> Result<()> {
        let mut up = Command::new(script());
        up.args(["up", &self.name]).env(MARK, &self.name);
        printed(up).await.map(drop)
    }
}
