//! What the cluster's own controllers will do, and when: one queue in the order of time, worked off
//! by one task. Only the kubelet, the garbage collector and the namespace controller put work here.

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

/// A step of one of the cluster's controllers. Objects are named by UID: whoever is made anew under
/// the same name is somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// The scheduler gives the pod a node.
    Bind(String),
    /// The kubelet reports the pod's container as running.
    Run(String),
    /// The kubelet reports the pod as ready.
    BecomeReady(String),
    /// The container ends: with success or not.
    Finish(String, bool),
    /// The kubelet has ended a terminating pod and takes it off the API server.
    Vanish(String),
    /// The garbage collector looks whether the owners of this object are gone.
    Collect(String),
    /// The garbage collector works on the finalizer of an owner that is being deleted.
    Finalize(String),
    /// The namespace controller empties a terminating namespace of this name.
    DrainNamespace(String),
}

/// Work to be done, by time and then by order of arrival.
#[derive(Default)]
pub struct Jobs {
    queue: BTreeMap<(Instant, u64), Job>,
    sequence: u64,
    wake: Arc<Notify>,
}

impl Jobs {
    /// Does `job` after `delay`.
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

    /// Notified when work is added.
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }
}

/// Works off the queue until the API server is dropped.
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
