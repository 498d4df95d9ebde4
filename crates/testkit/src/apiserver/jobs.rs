//! The jobs of the scheduler, the kubelets, the garbage collector and the namespace controller: one queue,
//! ordered by time. One task runs them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{Shared, store::State};

/// A step of one of the cluster's controllers. It names objects by UID: an object that is recreated under
/// the same name is a different one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// The scheduler binds the pod to a node.
    Bind(String),
    /// The kubelet reports the pod's container as running.
    Run(String),
    /// The kubelet reports the pod as ready.
    BecomeReady(String),
    /// The container exits, with success or not.
    Finish(String, bool),
    /// The kubelet has stopped a terminating pod and removes it from the API server.
    Vanish(String),
    /// The garbage collector checks whether the owners of this object are gone.
    Collect(String),
    /// The garbage collector processes the finalizer of an owner that is being deleted.
    Finalize(String),
    /// The namespace controller empties a terminating namespace of this name.
    DrainNamespace(String),
}

/// Pending jobs, by time and then by order of arrival.
#[derive(Default)]
pub struct Jobs {
    queue: BTreeMap<(Instant, u64), Job>,
    sequence: u64,
    wake: Arc<Notify>,
}

impl Jobs {
    /// Runs `job` after `delay`.
    pub fn push(&mut self, delay: Duration, job: Job) {
        self.sequence += 1;
        self.queue.insert((Instant::now() + delay, self.sequence), job);
        self.wake.notify_one();
    }

    fn pop_due(&mut self, now: Instant) -> Option<Job> {
        let entry = self.queue.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    fn next(&self) -> Option<Instant> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Notified when a job is added.
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }
}

/// Runs the queued jobs until the API server is dropped.
pub async fn drive(server: Weak<Shared>, wake: Arc<Notify>) {
    loop {
        let Some(shared) = server.upgrade() else { return };
        let (worked, next) = shared.with(|state| {
            let mut worked = false;
            if state.quorum.is_lost() {
                return (worked, None);
            }
            while let Some(job) = state.jobs.pop_due(Instant::now()) {
                state.work(job);
                worked = true;
            }
            (worked, state.jobs.next())
        });
        if worked {
            shared.changed();
        }
        drop(shared);
        match next {
            Some(at) => tokio::select! {
                biased;
                () = wake.notified() => {}
                () = sleep_until(at) => {}
            },
            None => wake.notified().await,
        }
    }
}

impl State {
    fn work(&mut self, job: Job) {
        match job {
            Job::Bind(uid) => self.bind(&uid),
            Job::Run(uid) => self.run_pod(&uid),
            Job::BecomeReady(uid) => self.set_ready(&uid, true),
            Job::Finish(uid, success) => self.finish_pod(&uid, success),
            Job::Vanish(uid) => self.vanish_pod(&uid),
            Job::Collect(uid) => self.collect(&uid),
            Job::Finalize(uid) => self.finalize(&uid),
            Job::DrainNamespace(name) => self.drain_namespace(&name),
        }
    }
}
