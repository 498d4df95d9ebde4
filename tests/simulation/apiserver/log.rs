//! The log of requests: what was asked, what came of it in the store, and what the client was told.
//! The two differ where a fault stands between them.

use std::{sync::Arc, time::Duration};

use super::request::ApiRequest;

/// One request.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// Number, from 0, in the order of arrival.
    pub id: usize,
    /// When it arrived.
    pub at: Duration,
    /// What it asked.
    pub request: Arc<ApiRequest>,
    /// The fault that met it.
    pub fault: Option<&'static str>,
    /// When it was executed; none if it was not (yet).
    pub executed_at: Option<Duration>,
    /// HTTP status code that its execution came to.
    pub outcome: Option<u16>,
    /// HTTP status code that was sent to the client; none if nothing was (yet).
    pub answered: Option<u16>,
}

impl LoggedRequest {
    /// Whether it was executed with success.
    pub fn took_effect(&self) -> bool {
        self.outcome.is_some_and(|code| code < 300)
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let code = |code: Option<u16>| code.map_or("-".to_owned(), |c| c.to_string());
        format!(
            "{:>10.3}s {} {:?} {} [{}] outcome {} answered {}",
            self.at.as_secs_f64(),
            self.request.instance,
            self.request.verb,
            self.request.path,
            self.fault.unwrap_or_default(),
            code(self.outcome),
            code(self.answered),
        )
    }
}

/// All requests so far.
#[derive(Default)]
pub struct RequestLog {
    entries: Vec<LoggedRequest>,
}

impl RequestLog {
    /// Notes the arrival of a request.
    pub fn arrive(&mut self, at: Duration, request: Arc<ApiRequest>, fault: Option<&'static str>) -> usize {
        let id = self.entries.len();
        self.entries.push(LoggedRequest { id, at, request, fault, executed_at: None, outcome: None, answered: None });
        id
    }

    /// Notes an execution.
    pub fn executed(&mut self, id: usize, at: Duration, outcome: u16) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.executed_at = Some(at);
            entry.outcome = Some(outcome);
        }
    }

    /// Notes an answer.
    pub fn answered(&mut self, id: usize, code: u16) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.answered = Some(code);
        }
    }

    /// All entries.
    pub fn entries(&self) -> &[LoggedRequest] {
        &self.entries
    }
}
