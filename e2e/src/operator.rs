//! The operator under test: built from this workspace, run as a process, ended with its scenario.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tokio::process::{Child, Command};

use crate::process::printed;

/// Builds the operator and answers where its binary is: `cargo test` of this crate builds no other package's. A binary
/// named by `E2E_OPERATOR_BINARY` is taken as it is.
pub async fn build() -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("E2E_OPERATOR_BINARY") {
        return Ok(binary.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "podset-operator", "--bin", "podset-operator"]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    // What cargo says of this package to its tests would make build scripts of others run again, each time.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&variable);
        }
    }
    let messages = printed(command).await.context("the operator does not compile")?;
    executable(&messages).context("cargo built the operator and does not say where")
}

fn executable(messages: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable).next_back()
}

/// A running operator; killed when it is dropped.
pub struct Operator {
    process: Child,
    log: PathBuf,
}

impl Operator {
    /// Runs the binary for these namespaces (none: all of them), with its log in a file.
    pub fn start(
        binary: &Path,
        kubeconfig: &Path,
        namespaces: &[&str],
        mark: (&str, &str),
        log: PathBuf,
    ) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(["run", "--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0"]);
        command.arg("--kubeconfig").arg(kubeconfig);
        for namespace in namespaces {
            command.args(["--watch-namespace", namespace]);
        }
        // Nothing of the caller's settings: neither flags by environment nor another kubeconfig nor another log level.
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("PODSET_OPERATOR_") || name.starts_with("OTEL_") {
                command.env_remove(&variable);
            }
        }
        command.env_remove("KUBECONFIG").env_remove("RUST_LOG").env("NO_COLOR", "1").env(mark.0, mark.1);
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let process = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        Ok(Self { process, log })
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// An error with its last words if it is not running any more.
    pub fn is_running(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the operator ended by itself ({status}): {}", tail(&self.log, 5)),
        }
    }

    /// Kills it on the spot (SIGKILL) and waits until it is gone.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }

    /// Asks it to end (SIGTERM) and answers how it ended.
    pub async fn terminate(mut self, limit: Duration) -> Result<ExitStatus> {
        self.is_running()?;
        let pid = self.process.id().context("the operator has ended already")?;
        let kill = Command::new("bash").args(["-c", "kill -TERM \"$0\"", &pid.to_string()]).status().await?;
        ensure!(kill.success(), "kill -TERM {pid} failed");
        match tokio::time::timeout(limit, self.process.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("the operator still runs {} s after SIGTERM: {}", limit.as_secs(), tail(&self.log, 5)),
        }
    }
}

/// The last lines of a file, as far as it can be read.
pub fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| format!("{}: {error}", file.display()));
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_the_last_executable_that_cargo_names() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/podset-operator\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/podset-operator")));
    }
}
