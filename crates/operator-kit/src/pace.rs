//! When a status is written: one rule for all kinds. Pure: no I/O, no clock.
//!
//! The answer to a new spec is written at once. A change that users wait for is also written at once while the token bucket has a token: a
//! burst of writes, then one in each [`PERIOD`]. Any other change waits for [`DELAY`], because more may follow, and until [`PERIOD`] after
//! the last write. So this delays no status for longer than [`PERIOD`]. After a failure the wait doubles.

use jiff::{SignedDuration, Timestamp};

use super::failures::{Failures, Waits};
use crate::token_bucket::TokenBucket;

/// The time between two writes of a status for changes that users do not wait for. The bucket gains a token in this time.
const PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// The first and the longest wait after failures.
const BACKOFF: Waits = (PERIOD, SignedDuration::from_secs(30));

/// How long a change that users do not wait for is delayed. One second less than [`PERIOD`], because the queue may hold a change back for a
/// second.
const DELAY: SignedDuration = SignedDuration::from_secs(4);

/// The pace of one object's status.
#[derive(Clone, Debug)]
pub struct Pace {
    /// When the status was last written, successfully or not, and the generation that it answers.
    last: Option<(Timestamp, Option<i64>)>,
    /// Since when the stored status is known to be wrong.
    wrong_since: Option<Timestamp>,
    bucket: TokenBucket,
    failures: Failures,
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new(10)
    }
}

impl Pace {
    /// A pace that allows a burst of this many awaited changes.
    pub fn new(burst: i32) -> Self {
        let bucket = TokenBucket::new(burst, PERIOD);
        Pace { last: None, wrong_since: None, bucket, failures: Failures::default() }
    }

    /// When a new status that answers `generation` is due; `None`: now. `is_awaited`: users wait for this change, for example of Ready.
    pub fn due(&mut self, generation: Option<i64>, is_awaited: bool, now: Timestamp) -> Option<Timestamp> {
        let since = *self.wrong_since.get_or_insert(now);
        let (last, _) = self.last.filter(|(_, answered)| *answered == generation)?;
        let due = match self.failures.wait() {
            Some(wait) => last + wait,
            None if is_awaited => self.bucket.next_token(now),
            None => (since + DELAY).max(last + PERIOD),
        };
        (now < due).then_some(due)
    }

    /// The stored status is wrong, and is written later.
    pub fn outdated(&mut self, now: Timestamp) {
        self.wrong_since.get_or_insert(now);
    }

    /// When the status was last written, successfully or not.
    pub fn last_write(&self) -> Option<Timestamp> {
        self.last.map(|(at, _)| at)
    }

    /// A status was written, or turned out to be outdated. The answer to a new spec takes no token.
    pub fn written(&mut self, generation: Option<i64>, at: Timestamp) {
        if self.last.is_some_and(|(_, answered)| answered == generation) {
            self.bucket.take(at);
        }
        self.last = Some((at, generation));
        self.up_to_date();
    }

    /// A status may not have been written, because of this error. Returns how long to wait, and whether the error is new.
    pub fn failed(&mut self, generation: Option<i64>, error: &str, at: Timestamp) -> (SignedDuration, bool) {
        self.last = Some((at, generation));
        self.failures.note(error, BACKOFF)
    }

    /// The stored status is up to date.
    pub fn up_to_date(&mut self) {
        self.wrong_since = None;
        self.failures = Failures::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generation and the next one.
    const ONE: Option<i64> = Some(1);
    const TWO: Option<i64> = Some(2);

    fn after(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn awaited_changes_are_written_at_once_and_others_after_five_seconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(ONE, false, after(0)), None, "the first status");
        pace.written(ONE, after(0));
        assert_eq!(pace.due(ONE, false, after(1)), Some(after(5)), "five seconds after the last write");
        assert_eq!(pace.due(ONE, false, after(5)), None);
        pace.written(ONE, after(5));
        assert_eq!(pace.due(ONE, false, after(30)), Some(after(34)), "more changes may follow");
        pace.up_to_date();
        assert_eq!(pace.due(ONE, true, after(40)), None, "an awaited change");
        assert_eq!(pace.due(ONE, false, after(40)), Some(after(44)), "not an awaited one");
        assert_eq!(pace.due(TWO, false, after(40)), None, "a new spec");
    }

    #[test]
    fn the_bucket_bounds_what_is_written_at_once() {
        for burst in [1, 10] {
            let mut pace = Pace::new(burst);
            pace.written(ONE, after(0));
            for _ in 0..burst {
                assert_eq!(pace.due(ONE, true, after(0)), None);
                pace.written(ONE, after(0));
            }
            assert_eq!(pace.due(ONE, true, after(1)), Some(after(5)));
            pace.written(ONE, after(5));
            assert_eq!(pace.due(ONE, true, after(9)), Some(after(10)), "it is empty again");
            assert_eq!(pace.due(TWO, true, after(6)), None, "but the status for a new spec needs no token");
        }
    }

    #[test]
    fn the_status_for_a_new_spec_takes_no_token() {
        let mut pace = Pace::new(1);
        for generation in [ONE, TWO] {
            assert_eq!(pace.due(generation, true, after(0)), None);
            pace.written(generation, after(0));
        }
        assert_eq!(pace.due(TWO, true, after(0)), None);
    }

    #[test]
    fn failures_back_off_but_a_new_spec_does_not_wait() {
        let mut pace = Pace::default();
        let failed = ["away", "away", "forbidden"].map(|error| pace.failed(ONE, error, after(0)));
        let expected = [(5, true), (10, false), (20, true)];
        assert_eq!(failed, expected.map(|(wait, is_news)| (SignedDuration::from_secs(wait), is_news)));
        assert_eq!(pace.due(ONE, true, after(1)), Some(after(20)));
        assert_eq!(pace.due(TWO, true, after(1)), None, "another spec may be accepted");
        pace.up_to_date();
        assert_eq!(pace.due(ONE, true, after(1)), None);
    }
}
