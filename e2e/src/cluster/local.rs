//! The local provider: `hack/cluster`, and a guard that ends what was started when the harness ends, also if it is
//! killed: the guard waits on a pipe that only the harness holds.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result};

use super::Wanted;
use crate::process::printed;

/// Every process with this variable and the cluster's name in its environment ends with the cluster.
pub const MARK: &str = "E2E_CLUSTER_NAME";

/// As on OpenShift: who sets blockOwnerDeletion needs the right to change the owner's finalizers.
const STRICT: &str = "kube-apiserver=enable-admission-plugins=OwnerReferencesPermissionEnforcement";

/// Waits for the end of its standard input, then ends the marked processes ($1) and, by the script ($2), the cluster ($3).
const GUARD: &str = r#"
cat >/dev/null
for process in /proc/[0-9]*; do
  if grep -qzFx "$1" "$process/environ" 2>/dev/null; then kill -KILL "${process##*/}"; fi
done
exec "$2" down "$3" 2>/dev/null # whoever read our words may be gone: a broken pipe must not stop this
"#;

/// A cluster of `hack/cluster`.
pub struct Local {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    guard: Mutex<Child>,
}

impl Local {
    /// Starts it; the first time on a machine that builds Kubernetes, and says so.
    pub async fn start(name: &str, wanted: &Wanted) -> Result<Self> {
        let script = script();
        let mut bin = tokio::process::Command::new(&script);
        bin.arg("bin");
        let binaries = printed(bin).await?;
        // Before the cluster: whatever ends the harness while that starts must not leave it behind.
        let guard = Mutex::new(guard(&script, name)?);
        let mut up = tokio::process::Command::new(&script);
        up.args(["up", name, "--", "--kube-audit-policy"]).arg(audit_policy());
        up.args(["--extra-args", STRICT]);
        up.env("NODES", wanted.nodes.to_string()).env("NODE_PODS", wanted.pods_a_node.to_string());
        // Marked, so that the guard ends it too: after the guard it would start what nobody ends.
        up.env(MARK, name);
        let kubeconfig = printed(up).await;
        let mut local = Self { kubeconfig: PathBuf::new(), kubectl: Path::new(&binaries).join("kubectl"), guard };
        local.kubeconfig = kubeconfig?.into();
        Ok(local)
    }

    /// Ends it and waits until it is gone.
    pub fn end(&self) {
        let mut guard = self.guard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(guard.stdin.take());
        if !guard.wait().is_ok_and(|status| status.success()) {
            eprintln!("e2e: the cluster did not end in an orderly way: see '{} status'", script().display());
        }
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn kubectl(&self) -> PathBuf {
        self.kubectl.clone()
    }

    pub fn audit_log(&self) -> PathBuf {
        self.kubeconfig.with_file_name("logs").join("audit.log")
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.end();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/cluster/cluster")
}

fn audit_policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cluster/audit-policy.yaml")
}

/// A group of its own keeps Ctrl-C in a terminal from the guard: it has to outlive the harness.
fn guard(script: &Path, name: &str) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let mark = format!("{MARK}={name}");
    let mut command = Command::new("bash");
    command.args(["-c", GUARD, "guard", &mark]).arg(script).arg(name);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    command.spawn().context("starting bash for the cluster's guard")
}
