//! The quorum of the store. Without it, requests wait and nothing changes.

use std::sync::Arc;

use rand::RngExt;
use tokio::sync::oneshot;

use super::{
    ApiServer,
    carry::Answer,
    request::{ApiRequest, Verb},
};

struct Pending {
    id: usize,
    request: Arc<ApiRequest>,
    answer: oneshot::Sender<Answer>,
}

/// While the quorum is lost: the action that took it, and the waiting requests in order of arrival.
#[derive(Default)]
pub struct Quorum(Option<(&'static str, Vec<Pending>)>);

impl Quorum {
    /// Whether the quorum is lost. Kubelets and controllers then do nothing, and watches get no bookmarks.
    pub fn is_lost(&self) -> bool {
        self.0.is_some()
    }

    /// Without a quorum, queues a read or a write. Returns the receiver of its answer, and the action that took the
    /// quorum. A watch does not wait: the API server serves it from its cache.
    pub fn wait(&mut self, id: usize, request: &Arc<ApiRequest>) -> Option<(oneshot::Receiver<Answer>, &'static str)> {
        let (action, pending) = self.0.as_mut().filter(|_| request.verb != Verb::Watch)?;
        let (answer, receiver) = oneshot::channel();
        pending.push(Pending { id, request: Arc::clone(request), answer });
        Some((receiver, action))
    }
}

impl ApiServer {
    /// Takes the quorum from the store: reads and writes wait, and watches are silent.
    pub fn lose_quorum(&self) {
        self.with(|state| state.quorum = Quorum(Some((state.coverage.place_fault(), Vec::new()))));
    }

    /// Restores the quorum. A random number of the first queued writes takes effect, in order, even if their clients
    /// gave up. The other writes are lost. Then the reads are answered.
    pub fn regain_quorum(&self) {
        let Some((_, pending)) = self.with(|state| state.quorum.0.take()) else { return };
        let (writes, reads): (Vec<_>, Vec<_>) = pending.into_iter().partition(|waits| waits.request.verb.mutates());
        let kept = self.with(|state| state.random.random_range(0..=writes.len()));
        let reads = reads.into_iter().filter(|waits| !waits.answer.is_closed());
        for Pending { id, request, answer } in writes.into_iter().take(kept).chain(reads) {
            drop(answer.send(self.execute(id, &request)));
        }
        self.with(|state| state.jobs.wake.notify_one());
    }
}
