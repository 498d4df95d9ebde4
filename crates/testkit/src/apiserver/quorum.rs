//! The quorum of the store. Without it, requests wait and nothing changes.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    answer::Answer,
    request::{ApiRequest, Verb},
};

pub struct Pending {
    pub id: usize,
    pub request: Arc<ApiRequest>,
    pub answer: oneshot::Sender<Answer>,
}

/// While the quorum is lost: the action that took it, and the waiting requests in order of arrival.
#[derive(Default)]
pub struct Quorum(pub Option<(&'static str, Vec<Pending>)>);

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
