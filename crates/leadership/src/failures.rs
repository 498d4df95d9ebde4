//! Logs of failures that repeat.

use std::error::Error;

use tracing::{debug, warn};

/// Logs a failure as a warning once, and for debugging while it repeats.
#[derive(Default)]
pub struct Failures(Option<String>);

impl Failures {
    pub fn log(&mut self, what: &str, error: &(dyn Error + 'static)) {
        let sentence = format!("{what}, trying again: {}", with_causes(error));
        if self.0.as_ref() == Some(&sentence) {
            debug!("{sentence}");
        } else {
            warn!("{sentence}");
            self.0 = Some(sentence);
        }
    }

    /// The failure is over. Returns whether there was one.
    pub fn recovered(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// An error with its causes, because hyper's own message hides them. If the API server returned the error, only its reason and message.
fn with_causes(error: &(dyn Error + 'static)) -> String {
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
    fn an_error_is_shown_with_its_causes_and_a_refusal_by_its_message() {
        let hidden = kube::Error::Service(std::io::Error::other("connection refused").into());
        assert!(with_causes(&hidden).ends_with("connection refused"), "{}", with_causes(&hidden));
        let status = Status::failure("storage is (re)initializing", "TooManyRequests").with_code(429);
        let error = crate::OperationError::Kube(kube::Error::Api(status.boxed()));
        assert_eq!(with_causes(&error), "TooManyRequests: storage is (re)initializing");
    }

    #[test]
    fn a_failure_is_over_once() {
        let mut failures = Failures::default();
        assert!(!failures.recovered());
        failures.log("cannot", &std::io::Error::other("away"));
        assert!(failures.recovered() && !failures.recovered());
    }
}
