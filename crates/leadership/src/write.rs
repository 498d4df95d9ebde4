//! One write of the leader: its permit, its timeouts, and whether it may take effect later.

use std::{
    error::Error,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http::{Method, Request, Response, Uri, header::UPGRADE};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};

use crate::{Ends, Leadership, answer::Proof, lock};

/// The longest timeout of a write, also without election.
pub const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// How long the API server's own timeout error may take to arrive. It names a webhook that did not answer.
const ERROR_MARGIN: SignedDuration = SignedDuration::from_millis(500);

/// Why a [`fenced`] client did not send a request, or has no answer. [`WriteError::of`] finds it in the client's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// This process does not lead, or its term is about to end. A reconcile with this error does not need to retry: a newly elected process
    /// reconciles all objects ([`Leadership::elections`]).
    #[error("not sent, because this process does not lead")]
    NotLeader,
    /// The request is an exec, attach, port-forward or proxy. The API server forwards it without a timeout, so it could outlive the term.
    #[error(
        "not sent, because exec, attach, port-forward and proxy cannot end with the term: use a client without a fence"
    )]
    Stream,
    /// There is no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// A write without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", if source.is_some() { "the request failed" } else { "the API server did not answer in time" })]
pub struct Unanswered {
    /// Whether any byte of the write left this process. If not, the write can never take effect.
    pub has_left: bool,
    /// What stopped the request; `None` if it timed out.
    pub source: Option<kube::Error>,
}

impl WriteError {
    /// The [`WriteError`] in an error of a [`fenced`] client, or among the sources of an error. For an `anyhow::Error`, pass `error.as_ref()`.
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
    }
}

/// A client that sends reads through `reads` at any time, and writes through `writes` while this process leads. The connections of `writes`
/// must be [gated](crate::connect::gated). [`Candidate::connect`](crate::Candidate::connect) makes all of these.
///
/// A read is a GET or HEAD request. Each write has a timeout of at most [`WRITE_TIMEOUT`], and ends before the lease can expire. A write
/// fails with a [`WriteError`], and a read with the error of `reads` or with [`WriteError::Stream`].
pub fn fenced(reads: Client, writes: Client, leadership: Leadership) -> Client {
    let namespace = reads.default_namespace().to_owned();
    let service = move |request: Request<Body>| {
        let (reads, writes, leadership) = (reads.clone(), writes.clone(), leadership.clone());
        async move {
            if request.headers().contains_key(UPGRADE) || is_proxied(request.uri().path()) {
                return Err(WriteError::Stream.into());
            }
            if matches!(*request.method(), Method::GET | Method::HEAD) {
                return reads.send(request).await.map_err(tower::BoxError::from);
            }
            let write = leadership.begin_write().ok_or(WriteError::NotLeader)?;
            let answer = write.send(&writes, request).await.map_err(WriteError::from)?;
            Ok(answer.map(Body::from))
        }
    };
    Client::new(tower::service_fn(service), namespace)
}

/// Whether the path is the subresource `proxy` of a node, a pod or a service. The API server has no timeout for it.
fn is_proxied(path: &str) -> bool {
    match path.split('/').skip(1).collect::<Vec<_>>()[..] {
        ["api", _, "namespaces", _, "pods" | "services", _, subresource, ..] => subresource == "proxy",
        ["api", _, "nodes", _, subresource, ..] => subresource == "proxy",
        _ => false,
    }
}

/// A write that is under way. If it has left and is dropped without an answer that proves its result, it may still take effect. A [`fenced`]
/// client makes one for each write request. Code without kube's `Api` calls [`Leadership::begin_write`], then [`Write::send`].
#[derive(Debug)]
pub struct Write {
    permit: WritePermit,
    /// For the API server, in milliseconds.
    server_timeout: i128,
    sent: Timestamp,
    is_answered: bool,
}

