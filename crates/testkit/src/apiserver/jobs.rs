//! The jobs of the scheduler, the kubelets, the garbage collector and the namespace controller: one queue,
//! ordered by time. One task runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::ApiServer;

/// Pending jobs with the UIDs that they get, by time and then by order of arrival.
pub struct Jobs<J> {
    queue: BTreeMap<(Instant, u64), (String, J)>,
    sequence: u64,
    /// Notified when a job is added.
    pub wake: Arc<Notify>,
}

impl<J> Default for Jobs<J> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), sequence: 0, wake: Arc::default() }
    }
}

impl<J> Jobs<J> {
    pub fn push(&mut self, delay: Duration, uid: &str, job: J) {
        self.sequence += 1;
        self.queue.insert((Instant::now() + delay, self.sequence), (uid.to_owned(), job));
        self.wake.notify_one();
    }

    fn pop_due(&mut self) -> Option<(String, J)> {
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
