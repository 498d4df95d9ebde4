//! The durations of an election, and how they must relate. Pure.

use std::time::Duration;

use jiff::SignedDuration;

/// How long Linux may take from sending bytes to their first retransmission: 1 s before it has measured a round trip; without latency, 440 ms
/// were measured. With the shortest allowed durations of an election, only 450 ms remain for this.
const RETRANSMISSION: SignedDuration = SignedDuration::from_secs(1);

/// The durations of an election. [`Timing::new`] checks them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    pub(crate) lease_duration: SignedDuration,
    pub(crate) renew_deadline: SignedDuration,
    pub(crate) retry_period: SignedDuration,
}

/// 15 s, 10 s and 2 s, as in client-go.
impl Default for Timing {
    fn default() -> Self {
        let [lease_duration, renew_deadline, retry_period] = [15, 10, 2].map(SignedDuration::from_secs);
        Timing { lease_duration, renew_deadline, retry_period }
    }
}

/// An error in the durations of an election.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// A leader could still write while the next one leads.
    #[error(
        "the lease duration ({0:?}) must be longer than the renew deadline ({1:?}), so that a leader that cannot renew its \
         lease stops before others may take it: give a longer duration or a shorter deadline"
    )]
    Deadline(Duration, Duration),
    /// A leader would give up after one failed try.
    #[error(
        "the renew deadline ({0:?}) must be longer than 1.2 times the retry period ({1:?}), so that a leader can try again \
         before it gives up: give a longer deadline or a shorter period"
    )]
    Period(Duration, Duration),
    /// There would be no pause between tries.
    #[error("the retry period must be longer than 0: give at least 1s")]
    NoPause,
    /// A Lease has whole seconds.
    #[error("{0:?} is not valid: give whole seconds, at most 2147483647")]
    NotSeconds(Duration),
}

impl Timing {
    /// How long others wait after the last renewal before they take the lease.
    pub fn lease_duration(&self) -> SignedDuration {
        self.lease_duration
    }

    /// How long a leader tries to renew its lease before it stops.
    pub fn renew_deadline(&self) -> SignedDuration {
        self.renew_deadline
    }

    /// The time between two tries to take or renew the lease.
    pub fn retry_period(&self) -> SignedDuration {
        self.retry_period
    }

    /// Checks that lease duration > renew deadline > 1.2 × retry period > 0, in whole seconds.
    ///
    /// # Errors
    ///
    /// If not. The message names the durations and a remedy.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        if retry_period.is_zero() {
            return Err(TimingError::NoPause);
        }
        // As in client-go, jitter delays a retry by up to a fifth of the period.
        if renew_deadline.as_nanos() * 5 <= retry_period.as_nanos() * 6 {
            return Err(TimingError::Period(renew_deadline, retry_period));
        }
        if lease_duration <= renew_deadline {
            return Err(TimingError::Deadline(lease_duration, renew_deadline));
        }
        let seconds = |duration: Duration| match i32::try_from(duration.as_secs()) {
            Ok(seconds) if duration.subsec_nanos() == 0 => Ok(SignedDuration::from_secs(seconds.into())),
            _ => Err(TimingError::NotSeconds(duration)),
        };
        Ok(Timing {
            lease_duration: seconds(lease_duration)?,
            renew_deadline: seconds(renew_deadline)?,
            retry_period: seconds(retry_period)?,
        })
    }

    /// How long sent bytes may stay unacknowledged before the kernel breaks the connection: half of the time between
    /// renew deadline and lease duration, at most 2 s.
    pub fn unacknowledged(&self) -> SignedDuration {
        (self.lease_duration.saturating_sub(self.renew_deadline) / 2).min(SignedDuration::from_secs(2))
    }

    /// TCP_USER_TIMEOUT: [`Timing::unacknowledged`] minus 1 s, because Linux counts it from the first retransmission, not from the sending. At
    /// least a tenth remains, because 0 would mean the system default.
    pub fn user_timeout(&self) -> Duration {
        let unacknowledged = self.unacknowledged();
        Duration::try_from(unacknowledged - RETRANSMISSION.min(unacknowledged * 9 / 10)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(lease: u64, deadline: u64, period: u64) -> Result<Timing, String> {
        let [lease, deadline, period] = [lease, deadline, period].map(Duration::from_secs);
        Timing::new(lease, deadline, period).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_that_do_not_fit_together_are_rejected() {
        for (lease, deadline, period) in [(15, 10, 2), (137, 107, 26), (3, 2, 1), (8, 7, 5)] {
            assert!(timing(lease, deadline, period).is_ok(), "{lease} {deadline} {period}");
        }
        for (lease, deadline, period, named) in [
            (10, 10, 2, ["the lease duration (10s)", "the renew deadline (10s)"]),
            (9, 10, 2, ["the lease duration (9s)", "the renew deadline (10s)"]),
            (15, 6, 5, ["the renew deadline (6s)", "the retry period (5s)"]),
            (15, 1, 1, ["the renew deadline (1s)", "the retry period (1s)"]),
            (15, 10, 0, ["the retry period", "at least 1s"]),
            (1 << 40, 10, 2, ["1099511627776s", "at most 2147483647"]),
        ] {
            let sentence = timing(lease, deadline, period).unwrap_err();
            assert!(named.iter().all(|name| sentence.contains(name)), "{sentence}");
        }
    }

    #[test]
    fn durations_must_be_whole_seconds() {
        let [lease, deadline, period] = [15_000, 10_500, 2_000].map(Duration::from_millis);
        assert_eq!(Timing::new(lease, deadline, period), Err(TimingError::NotSeconds(deadline)));
        let [lease, deadline, period] = [15, 10, 2].map(Duration::from_secs);
        assert_eq!(Timing::new(lease, deadline, period), Ok(Timing::default()));
    }

    #[test]
    fn the_kernel_has_time_for_one_retransmission() {
        const MEASURED: u128 = 440;
        for (lease, deadline, unacknowledged, user_timeout) in
            [(15, 10, 2000, 1000), (3, 2, 500, 50), (137, 107, 2000, 1000), (4, 2, 1000, 100)]
        {
            let [lease, deadline, period] = [lease, deadline, 1].map(Duration::from_secs);
            let timing = Timing::new(lease, deadline, period).unwrap();
            assert_eq!(timing.unacknowledged().unsigned_abs().as_millis(), unacknowledged);
            assert_eq!(timing.user_timeout().as_millis(), user_timeout);
            assert!(user_timeout + MEASURED < unacknowledged);
        }
    }
}
