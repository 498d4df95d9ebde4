//! The log of requests: what was asked, what came of it in the store, and what the client was told.
//! The two differ where a fault stands between them.

use std::{sync::Arc, time::Duration};

use super::{faults::Fault, request::ApiRequest};

#[derive(Clone, Debug)]
pub struct LoggedRequest {
    pub at: Duration,
    pub request: Arc<ApiRequest>,
    pub fault: Option<Fault>,
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
            self.fault.as_ref().map(|fault| format!("{fault:?}")).unwrap_or_default(),
            code(self.outcome),
            code(self.answered),
        )
    }
}
