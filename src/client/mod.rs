//! The API client: how requests leave the process. No layer repeats a request.
//!
//! Clients with connections of their own: a reading one, for watches, lists and single reads, which refuses to send
//! anything else; a writing one; nothing reaches the two but through [`Reader`] and [`Writer`]. One for what is written
//! without leadership ([`Purpose`]).

mod budget;
mod connect;
mod counted;
mod gate;
mod plugin;
mod pool;
mod reader;
mod traced;
mod writer;

use std::{error::Error as StdError, time::Duration};

use http::{StatusCode, Uri};
use kube::{Config, core::Status};

pub use self::{
    budget::{FairBudget, LARGE, Room},
    connect::{AGENT, ConnectError, Purpose, connect},
    gate::GatedConnector,
    plugin::PluginError,
    pool::Pool,
    reader::{ReadError, Reader, is_absent, refused, status},
    writer::{Answer, WRITES_OF_A_NAMESPACE, Writer, is_rejection},
};
use crate::{leader::Leadership, telemetry::metrics::Requests};

/// How many characters are told of a refusal that is no Status.
const TOLD: usize = 200;

/// The most bytes of an error that conditions, logs and traces carry: an API server or a webhook may send far more.
pub const LONGEST: usize = 1024;

/// The beginning of a text, in at most `bytes` bytes.
pub fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

/// The reason and the message of a refusal, in at most [`LONGEST`] bytes.
pub fn in_words(status: &Status) -> String {
    cut(&format!("{}: {}", status.reason, status.message), LONGEST)
}

/// A refusal that is no Status, for whatever stands before the API server need not speak in Statuses: its text may be of any
/// length, and is told in one short line.
fn foreign_refusal(code: StatusCode, text: &str) -> kube::Error {
    let words: Vec<&str> = text.split_whitespace().collect();
    let message = words.join(" ").chars().take(TOLD).collect::<String>();
    let message = if message.is_empty() { "without a reason" } else { &message };
    kube::Error::Api(Status::failure(message, &code.to_string()).with_code(code.as_u16()).boxed())
}

/// The host that a URL names, without brackets, and its port.
fn host_and_port(url: &Uri) -> (&str, u16) {
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    (url.host().unwrap_or_default().trim_matches(['[', ']']), url.port_u16().unwrap_or(default))
}

/// Where a URL leads, host and port as it has them, without a password that may stand before them.
fn place(url: &Uri) -> &str {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

/// A URL as it may be told: without a user, a password and a query, and without a slash at its end.
pub fn shown(url: &Uri) -> String {
    [url.scheme_str().unwrap_or("https"), "://", place(url), url.path().trim_end_matches('/')].concat()
}

/// An error with all its causes, in at most [`LONGEST`] bytes: hyper says "error sending request" and hides why. For a refusal,
/// only the API server's words.
pub fn in_full(error: &(dyn StdError + 'static)) -> String {
    if let Some(status) = refusal(error) {
        return in_words(status);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let deeper = error.to_string();
        if !text.contains(&deeper) {
            text = format!("{text}: {deeper}");
        }
        cause = error.source();
    }
    cut(&text, LONGEST)
}

/// What the API server said, if this is its refusal.
fn refusal<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Status> {
    let error = match error.downcast_ref() {
        Some(ReadError::Api(error)) => error,
        _ => error.downcast_ref()?,
    };
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The clients of the controllers of one instance of the operator.
#[derive(Clone)]
pub struct Clients {
    /// For everything that changes nothing. It needs no leadership.
    pub read: Reader,
    /// For everything that changes something.
    pub write: Writer,
}

impl Clients {
    /// Clients for a real API server. Written bytes that it does not acknowledge break their connection `user_timeout` after
    /// their first retransmission.
    ///
    /// # Errors
    ///
    /// As [`connect()`].
    pub fn connect(
        config: &Config,
        leadership: Leadership,
        user_timeout: Duration,
        requests: &Requests,
    ) -> Result<Self, ConnectError> {
        let read = connect(config, Purpose::Read, requests)?;
        let write = connect(config, Purpose::Write { user_timeout }, requests)?;
        let url = &config.cluster_url;
        Ok(Clients { read: Reader::new(read, url), write: Writer::new(write, url, leadership) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_api_server() {
        let refusal = || {
            let status = Status::failure("storage is (re)initializing", "TooManyRequests").with_code(429);
            kube::Error::Api(Box::new(status))
        };
        for error in [Box::new(refusal()) as Box<dyn StdError>, Box::new(ReadError::Api(refusal()))] {
            assert_eq!(in_full(&*error), "TooManyRequests: storage is (re)initializing");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }

    #[test]
    fn no_error_is_told_at_length() {
        let long = "é".repeat(LONGEST);
        let status = || Status::failure(&long, "Forbidden").with_code(403).boxed();
        let expected = "é".repeat((LONGEST - "Forbidden: ".len()) / 2);
        assert_eq!(in_words(&status()), format!("Forbidden: {expected}"));
        assert_eq!(in_full(&kube::Error::Api(status())), in_words(&status()));
        assert!(in_full(&std::io::Error::other(long.clone())).len() <= LONGEST);
    }

    #[test]
    fn a_place_is_told_without_the_password() {
        for (url, told) in [("https://me:secret@[::1]:6443/base", "[::1]:6443"), ("http://localhost", "localhost")] {
            assert_eq!(place(&url.parse().unwrap()), told);
        }
    }

    #[test]
    fn an_error_is_told_with_what_caused_it() {
        let hidden = std::io::Error::other("connection refused");
        let error = ReadError::Api(kube::Error::Service(Box::new(hidden)));
        assert!(in_full(&error).ends_with("connection refused"), "{}", in_full(&error));
    }
}
