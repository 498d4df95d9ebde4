//! The log of requests: each request, its outcome in the store, and the answer to the client. A fault can
//! make the outcome and the answer differ.

use std::{sync::Arc, time::Duration};

use super::{faults::Fault, request::ApiRequest};

#[derive(Clone, Debug)]
pub struct LoggedRequest {
    pub at: Duration,
    pub request: Arc<ApiRequest>,
    pub fault: Option<Fault>,
    /// When it was executed; none if it was not (yet).
    pub executed_at: Option<Duration>,
    /// HTTP status code of its execution.
    pub outcome: Option<u16>,
    /// HTTP status code that was sent to the client; none if there was no answer (yet).
    pub answered: Option<u16>,
}

impl LoggedRequest {
    pub fn took_effect(&self) -> bool {
        self.outcome.is_some_and(|code| code < 300)
    }

    pub fn line(&self) -> String {
        let code = |code: Option<u16>| code.map_or("-".to_owned(), |c| c.to_string());
        format!(
            "{:>10.3}s {} {:?} {} [{}] outcome {} answered {}",
            self.at.as_secs_f64(),
            self.request.instance,
            self.request.verb,
            self.request.path,
            self.fault.as_ref().map(|fault| format!("{fault:?}")).unwrap_or_default(),
            code(self.outcome),
            code(self.answered),
        )
    }
}
