//! The client for writes. It sends each request at most once, while this process leads, and returns the outcome ([`Answer`]).

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, Uri};
use kube::{Client, client::Body, core::Status};
use leadership::{Leadership, answer::Proof};
use tracing::warn;

use super::traced::Traced;
use crate::{
    fair::{FairSemaphore, HELD_PER_FREE},
    requests,
    text::{in_full, in_words},
};

/// The most writes in flight. Each has its own connection, which costs a handshake and, with its request, 45 KiB. With 64 in flight,
/// deletes take longer on a busy API server; more than 128 save no time.
const WRITES_AT_ONCE: usize = 128;

/// The most writes of one namespace, see [`crate::fair`].
pub const WRITES_OF_A_NAMESPACE: usize = WRITES_AT_ONCE * HELD_PER_FREE / (HELD_PER_FREE + 1);

/// The outcome of a write.
#[derive(Debug)]
pub enum Answer {
    /// It succeeded; the body of the answer.
    Done(Bytes),
    /// It was rejected for certain.
    Rejected(Box<Status>),
    /// There is no answer, or one that proves nothing.
    Failed {
        /// Why.
        error: String,
        /// Whether the write may still take effect. Otherwise no byte of it left this process.
        may_land: bool,
    },
    /// It was not sent, because this process does not lead.
    NotLeading,
}

impl Answer {
    /// The error text, if any.
    pub fn error(&self) -> Option<String> {
        match self {
            Answer::Done(..) | Answer::NotLeading => None,
            Answer::Rejected(status) => Some(in_words(status)),
            Answer::Failed { error, .. } => Some(error.clone()),
        }
    }
}

impl From<Response<Bytes>> for Answer {
    fn from(response: Response<Bytes>) -> Self {
        let code = response.status();
        match Proof::of(code, response.body()) {
            Proof::Done => Answer::Done(response.into_body()),
            Proof::Rejected(status) => Answer::Rejected(status),
            Proof::Unclear(Some(status)) => Answer::Failed { error: in_words(&status), may_land: true },
            Proof::Unclear(None) => Answer::Failed { error: format!("{code} without a Status"), may_land: true },
        }
    }
}

/// Sends all writes of the controllers. Only the Lease, TokenReviews and SubjectAccessReviews are sent without it.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    url: Uri,
    leadership: Leadership,
    slots: FairSemaphore,
}

impl Writer {
    /// Writes through `client`, which talks to the API server at `url`, while `leadership` lasts.
    pub fn new(client: Client, url: &Uri, leadership: Leadership) -> Self {
        Writer { client, url: url.clone(), leadership, slots: FairSemaphore::new(WRITES_AT_ONCE) }
    }

    /// Sends a write to an object in `namespace` once, and returns what its answer proves. The write ends, here and on the API server,
    /// before the term does. The request is built only when it may be sent, so waiting requests take no memory.
    pub async fn send(&self, namespace: &Arc<str>, build: impl FnOnce() -> requests::BuildResult) -> Answer {
        let _slot = self.slots.acquire(namespace).await;
        let request = match build() {
            Ok(request) => request,
            Err(error) => {
                warn!(%error, "cannot build a request");
                return Answer::Failed { error: format!("cannot build the request: {error}"), may_land: false };
            }
        };
        let Some(write) = self.leadership.begin_write() else {
            return Answer::NotLeading;
        };
        let mut request = request.map(Body::from);
        let mut traced = Traced::write(&mut request, &self.url);
        match write.send(&self.client, request).await {
            Ok(response) => {
                let code = response.status().as_u16();
                let answer = Answer::from(response);
                traced.answered(code, answer.error().as_deref());
                answer
            }
            Err(unanswered) => {
                let kind = if unanswered.source.is_some() { "transport" } else { "timeout" };
                let error = unanswered.source.as_ref().map_or_else(|| unanswered.to_string(), |source| in_full(source));
                traced.failed(kind, &error);
                Answer::Failed { error, may_land: unanswered.has_left }
            }
        }
    }
}

#[cfg(test)]
mod tests;
