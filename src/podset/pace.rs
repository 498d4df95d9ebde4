//! When the status of a set is written: one rule for all changes. Pure: no I/O, no clock.
//!
//! The answer to a new spec is written at once. So are changes that people wait for, as long as the token bucket has a token: [`BURST`]
//! writes in a row, then one in [`PERIOD`]. Any other change waits for [`DELAY`], since more may follow, and for [`PERIOD`] after the last
//! write, so a status is never wrong for longer than that. After a failure the wait doubles.

use jiff::{SignedDuration, Timestamp};

use super::stored::holds;
use crate::api::{PodSetStatus, condition};
use operator_kit::{failures::Failures, statuses::PAUSE, token_bucket::TokenBucket};

/// The longest time for which a status may be wrong, and the time in which the bucket gains a token.
const PERIOD: SignedDuration = PAUSE.0;

/// The wait of any other change. The operator may notice a change a second late.
const DELAY: SignedDuration = SignedDuration::from_secs(4);

/// How many tokens the bucket holds.
const BURST: i32 = 10;

/// The pace of one set's status.
#[derive(Clone, Debug)]
pub struct Pace {
    last: Option<Last>,
    /// Since when the stored status is known to be wrong.
    wrong_since: Option<Timestamp>,
    bucket: TokenBucket,
    failures: Failures,
}

/// The last status that was written, or tried to be.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Timestamp,
    generation: Option<i64>,
}

impl Default for Pace {
    fn default() -> Self {
        let bucket = TokenBucket::new(BURST, PERIOD);
        Pace { last: None, wrong_since: None, bucket, failures: Failures::default() }
    }
}

impl Pace {
    /// When this new status is due in place of the stored one; `None`: now. `is_settled`: no pod is about to be created or deleted.
    pub fn due(
        &mut self,
        stored: &PodSetStatus,
        new: &PodSetStatus,
        is_settled: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let since = *self.wrong_since.get_or_insert(now);
        let last = self.last.filter(|last| last.generation == new.observed_generation)?;
        let due = match self.failures.wait() {
            Some(wait) => last.at + wait,
            None if self.bucket.has_token(now) && is_awaited(stored, new, is_settled) => now,
            None => (since + DELAY).max(last.at + PERIOD),
        };
        (now < due).then_some(due)
    }

    /// A status was written at this time, or is known to be outdated.
    pub fn written(&mut self, new: &PodSetStatus, at: Timestamp) {
        self.last = Some(Last { at, generation: new.observed_generation });
        self.bucket.take(at);
        self.is_right();
    }

    /// A status may not have been written, for this reason. Returns when to try again, and whether the reason is news.
    pub fn failed(&mut self, new: &PodSetStatus, error: &str, at: Timestamp) -> (Timestamp, bool) {
        self.last = Some(Last { at, generation: new.observed_generation });
        let (wait, is_news) = self.failures.note(error, PAUSE);
        (at + wait, is_news)
    }

    /// The stored status is right.
    pub fn is_right(&mut self) {
        self.wrong_since = None;
        self.failures = Failures::default();
    }
}

/// Whether people wait for this change: Ready changes, or pods have come or gone and no more are about to.
fn is_awaited(stored: &PodSetStatus, new: &PodSetStatus, is_settled: bool) -> bool {
    holds(stored, condition::READY) != holds(new, condition::READY) || (is_settled && stored.pod_names != new.pod_names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    /// A status for this generation, of these pods.
    fn status(generation: i64, pods: &[&str]) -> PodSetStatus {
        let pod_names = pods.iter().map(|&pod| pod.into()).collect();
        PodSetStatus { observed_generation: Some(generation), pod_names, ..PodSetStatus::default() }
    }

    fn after(seconds: i64) -> Timestamp {
        testing::now() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn what_people_wait_for_is_written_at_once_and_the_rest_after_five_seconds() {
        let (mut pace, a, b) = (Pace::default(), status(1, &["a"]), status(1, &["a", "b"]));
        assert_eq!(pace.due(&a, &a, true, after(0)), None, "the first one");
        pace.written(&a, after(0));
        let other = PodSetStatus { ready_replicas: 1, ..a.clone() };
        assert_eq!(pace.due(&a, &other, true, after(1)), Some(after(5)), "five seconds after the last write");
        assert_eq!(pace.due(&a, &other, true, after(5)), None);
        pace.written(&other, after(5));
        assert_eq!(pace.due(&a, &other, true, after(30)), Some(after(34)), "more may follow");
        pace.is_right();
        assert_eq!(pace.due(&a, &b, true, after(40)), None, "a pod came");
        assert_eq!(pace.due(&a, &b, false, after(40)), Some(after(44)), "more are to come");
        assert_eq!(pace.due(&a, &status(2, &["a"]), false, after(40)), None, "a new spec");
    }

    #[test]
    fn the_bucket_bounds_what_is_written_at_once() {
        let (mut pace, a, b) = (Pace::default(), status(1, &["a"]), status(1, &["b"]));
        for _ in 0..BURST {
            assert_eq!(pace.due(&a, &b, true, after(0)), None);
            pace.written(&b, after(0));
        }
        assert_eq!(pace.due(&a, &b, true, after(1)), Some(after(5)));
        pace.written(&b, after(5));
        assert_eq!(pace.due(&a, &b, true, after(6)), Some(after(10)), "it is empty again");
        assert_eq!(pace.due(&a, &status(2, &["b"]), true, after(6)), None, "but the answer to a spec needs no token");
    }

    #[test]
    fn failures_wait_longer_each_time_but_not_another_spec() {
        let (mut pace, a, b) = (Pace::default(), status(1, &["a"]), status(1, &["b"]));
        let failed = ["away", "away", "forbidden"].map(|error| pace.failed(&b, error, after(0)));
        assert_eq!(failed, [(after(5), true), (after(10), false), (after(20), true)]);
        assert_eq!(pace.due(&a, &b, true, after(1)), Some(after(20)));
        assert_eq!(pace.due(&a, &status(2, &["b"]), true, after(1)), None);
        pace.is_right();
        assert_eq!(pace.due(&a, &b, true, after(1)), None);
    }
}
