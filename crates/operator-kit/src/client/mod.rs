//! The clients of the API server. No layer repeats a request.
//!
//! [`Reader`] and [`Writer`] have separate connections, and the reader refuses to send a write. Writes that need no leadership have a third
//! client ([`Purpose`]).

mod connect;
mod counted;
mod fair_budget;
mod plugin;
mod reader;
mod traced;
mod writer;

use std::time::Duration;

use http::{StatusCode, Uri};
use kube::{Config, core::Status};

pub use self::{
    connect::{AGENT, ConnectError, Purpose, connect},
    fair_budget::{FairBudget, Room},
    plugin::PluginError,
    reader::{ReadError, Reader, response_error, status},
    writer::{Answer, WRITES_OF_A_NAMESPACE, Writer},
};
use crate::telemetry::metrics::Requests;
use leadership::Leadership;

/// How many characters of an error that is not a Status are shown.
const SHOWN_CHARACTERS: usize = 200;

/// The error of an answer that is not a Status: a proxy or load balancer may answer with any text, of any length.
fn error_without_status(code: StatusCode, text: &str) -> kube::Error {
    let words: Vec<&str> = text.split_whitespace().collect();
    let message = words.join(" ").chars().take(SHOWN_CHARACTERS).collect::<String>();
    let message = if message.is_empty() { "without a reason" } else { &message };
    kube::Error::Api(Status::failure(message, &code.to_string()).with_code(code.as_u16()).boxed())
}

/// The host of a URL, without brackets, and its port.
fn host_and_port(url: &Uri) -> (&str, u16) {
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    (url.host().unwrap_or_default().trim_matches(['[', ']']), url.port_u16().unwrap_or(default))
}

/// The clients of the controllers.
#[derive(Clone)]
pub struct Clients {
    /// For reads. It needs no leadership.
    pub read: Reader,
    /// For writes.
    pub write: Writer,
}

impl Clients {
    /// Clients for a real API server. A connection breaks `user_timeout` after the first retransmission of bytes that are not acknowledged.
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
