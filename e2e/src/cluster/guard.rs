//! A process that outlives the harness and ends what it has started, also if the harness is killed. It waits on a pipe that only the harness
//! holds. It is this program, with an environment variable.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use procfs::process::all_processes;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::docker;
use crate::root;

/// Every process with this variable and the cluster's name ends with the cluster.
pub const MARK: &str = "E2E_CLUSTER_NAME";

/// Makes this program a guard.
const ORDER: &str = "E2E_GUARD";

/// What a guard ends after all processes with the mark: a container and the folder that it shares, or a cluster of `hack/cluster`.
#[derive(Deserialize, Serialize)]
struct Order {
    name: String,
    container: Option<PathBuf>,
}

/// The harness's side of the guard.
pub struct Guard {
    process: Mutex<Child>,
}

impl Guard {
    /// Starts the guard. The cluster is started after it, so that it never remains.
    pub fn start(name: &str, container: Option<PathBuf>) -> Result<Self> {
        let order = serde_json::to_string(&Order { name: name.to_owned(), container })?;
        let mut command = Command::new(std::env::current_exe()?);
        // In its own process group, so that Ctrl-C does not end it.
        command.env(ORDER, order).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        Ok(Self { process: Mutex::new(command.spawn().context("starting the cluster's guard")?) })
    }

    /// Lets the guard work, and waits.
    pub fn end(&self) {
        let mut process = self.process.lock();
        drop(process.stdin.take());
        if !process.wait().is_ok_and(|status| status.success()) {
            eprintln!("e2e: not everything that was started could be ended, for the reason above");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

/// Does a guard's work if this process was started as one.
pub fn serve() -> Option<ExitCode> {
    let order = std::env::var(ORDER).ok()?;
    let done = serde_json::from_str(&order).map_err(anyhow::Error::from).and_then(wait_and_end);
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a panic: the reader of the error output may be gone.
            let _ = writeln!(std::io::stderr(), "e2e: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn wait_and_end(Order { name, container }: Order) -> Result<()> {
    // The pipe ends with the harness.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    kill_marked(&name);
    let Some(folder) = container else {
        let down = Command::new(script()).args(["down", &name]).stderr(Stdio::null()).status()?;
        ensure!(down.success(), "the cluster {name} did not end: '{} down {name}' says why", script().display());
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let removed = runtime.block_on(docker::remove(&name));
    // Files of root may remain.
    let _ = std::fs::remove_dir_all(folder);
    removed
}

fn kill_marked(name: &str) {
    for process in all_processes().into_iter().flatten().flatten() {
        let is_marked =
            process.environ().is_ok_and(|environ| environ.get(OsStr::new(MARK)).is_some_and(|it| it == name));
        if let Some(id) = Pid::from_raw(process.pid).filter(|_| is_marked) {
            // It may have exited.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

pub fn script() -> PathBuf {
    root().join("hack/cluster/cluster")
}
