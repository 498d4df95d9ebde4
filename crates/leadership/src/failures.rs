//! Logs of failures that repeat.

use std::{error::Error, time::Duration};

use tokio::time::Instant;
use tracing::{debug, warn};

/// A failure that equals the last logged one is logged as a warning again after this time.
const QUIET: Duration = Duration::from_secs(60);

/// Logs a failure as a warning when it changes, and once a minute while it lasts; otherwise at the level debug.
#[derive(Default)]
pub struct FailureLog(Option<(String, Instant)>);

impl FailureLog {
    pub fn log(&mut self, what: &str, error: &(dyn Error + 'static)) {
        let sentence = format!("{what}; trying again: {}", with_causes(error));
        if self.is_news(&sentence) {
            warn!("{sentence}");
        } else {
            debug!("{sentence}");
        }
    }

    fn is_news(&mut self, sentence: &str) -> bool {
        let now = Instant::now();
        let is_known = |(former, at): &(String, Instant)| former == sentence && now - *at < QUIET;
        let is_news = !self.0.as_ref().is_some_and(is_known);
        if is_news {
            self.0 = Some((sentence.to_owned(), now));
        }
        is_news
    }

    /// The failure is over. Returns whether there was one.
    pub fn recovered(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// An error with its causes, because hyper's own message hides them. If the API server returned the error, only its reason and message.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in std::iter::successors(Some(error), |&error| error.source()) {
        if let Some(kube::Error::Api(status)) = error.downcast_ref() {
            return format!("{}: {}", status.reason, status.message);
        }
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn errors_show_their_causes_and_rejections_their_message() {
        let hidden = kube::Error::Service(std::io::Error::other("connection refused").into());
        assert!(with_causes(&hidden).ends_with("connection refused"), "{}", with_causes(&hidden));
        let status = Status::failure("storage is (re)initializing", "TooManyRequests").with_code(429);
        let error = crate::operation::OperationError::Kube(kube::Error::Api(status.boxed()));
        assert_eq!(with_causes(&error), "TooManyRequests: storage is (re)initializing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lasting_failure_is_logged_once_a_minute() {
        let mut failures = FailureLog::default();
        assert!(failures.is_news("forbidden") && !failures.is_news("forbidden"));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!failures.is_news("forbidden") && failures.is_news("away") && failures.is_news("forbidden"));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(failures.is_news("forbidden"));
    }

    #[test]
    fn a_recovery_is_reported_once() {
        let mut failures = FailureLog::default();
        assert!(!failures.recovered());
        failures.log("cannot", &std::io::Error::other("away"));
        assert!(failures.recovered() && !failures.recovered());
    }
}
