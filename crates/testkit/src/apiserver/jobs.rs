//! The jobs of the scheduler, the kubelets, the garbage collector and the namespace controller: one queue,
//! ordered by time. One task runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{ApiServer, store::State};

/// A step of one of the cluster's controllers, and the UID of its object (or the name of its namespace): an object that
/// is recreated under the same name is a different one.
type Job = (String, Box<dyn FnOnce(&mut State, &str) + Send>);

/// Pending jobs, by time and then by order of arrival.
#[derive(Default)]
pub struct Jobs {
    queue: BTreeMap<(Instant, u64), Job>,
    sequence: u64,
    /// Notified when a job is added.
    pub wake: Arc<Notify>,
}

impl Jobs {
    pub fn push(&mut self, delay: Duration, uid: &str, job: impl FnOnce(&mut State, &str) + Send + 'static) {
        self.sequence += 1;
        self.queue.insert((Instant::now() + delay, self.sequence), (uid.to_owned(), Box::new(job)));
        self.wake.notify_one();
    }

    fn pop_due(&mut self) -> Option<Job> {
        let entry = self.queue.first_entry()?;
        (entry.key().0 <= Instant::now()).then(|| entry.remove())
    }
}

pub async fn drive(server: ApiServer) {
    let wake = server.with(|state| Arc::clone(&state.jobs.wake));
    loop {
        let next = server.with(|state| {
            if state.quorum.is_lost() {
                return None;
            }
            while let Some((uid, job)) = state.jobs.pop_due() {
                job(state, &uid);
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
