//! The clients of the API server. No layer repeats a request.
//!
//! [`Reader`] and [`Writer`] have separate connections, and the reader refuses to send a write. Writes that need no leadership, which are the
//! Lease and the reviews of tokens for metrics and the log level, have clients of their own ([`connect()`]).

mod connect;
mod counted;
mod reader;
mod traced;
mod writer;

use std::time::Duration;

use kube::Config;

pub use self::{
    connect::{AGENT, connect},
    reader::{ReadError, Reader, response_error, status, with_version},
    writer::{Answer, WRITES_OF_A_NAMESPACE, Writer},
};
use crate::telemetry::metrics::Requests;
use leadership::{ConnectError, Leadership};

/// The clients of the controllers.
#[derive(Clone)]
pub struct Clients {
    /// For reads. It needs no leadership.
    pub read: Reader,
    /// For writes.
    pub write: Writer,
}

impl Clients {
    /// Clients for a real API server. A connection for writes breaks `user_timeout` after the first retransmission of unacknowledged bytes.
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
        let read = connect(config, None, requests)?;
        let write = connect::connect_gated(config, user_timeout, requests)?;
        let url = &config.cluster_url;
        Ok(Clients { read: Reader::new(read, url), write: Writer::new(write, url, leadership) })
    }
}
