//! The API client: how requests leave the process. No layer repeats a request.
//!
//! Clients with connections of their own: a reading one, for watches, lists and single reads, which refuses to send
//! anything else; a writing one; nothing reaches the two but through [`Reader`] and [`Writer`]. One for what is written
//! without leadership ([`Purpose`]).

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
    reader::{ReadError, Reader, refused, status},
    writer::{Answer, WRITES_OF_A_NAMESPACE, Writer},
};
use crate::telemetry::metrics::Requests;
use leadership::Leadership;

/// How many characters are told of a refusal that is no Status.
const TOLD: usize = 200;

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
