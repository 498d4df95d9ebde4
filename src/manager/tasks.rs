//! The tasks of the manager by name: the controllers, the election, and the search for other installations.

use std::{collections::HashMap, future::Future};

use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::elsewhere::{Elsewhere, FLAG};
use leadership::{ConnectError, Lost};
use operator_kit::server::ServeError;

/// Exit code for a fatal error or a lost lease.
pub const FATAL: u8 = 1;
/// Exit code if the process cannot start as configured: wrong flags, a missing or unusable kubeconfig, credential or certificate, or another
/// installation leads.
pub const USAGE: u8 = 2;

/// Name of the election's task.
pub const ELECTION: &str = "leader-election";
/// Name of the task that searches for other installations.
pub const SEARCH: &str = "installation-search";

/// Why the process cannot start, or has to end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A flag or the kubeconfig is wrong.
    #[error("{0}")]
    Config(String),
    /// The configuration of the cluster cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The servers cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The lease was lost, or its version went back.
    #[error("{0}")]
    Lost(Lost),
    /// Another installation leads, and this process would lead beside it.
    #[error(
        "{other}, and both would write the same PodSets: set {flag}={} to join it, or {flag}={home} to run a separate installation",
        .other.namespace,
        flag = FLAG
    )]
    Beside {
        /// The Lease of the other one.
        other: Elsewhere,
        /// The namespace of this process's Lease.
        home: String,
    },
    /// A task panicked.
    #[error("{task} panicked: {error}")]
    Panicked {
        /// Its name.
        task: &'static str,
        /// The panic.
        error: String,
    },
}

impl Failure {
    /// With which code the process exits.
    pub fn exit_code(&self) -> u8 {
        match self {
            // If a port is taken, the environment is at fault, not the flags.
            Failure::Serve(ServeError::Bind(_)) | Failure::Lost(_) | Failure::Panicked { .. } => FATAL,
            Failure::Config(_) | Failure::Connect(_) | Failure::Serve(_) | Failure::Beside { .. } => USAGE,
        }
    }
}

/// Tasks that end together.
#[derive(Default)]
pub struct Tasks {
    running: JoinSet<Result<(), Failure>>,
    names: HashMap<task::Id, &'static str>,
    /// Cancelled when only the election still runs: the controllers have ended, and nothing is written any more.
    pub drained: CancellationToken,
}

impl Tasks {
    /// Starts a task. If it fails, all other tasks end. The election outlasts the controllers.
    pub fn start(&mut self, name: &'static str, work: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        let started = self.running.spawn(work);
        self.names.insert(started.id(), name);
    }

    /// Waits until all tasks have ended. Returns an error at once if a task panics, the lease is lost, or another installation leads. The
    /// other tasks are aborted then.
    pub async fn ended(mut self) -> Result<(), Failure> {
        while let Some(end) = self.running.join_next_with_id().await {
            let id = end.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            let task = self.names.remove(&id).unwrap_or("a task");
            let (_, result) = end.map_err(|error| Failure::Panicked { task, error: error.to_string() })?;
            result?;
            if self.names.values().all(|name| *name == ELECTION) {
                self.drained.cancel();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::{future::pending, time::Duration};
    use tokio::{sync::mpsc, time::sleep};

    #[tokio::test(start_paused = true)]
    async fn the_election_ends_after_the_last_controller() {
        let (log, mut ended) = mpsc::unbounded_channel();
        let mut tasks = Tasks::default();
        for (name, seconds) in [("slow", 2), ("fast", 1)] {
            let log = log.clone();
            tasks.start(name, async move {
                sleep(Duration::from_secs(seconds)).await;
                log.send(name).unwrap();
                Ok(())
            });
        }
        let drained = tasks.drained.clone();
        tasks.start(ELECTION, async move {
            drained.cancelled().await;
            log.send("election").unwrap();
            Ok(())
        });
        tasks.ended().await.unwrap();
        assert_eq!(
            [ended.recv().await, ended.recv().await, ended.recv().await],
            [Some("fast"), Some("slow"), Some("election")]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_that_ends_leaves_the_controllers_to_end() {
        let mut tasks = Tasks::default();
        tasks.start("podset", sleep(Duration::from_secs(5)).map(Ok));
        tasks.start(ELECTION, async { Ok(()) });
        let began = tokio::time::Instant::now();
        tasks.ended().await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_all_and_says_whose_it_was() {
        let mut tasks = Tasks::default();
        tasks.start("mycustomresource", pending());
        tasks.start("podset", async { panic!("out of pods") });
        tasks.start(ELECTION, pending());
        let failure = tasks.ended().await.unwrap_err().to_string();
        assert!(failure.starts_with("podset panicked: ") && failure.contains("out of pods"), "{failure}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_lease_ends_all() {
        let mut tasks = Tasks::default();
        tasks.start("podset", pending());
        tasks.start(ELECTION, async { Err(Failure::Lost(Lost::Deadline(10))) });
        let failure = tasks.ended().await.unwrap_err().to_string();
        assert_eq!(failure, "lost the lease: it could not be renewed for 10 s");
    }
}
