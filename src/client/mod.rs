//! The API client: how requests leave the process. No layer repeats a request.
//!
//! Clients with connections of their own: a reading one, for watches, lists and single reads, which refuses to send
//! anything else; a writing one, which nothing reaches but through [`Writer`]; one for what is written without leadership
//! ([`Purpose`]).

mod connect;
mod counted;
mod gate;
mod pool;
mod traced;
mod writer;

use std::{error::Error as StdError, time::Duration};

use http::Request;
use kube::{Client, Config, core::Status};
use serde::de::DeserializeOwned;
use traced::Traced;

pub use self::{
    connect::{AGENT, ConnectError, Purpose, connect},
    writer::{Answer, Writer},
};
use crate::{leader::Leadership, telemetry::metrics::Requests};

/// How long a read may take, watches apart.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a read gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", READ_TIMEOUT.as_secs())]
    Timeout,
    /// It could not be reached, or it refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Reads one answer, within a bounded time.
///
/// # Errors
///
/// When the API server is not reached, does not answer in time, or refuses.
pub async fn read<T: DeserializeOwned>(client: &Client, mut request: Request<Vec<u8>>) -> Result<T, ReadError> {
    let traced = Traced::read(&mut request);
    match tokio::time::timeout(READ_TIMEOUT, client.request(request)).await {
        Ok(Ok(answer)) => {
            traced.answered(200, None);
            Ok(answer)
        }
        Ok(Err(error)) => {
            match &error {
                kube::Error::Api(status) => traced.answered(status.code, Some(&in_words(status))),
                error => traced.failed("transport", &in_full(error)),
            }
            Err(error.into())
        }
        Err(_) => {
            traced.failed("timeout", &ReadError::Timeout.to_string());
            Err(ReadError::Timeout)
        }
    }
}

/// Reads one object; `None` when it does not exist.
///
/// # Errors
///
/// As [`read`].
pub async fn read_one<T: DeserializeOwned>(client: &Client, request: Request<Vec<u8>>) -> Result<Option<T>, ReadError> {
    match read(client, request).await {
        Ok(object) => Ok(Some(object)),
        Err(ReadError::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The reason and the message of a refusal.
fn in_words(status: &Status) -> String {
    format!("{}: {}", status.reason, status.message)
}

/// An error with all its causes: hyper says "error sending request" and hides why. Of a refusal, the API server's words alone.
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
    text
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
    pub read: Client,
    /// For everything that changes something.
    pub write: Writer,
}

impl Clients {
    /// Clients for a real API server. Written bytes that it does not acknowledge for `user_timeout` break their connection.
    ///
    /// # Errors
    ///
    /// As [`connect`].
    pub fn connect(
        config: &Config,
        leadership: Leadership,
        user_timeout: Duration,
        requests: &Requests,
    ) -> Result<Self, ConnectError> {
        let write = connect(config, Purpose::Write { user_timeout }, requests)?;
        Ok(Clients { read: connect(config, Purpose::Read, requests)?, write: Writer::new(write, leadership) })
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
    fn an_error_is_told_with_what_caused_it() {
        let hidden = std::io::Error::other("connection refused");
        let error = ReadError::Api(kube::Error::Service(Box::new(hidden)));
        assert!(in_full(&error).ends_with("connection refused"), "{}", in_full(&error));
    }
}
