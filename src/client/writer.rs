//! The writing client: asks for leadership before each request, bounds its time on both sides, and sorts every answer into
//! what it proves ([`Answer`]). It sends each request once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::{Client, client::Body, core::Status};

use super::{
    in_full, in_words,
    protobuf::Form,
    traced::{Destination, Traced},
};
use crate::{
    fair::{FairSemaphore, HELD_PER_FREE},
    leader::Leadership,
};

/// The most writes under way at once, each over a connection of its own, which costs a handshake and, with its request, 45 KiB.
const WRITES_AT_ONCE: usize = 128;

/// How many of them one namespace can have: see [`crate::fair`]. With 64, deletes take longer where the API server is busy with
/// others; with 128, nothing takes less.
pub const WRITES_OF_A_NAMESPACE: usize = WRITES_AT_ONCE * HELD_PER_FREE / (HELD_PER_FREE + 1);

/// How long what the API server says when its time is over may take to arrive.
const WORDS: Duration = Duration::from_millis(500);

/// What the answer to a write proves.
#[derive(Debug)]
pub enum Answer {
    /// It was done; the form and the bytes of the answer.
    Done(Form, Bytes),
    /// It was refused for certain.
    Refused(Box<Status>),
    /// The API server complains, and nobody can say whether it was, or will be, done all the same.
    Unclear(Box<Status>),
    /// Nobody can say whether it was, or will be, done; why.
    Unknown(String),
    /// It never left: this process does not lead.
    NotSent,
}

impl Answer {
    /// What the API server has against the request, in short.
    pub fn complaint(&self) -> Option<String> {
        match self {
            Answer::Done(..) | Answer::NotSent => None,
            Answer::Refused(status) | Answer::Unclear(status) => Some(in_words(status)),
            Answer::Unknown(error) => Some(error.clone()),
        }
    }
}

/// The one way by which anything is written.
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

    /// Sends a write to an object in `namespace`, once, and says what its answer proves. It ends, here and on the API server, before
    /// the term does.
    pub async fn send(&self, namespace: &Arc<str>, request: Request<Vec<u8>>) -> Answer {
        let Ok(_slot) = self.slots.acquire(namespace).await else {
            return Answer::NotSent;
        };
        let Some(write) = self.leadership.begin_write() else {
            return Answer::NotSent;
        };
        let budget = write.timeout();
        // A little less than here, so that the API server's own words arrive: they name the webhook that did not answer, if its own
        // time was over first.
        let served = budget - WORDS.min(budget / 8);
        let mut request = match bounded(request, served) {
            Ok(request) => request.map(Body::from),
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        request.extensions_mut().insert(write.pass());
        let traced = Traced::write(&mut request, &self.to);
        let exchange = async {
            let response = self.client.send(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, kube::Error>((head, body.collect().await?.to_bytes()))
        };
        match tokio::time::timeout(budget, exchange).await {
            Ok(Ok((head, body))) => {
                let code = head.status;
                let answer = sort(code, Form::of(&head.headers), body);
                if !matches!(answer, Answer::Unclear(_) | Answer::Unknown(_)) {
                    write.answered();
                }
                traced.answered(code.as_u16(), answer.complaint().as_deref());
                answer
            }
            Ok(Err(error)) => {
                let error = in_full(&error);
                traced.failed("transport", &error);
                Answer::Unknown(error)
            }
            Err(_) => {
                let error = "the API server did not answer in time";
                traced.failed("timeout", error);
                Answer::Unknown(error.to_owned())
            }
        }
    }
}

/// The request with the time that the API server may spend on it.
fn bounded(request: Request<Vec<u8>>, budget: Duration) -> Result<Request<Vec<u8>>, http::Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let separator = match path.find('?') {
        None => "?",
        Some(at) if at + 1 == path.len() => "",
        Some(_) => "&",
    };
    head.uri = format!("{path}{separator}timeout={}ms", budget.as_millis()).parse::<Uri>()?;
    Ok(Request::from_parts(head, body))
}

/// Whether an answer with this code proves that the request was not carried out. 408 is a time-out by another name, and
/// 429 may be the word of whatever stands before the API server.
pub fn is_refusal(code: StatusCode) -> bool {
    code.is_client_error() && !matches!(code, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// Only a Status that speaks of the request itself is a certain refusal.
fn sort(code: StatusCode, form: Form, body: Bytes) -> Answer {
    if code.is_success() {
        return Answer::Done(form, body);
    }
    // Refusals come in JSON, for that is asked for beside every other form: their details are read.
    let status = serde_json::from_slice::<Status>(&body).ok().filter(|status| status.code == code.as_u16());
    match status {
        Some(status) if is_refusal(code) => Answer::Refused(Box::new(status)),
        Some(status) => Answer::Unclear(Box::new(status)),
        None => Answer::Unknown(format!("{code} without a reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use tower::BoxError;

    fn status(code: u16, reason: &str) -> Vec<u8> {
        let status = Status::failure("no", reason).with_code(code);
        serde_json::to_vec(&status).unwrap()
    }

    fn sorted(code: u16, body: &[u8]) -> &'static str {
        match sort(StatusCode::from_u16(code).unwrap(), Form::Text, Bytes::copy_from_slice(body)) {
            Answer::Done(..) => "done",
            Answer::Refused(_) => "refused",
            Answer::Unclear(_) => "unclear",
            Answer::Unknown(_) => "unknown",
            Answer::NotSent => "not sent",
        }
    }

    #[test]
    fn an_answer_proves_only_what_the_api_server_said() {
        let cases: [(u16, Vec<u8>, &str); 9] = [
            (201, b"{}".to_vec(), "done"),
            (409, status(409, "AlreadyExists"), "refused"),
            (403, status(403, "Forbidden"), "refused"),
            (429, status(429, "TooManyRequests"), "unclear"),
            (429, b"Too many requests, please try again later.\n".to_vec(), "unknown"),
            (403, status(500, "InternalError"), "unknown"),
            (408, status(408, "Timeout"), "unclear"),
            (504, status(504, "Timeout"), "unclear"),
            (502, b"<html>".to_vec(), "unknown"),
        ];
        for (code, body, expected) in cases {
            assert_eq!(sorted(code, &body), expected, "{code} {}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn every_write_tells_the_api_server_when_to_stop() {
        for (uri, expected) in [
            ("/api/v1/namespaces/a/pods?", "/api/v1/namespaces/a/pods?timeout=3500ms"),
            ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods?timeout=3500ms"),
            ("/a?force=true", "/a?force=true&timeout=3500ms"),
        ] {
            let request = Request::post(uri).body(Vec::new()).unwrap();
            let bounded = bounded(request, Duration::from_millis(3500)).unwrap();
            assert_eq!(bounded.uri().to_string(), expected);
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_without_leadership() {
        let service = tower::service_fn(|_: Request<Body>| async {
            panic!("a request left without leadership");
            #[allow(unreachable_code)]
            Ok::<_, BoxError>(Response::new(Body::empty()))
        });
        let leadership = crate::leader::Office::vacant(crate::env::testing::virtual_env()).leadership();
        let writer = Writer::new(Client::new(service, "default"), &Uri::default(), leadership);
        let request = Request::post("/api/v1/namespaces/a/pods").body(Vec::new()).unwrap();
        assert!(matches!(writer.send(&"a".into(), request).await, Answer::NotSent));
    }
}
