//! The operator under test: a process of this machine, or the Deployment of `config/manager` from its image. It ends with its scenario.

mod build;
mod clock;
mod deployment;
mod settings;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::account::Account;
use crate::cluster::Cluster;

pub use build::{BINARY, Profile, build};
pub use clock::build_wall_clock;
pub use deployment::{Deployment, image, relative};
pub use settings::{Election, Settings};

/// What the harness knows of a controller before it runs.
pub struct Plan<'a> {
    /// The binary.
    pub binary: &'a Path,
    /// Its name, which it is told as the name of its pod.
    pub name: String,
    /// What the API server calls it.
    pub user: String,
    /// By which it finds the API server.
    pub kubeconfig: PathBuf,
    /// Its arguments but for the kubeconfig.
    pub arguments: Vec<String>,
    /// Its environment, besides.
    pub environment: Vec<(&'static str, String)>,
    /// Its cluster, which it does not outlive.
    pub cluster: &'a Cluster,
    /// Where its log goes, under its name.
    pub folder: &'a Path,
}

/// A running operator. A process is killed when it is dropped; a Deployment goes with its namespace.
pub struct Operator {
    process: Option<Child>,
    name: String,
    user: String,
    log: PathBuf,
    began: Timestamp,
}

impl Operator {
    /// Runs the binary as one replica, for which this account is at the API server: the Lease, if there is an election, is in the
    /// account's namespace. Its kubeconfig and its log are in `folder`.
    pub fn join(
        cluster: &Cluster,
        binary: &Path,
        name: String,
        account: &Account,
        settings: &Settings,
        folder: &Path,
    ) -> Result<Self> {
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        account.write_kubeconfig(settings.server.as_ref().unwrap_or(cluster.server()), &kubeconfig)?;
        let arguments = std::iter::once("run".to_owned()).chain(settings.flags(account.namespace())).collect();
        let (user, environment) = (account.user(), settings.environment());
        Self::start(Plan { binary, name, user, kubeconfig, arguments, environment, cluster, folder })
    }

    /// Runs the binary: that of an operator, or of a controller that it is compared with.
    pub fn start(plan: Plan) -> Result<Self> {
        let Plan { binary, name, user, kubeconfig, arguments, environment, cluster, folder } = plan;
        let log = folder.join(format!("{name}.log"));
        let mut command = Command::new(binary);
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
        // Nothing of the caller's settings: neither flags by environment nor another kubeconfig nor another log level.
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("PODSET_OPERATOR_") || name.starts_with("OTEL_") {
                command.env_remove(&variable);
            }
        }
        command.env_remove("KUBECONFIG").env_remove("RUST_LOG").env("NO_COLOR", "1").env("POD_NAME", &name);
        command.envs(environment).envs([cluster.mark()]);
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let began = Timestamp::now();
        let process = Some(command.spawn().with_context(|| format!("starting {}", binary.display()))?);
        Ok(Self { process, name, user, log, began })
    }

    /// One that runs in the cluster.
    fn deployed(name: String, user: String, log: PathBuf) -> Self {
        Self { process: None, name, user, log, began: Timestamp::now() }
    }

    fn process(&mut self) -> Result<&mut Child> {
        self.process
            .as_mut()
            .with_context(|| format!("{} runs in the cluster and is no process of this machine", self.name))
    }

    /// Its name, by which the holder's identity in a Lease begins.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the API server calls it: no other process has this user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// When it was started.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// The number of its process.
    pub fn id(&mut self) -> Result<u32> {
        self.process()?.id().context("it has ended")
    }

    /// An error with its last words if it is not running any more.
    pub fn is_running(&mut self) -> Result<()> {
        // In the cluster a kubelet sees to that.
        let Some(process) = &mut self.process else { return Ok(()) };
        match process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended by itself ({status}): {}", self.name, tail(&self.log, 5)),
        }
    }

    /// Sends it a signal; an error where it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        // Until its end was asked for its number is its own, even if it is dead.
        self.is_running()?;
        let pid = Pid::from_raw(self.id()?.cast_signed()).context("a process without a number")?;
        kill_process(pid, signal).with_context(|| format!("sending signal {} to {}", signal.as_raw(), self.name))
    }

    /// Asks it to end (SIGTERM), and does not wait.
    pub fn ask_to_end(&mut self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Stops its time (SIGSTOP).
    pub fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets its time go on (SIGCONT).
    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until it has ended, by itself or asked to.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(limit, self.process()?.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("{} still runs after {} s: {}", self.name, limit.as_secs(), tail(&self.log, 5)),
        }
    }

    /// Kills it on the spot (SIGKILL) and waits until it is gone.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.process()?.kill().await?)
    }

    /// Asks it to end (SIGTERM) and answers how it ended.
    pub async fn terminate(mut self, limit: Duration) -> Result<ExitStatus> {
        self.ask_to_end()?;
        self.ended(limit).await
    }

    /// The lines of its log with these words.
    pub fn said(&self, words: &str) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

/// The last lines of a file, as far as it can be read.
pub fn tail(file: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| format!("{}: {error}", file.display()));
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
