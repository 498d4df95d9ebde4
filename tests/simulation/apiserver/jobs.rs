//! The jobs of the scheduler, the kubelets, the garbage collector and the namespace controller: one queue,
//! ordered by time. One task runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{ApiServer, store::State};

/// A step of one of the cluster's controllers. It names objects by UID: an object that is recreated under
/// the same name is a different one.
type Job = Box<dyn FnOnce(&mut State) + Send>;

/// Pending jobs, by time and then by order of arrival.
#[derive(Default)]
pub struct Jobs {
    queue: BTreeMap<(Instant, u64), Job>,
    sequence: u64,
    wake: Arc<Notify>,
}

impl Jobs {
    /// Runs `job` after `delay`.
    pub fn push(&mut self, delay: Duration, job: impl FnOnce(&mut State) + Send + 'static) {
        self.sequence += 1;
        self.queue.insert((Instant::now() + delay, self.sequence), Box::new(job));
        self.wake.notify_one();
    }

    fn pop_due(&mut self) -> Option<Job> {
        let entry = self.queue.first_entry()?;
        (entry.key().0 <= Instant::now()).then(|| entry.remove())
    }

    /// Notified when a job is added.
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }
}

/// Runs the queued jobs.
pub async fn drive(server: ApiServer) {
    let wake = server.with(|state| state.jobs.wake());
    loop {
        let next = server.with(|state| {
            if state.quorum.is_lost() {
                return None;
            }
            while let Some(job) = state.jobs.pop_due() {
                job(state);
            }
            state.jobs.queue.keys().next().map(|(at, _)| *at)
        });
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
