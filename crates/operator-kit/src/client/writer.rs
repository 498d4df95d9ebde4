//! The writing client. It checks leadership before each request, bounds its time here and on the API server, sends it once, and returns
//! what the answer proves ([`Answer`]).

use std::{num::NonZero, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::{
    Client,
    client::Body,
    core::{Status, request},
};
use tracing::warn;

use super::traced::{Destination, Traced};
use crate::fair::{FairSemaphore, HELD_PER_FREE};
use leadership::{
    Leadership,
    answer::is_rejection,
    text::{in_full, in_words},
};

/// The most writes in flight. Each has its own connection, which costs a handshake and, with its request, 45 KiB.
const WRITES_AT_ONCE: usize = 128;

/// The most writes of one namespace, see [`crate::fair`]. With 64 in flight, deletes take longer on a busy API server; more than 128 save
/// no time.
pub const WRITES_OF_A_NAMESPACE: usize = WRITES_AT_ONCE * HELD_PER_FREE / (HELD_PER_FREE + 1);

/// How long the API server's own timeout error may take to arrive.
const ERROR_MARGIN: Duration = Duration::from_millis(500);

/// What the answer to a write proves.
#[derive(Debug)]
pub enum Answer {
    /// It succeeded; the body of the answer.
    Done(Bytes),
    /// It was rejected for certain.
    Rejected(Box<Status>),
    /// The API server returned an error, and the write may or may not take effect.
    Unclear(Box<Status>),
    /// There is no answer, and the write may or may not take effect; why.
    Unknown(String),
    /// No byte of it left this process, so it cannot take effect; why.
    NeverLeft(String),
    /// It was not sent, because this process does not lead.
    NotSent,
}

impl Answer {
    /// The error text, if any.
    pub fn error(&self) -> Option<String> {
        match self {
            Answer::Done(..) | Answer::NotSent => None,
            Answer::Rejected(status) | Answer::Unclear(status) => Some(in_words(status)),
            Answer::Unknown(error) | Answer::NeverLeft(error) => Some(error.clone()),
        }
    }
}

/// The only way to write.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    to: Destination,
    leadership: Leadership,
    slots: FairSemaphore,
}

impl Writer {
    /// Writes through `client`, which talks to the API server at `url`, while `leadership` lasts.
    pub fn new(client: Client, url: &Uri, leadership: Leadership) -> Self {
        Writer { client, to: Destination::new(url), leadership, slots: FairSemaphore::new(WRITES_AT_ONCE) }
    }

    /// Sends a write to an object in `namespace` once, and returns what its answer proves. The write ends, here and on the API server,
    /// before the term does. The request is built only when it may be sent, so waiting requests take no memory.
    pub async fn send(
        &self,
        namespace: &Arc<str>,
        build: impl FnOnce() -> Result<Request<Vec<u8>>, request::Error>,
    ) -> Answer {
        let Ok(_slot) = self.slots.acquire(namespace).await else {
            return Answer::NotSent;
        };
        let request = match build() {
            Ok(request) => request,
            Err(error) => {
                warn!(%error, "cannot build a request");
                return Answer::NeverLeft(format!("cannot build the request: {error}"));
            }
        };
        let Some(write) = self.leadership.begin_write() else {
            return Answer::NotSent;
        };
        let Some(server_timeout) = server_timeout(write.timeout()) else {
            return Answer::NotSent;
        };
        let mut request = match with_timeout(request, server_timeout) {
            Ok(request) => request.map(Body::from),
            Err(error) => return Answer::NeverLeft(error.to_string()),
        };
        request.extensions_mut().insert(write.permit());
        let traced = Traced::write(&mut request, &self.to);
        let exchange = async {
            let response = self.client.send(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, kube::Error>((head, body.collect().await?.to_bytes()))
        };
        let result = tokio::select! {
            biased;
            result = exchange => result.map_err(|error| ("transport", in_full(&error))),
            () = write.times_out() => Err(("timeout", "the API server did not answer in time".to_owned())),
        };
        match result {
            Ok((head, body)) => {
                let code = head.status;
                let answer = classify(code, body);
                if !matches!(answer, Answer::Unclear(_) | Answer::Unknown(_)) {
                    write.answered();
                }
                traced.answered(code.as_u16(), answer.error().as_deref());
                answer
            }
            Err((kind, error)) => {
                traced.failed(kind, &error);
                if write.has_left() { Answer::Unknown(error) } else { Answer::NeverLeft(error) }
            }
        }
    }
}

/// The API server's timeout in milliseconds. It is a little shorter than ours, so that the API server's error arrives, which names a
/// webhook that did not answer. `None` if it is less than 1 ms, because 0 would mean no limit.
fn server_timeout(budget: Duration) -> Option<NonZero<u128>> {
    NonZero::new((budget - ERROR_MARGIN.min(budget / 8)).as_millis())
}

/// The request with the API server's timeout, in milliseconds.
fn with_timeout(request: Request<Vec<u8>>, server_timeout: NonZero<u128>) -> Result<Request<Vec<u8>>, http::Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let separator = match path.find('?') {
        None => "?",
        Some(index) if index + 1 == path.len() => "",
        Some(_) => "&",
    };
    head.uri = format!("{path}{separator}timeout={server_timeout}ms").parse::<Uri>()?;
    Ok(Request::from_parts(head, body))
}

/// Whether an admission webhook with `failurePolicy: Fail` did not answer. The API server calls webhooks before it stores anything.
fn is_failed_webhook(status: &Status) -> bool {
    status.code == 500 && status.message.starts_with("Internal error occurred: failed calling webhook")
}

/// What an answer with this code and body proves. Only a Status about the request itself proves a rejection.
fn classify(code: StatusCode, body: Bytes) -> Answer {
    if code.is_success() {
        return Answer::Done(body);
    }
    let status = serde_json::from_slice::<Status>(&body).ok().filter(|status| status.code == code.as_u16());
    match status {
        Some(status) if is_rejection(code) || is_failed_webhook(&status) => Answer::Rejected(Box::new(status)),
        Some(status) => Answer::Unclear(Box::new(status)),
        None => Answer::Unknown(format!("{code} without a reason")),
    }
}

#[cfg(test)]
mod tests;
