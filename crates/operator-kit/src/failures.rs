//! Exponential backoff after consecutive failures, and whether to log the error. No I/O.

use jiff::SignedDuration;

use crate::log_once::LogOnce;

/// The first and the longest wait of a backoff.
pub type Waits = (SignedDuration, SignedDuration);

/// The wait after `former`: the first one, or twice as long, up to the longest.
pub fn doubled(former: Option<SignedDuration>, (first, longest): Waits) -> SignedDuration {
    former.map_or(first, |wait| wait.saturating_mul(2).min(longest))
}

/// Consecutive failures; none at first.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    wait: Option<SignedDuration>,
    logged: LogOnce,
}

impl Failures {
    /// Counts a failure. Returns the wait, without jitter, and whether the error differs from the last one.
    pub fn note(&mut self, error: &str, waits: Waits) -> (SignedDuration, bool) {
        let wait = doubled(self.wait, waits);
        self.wait = Some(wait);
        (wait, self.logged.note(error))
    }

    /// The wait after the last failure, without jitter; `None` if there is none.
    pub fn wait(&self) -> Option<SignedDuration> {
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_wait_longer_and_each_new_reason_is_logged() {
        let mut failures = Failures::default();
        assert_eq!(failures.wait(), None);
        let mut note = |error| {
            let (wait, is_news) = failures.note(error, (SignedDuration::from_secs(5), SignedDuration::from_secs(30)));
            (wait.as_secs(), is_news)
        };
        let noted = ["away", "away", "forbidden", "forbidden", "away"].map(&mut note);
        assert_eq!(noted, [(5, true), (10, false), (20, true), (30, false), (30, true)]);
        assert_eq!(failures.wait(), Some(SignedDuration::from_secs(30)));
    }
}
