//! The operator under test: a process of this machine, or the Deployment of `config/manager`. It ends with its scenario.

mod build;
mod deployment;
mod settings;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::account::Account;
use crate::cluster::Cluster;
use crate::process::tail;

pub use build::{BINARY, build, built};
pub use deployment::Deployment;
pub use settings::{Settings, Times};

/// A running operator. A process is killed when this is dropped.
pub struct Operator {
    process: Option<Child>,
    /// The prefix of its identity in the Lease.
    pub name: String,
    pub user: String,
    pub log: PathBuf,
}

impl Operator {
    /// Starts a replica with this account. The Lease is in the account's namespace.
    pub fn join(
        cluster: &Cluster,
        binary: &Path,
        name: String,
        account: &Account,
        settings: &Settings,
        folder: &Path,
    ) -> Result<Self> {
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        account.write_kubeconfig(settings.server.as_ref().unwrap_or(&cluster.server), &kubeconfig)?;
        let mut command = Command::new(binary);
        command.arg("run").args(settings.flags(&account.namespace)).envs(settings.environment());
        command.arg("--kubeconfig").arg(kubeconfig);
        Self::start(command, name, account.user(), cluster, folder)
    }

    /// Starts a controller, whose user at the API server is `user`. Its log is in `folder`, and it is killed with the cluster.
    pub fn start(mut command: Command, name: String, user: String, cluster: &Cluster, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        // Without the caller's settings.
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("PODSET_OPERATOR_") || name.starts_with("OTEL_") {
                command.env_remove(&variable);
            }
        }
        command.env_remove("KUBECONFIG").env_remove("RUST_LOG").env("NO_COLOR", "1").env("POD_NAME", &name);
        command.envs([cluster.mark()]);
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let process = Some(command.spawn().with_context(|| format!("starting {name}"))?);
        Ok(Self { process, name, user, log })
    }

    fn process(&mut self) -> Result<&mut Child> {
        self.process
            .as_mut()
            .with_context(|| format!("{} runs in the cluster and is no process of this machine", self.name))
    }

    pub fn id(&mut self) -> Result<u32> {
        self.process()?.id().context("it has ended")
    }

    /// Fails with the end of its log if it has exited.
    pub fn is_running(&mut self) -> Result<()> {
        // In the cluster, the kubelet restarts it.
        let Some(process) = &mut self.process else { return Ok(()) };
        match process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended by itself ({status}): {}", self.name, tail(&self.log, 5)),
        }
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        // Its ID is not reused before its exit status was read.
        self.is_running()?;
        let pid = Pid::from_raw(self.id()?.cast_signed()).context("a process without a number")?;
        kill_process(pid, signal).with_context(|| format!("sending signal {} to {}", signal.as_raw(), self.name))
    }

    /// Waits until it has exited.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(limit, self.process()?.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("{} still runs after {} s: {}", self.name, limit.as_secs(), tail(&self.log, 5)),
        }
    }

    pub async fn kill(mut self) -> Result<()> {
        Ok(self.process()?.kill().await?)
    }

    /// Terminates it (SIGTERM) and waits.
    pub async fn terminate(mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended(limit).await
    }
}
