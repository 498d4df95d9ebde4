//! Failures of one matter in a row: how long to wait before the next try, and what was said of them. No I/O.

use jiff::SignedDuration;

use leadership::log_once::LogOnce;

/// The first and the longest wait.
pub type Waits = (SignedDuration, SignedDuration);

/// The wait that follows the former one: twice as long, up to the longest.
pub fn doubled(former: Option<SignedDuration>, (first, longest): Waits) -> SignedDuration {
    former.map_or(first, |wait| wait.saturating_mul(2).min(longest))
}

/// Failures in a row; none at first.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    wait: Option<SignedDuration>,
    said: LogOnce,
}

impl Failures {
    /// It failed, for this reason. Returns how long to wait, without jitter, and whether the reason is news.
    pub fn note(&mut self, error: &str, waits: Waits) -> (SignedDuration, bool) {
        let wait = doubled(self.wait, waits);
        self.wait = Some(wait);
        (wait, self.said.note(error))
    }

    /// How long to wait since the last failure, without jitter; `None` if there is none.
    pub fn wait(&self) -> Option<SignedDuration> {
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_and_again_waits_longer_and_says_each_reason_once() {
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
