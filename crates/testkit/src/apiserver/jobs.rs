//! The jobs of the scheduler, the kubelets and the cluster's controllers: one queue, ordered by time. One task runs them.

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::*;

/// A step of one of the cluster's controllers. It gets the UID of its object (or the name of its namespace): an object that
/// is recreated under the same name is a different one.
type Job = Box<dyn FnOnce(&mut State, &str) + Send>;

/// Pending jobs with the UIDs that they get, by time and then by order of arrival.
#[derive(Default)]
pub struct Jobs {
    queue: BTreeMap<(Instant, u64), (String, Job)>,
    sequence: u64,
    /// Notified when a job is added.
    pub wake: Arc<Notify>,
}

impl State {
    /// Queues a job for this UID.
    pub(super) fn after(&mut self, delay: Duration, uid: &str, job: impl FnOnce(&mut Self, &str) + Send + 'static) {
        let Jobs { queue, sequence, wake } = &mut self.jobs;
        *sequence += 1;
        queue.insert((Instant::now() + delay, *sequence), (uid.to_owned(), Box::new(job)));
        wake.notify_one();
    }

    fn due_job(&mut self) -> Option<(String, Job)> {
        let entry = self.jobs.queue.first_entry()?;
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
            while let Some((uid, job)) = state.due_job() {
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