impl Leadership {
    /// Begins a write, if this process leads and the write has time to end before the lease can.
    pub fn begin_write(&self) -> Option<Write> {
        let (term, now) = (self.term()?, self.env.now());
        let left = |ends: Ends| ends.writes.duration_since(now).saturating_sub(ends.slack());
        let timeout = term.ends.map_or(WRITE_TIMEOUT, left).min(WRITE_TIMEOUT);
        let server_timeout = (timeout - ERROR_MARGIN.min(timeout / 8)).as_millis();
        if server_timeout <= 0 {
            // The API server reads 0 as no limit.
            return None;
        }
        lock(&self.unfinished).under_way += 1;
        let permit = WritePermit { leadership: self.clone(), number: term.number, timeout, has_left: Arc::default() };
        Some(Write { permit, server_timeout, sent: now, is_answered: false })
    }
}

impl Write {
    /// Sends the request once through gated connections. It ends, here and on the API server, before the term does.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send(mut self, client: &Client, request: Request<Body>) -> Result<Response<Bytes>, Unanswered> {
        let permit = &self.permit;
        let exchange = async {
            let mut request = with_timeout(request, self.server_timeout).map_err(kube::Error::HttpError)?;
            request.extensions_mut().insert(permit.clone());
            let (head, body) = client.send(request).await?.into_parts();
            Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
        };
        let end = self.sent.saturating_add(permit.timeout).unwrap_or(Timestamp::MAX);
        let answer = tokio::select! {
            biased;
            answer = exchange => answer.map_err(Some),
            () = permit.leadership.env.sleep_until(end) => Err(None),
        };
        let answer = answer.map_err(|source| Unanswered { has_left: permit.has_left(), source })?;
        self.is_answered = !Proof::of(answer.status(), answer.body()).may_land();
        Ok(answer)
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let mut unfinished = lock(&self.permit.leadership.unfinished);
        unfinished.under_way = unfinished.under_way.saturating_sub(1);
        if !self.is_answered && self.permit.has_left() {
            unfinished.unanswered = unfinished.unanswered.max(Some(self.sent));
        }
    }
}

/// Adds the query parameter `timeout` for the API server, in milliseconds. It comes first, because the API server uses the first `timeout`.
fn with_timeout(request: Request<Body>, server_timeout: i128) -> Result<Request<Body>, http::Error> {
    let (mut head, body) = request.into_parts();
    let query = head.uri.query().filter(|query| !query.is_empty());
    let rest = query.map(|query| format!("&{query}")).unwrap_or_default();
    head.uri = format!("{}?timeout={server_timeout}ms{rest}", head.uri.path()).parse::<Uri>()?;
    Ok(Request::from_parts(head, body))
}

/// The permission to send one request. [`Write::send`] adds it to the request's extensions, where the gate of the connection finds it.
#[derive(Clone, Debug)]
pub struct WritePermit {
    leadership: Leadership,
    number: u64,
    timeout: SignedDuration,
    /// Set once: `true` when the first byte leaves, `false` if the request is given up before.
    has_left: Arc<OnceLock<bool>>,
}

impl WritePermit {
    /// Records that bytes of the request leave. The gate calls this before any byte passes. Returns `false` if the request was given up
    /// before its first byte: then no byte may leave.
    pub fn try_leave(&self) -> bool {
        *self.has_left.get_or_init(|| true)
    }

    /// Whether bytes of the request may leave now: its term is not over, and the request ends before the lease can.
    pub fn is_valid(&self) -> bool {
        let now = self.leadership.env.now();
        let ends_in_time = |ends: Ends| now.saturating_add(self.timeout).is_ok_and(|end| end <= ends.writes);
        let term = self.leadership.term().filter(|term| term.number == self.number);
        term.is_some_and(|term| term.ends.is_none_or(ends_in_time))
    }

    /// Whether bytes of the request have left this process. If not, this call gives up the request: from now on no byte of it can leave.
    fn has_left(&self) -> bool {
        *self.has_left.get_or_init(|| false)
    }
}

#[cfg(test)]
mod tests;
