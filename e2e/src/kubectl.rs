//! kubectl, as users call it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::cluster::Cluster;

#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Kubectl {
    /// kubectl with this namespace, or with none if it is empty.
    pub fn new(cluster: &Cluster, namespace: &str) -> Self {
        let (program, kubeconfig) = (cluster.kubectl.clone(), cluster.kubeconfig.clone());
        Self { program, kubeconfig, namespace: namespace.to_owned() }
    }

    /// Returns what it prints, or fails with its error output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, "").await
    }

    /// The same with a manifest for `-f -`.
    pub async fn run_with(&self, arguments: &[&str], manifest: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        // The cache must end with the cluster: the next one at the same port has other kinds.
        let cache = self.kubeconfig.with_file_name("kubectl-cache");
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(cache);
        if !self.namespace.is_empty() {
            command.args(["--namespace", &self.namespace]);
        }
        // Without the caller's settings.
        command.env_remove("KUBECONFIG").env("KUBECTL_KUBERC", "false").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("running {}", self.program.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // It may exit before it has read everything. Its exit code shows that.
            let _ = stdin.write_all(manifest.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if !output.status.success() {
            bail!("kubectl {}: {error}", arguments.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns its error output, or fails if it succeeds.
    pub async fn rejected(&self, arguments: &[&str], manifest: &str) -> Result<String> {
        match self.run_with(arguments, manifest).await {
            Ok(output) => bail!("kubectl {} was not rejected: {output}", arguments.join(" ")),
            Err(rejection) => Ok(rejection.to_string()),
        }
    }
}
