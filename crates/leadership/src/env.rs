//! Time and randomness. Code that makes decisions reads them from an [`Env`], so that a test can set them. Logs, traces, time limits and
//! idle connections may use a clock directly.

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rustix::time::ClockId;
use tokio::time::Instant;

/// A source of time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The steady time: monotonic, as a timestamp that starts at the time of day of the process's start. All waits and comparisons use it.
    fn now(&self) -> Timestamp;

    /// The time of day, for what others read: the Lease, statuses, events and metrics. It may jump, so no decision uses it.
    fn wall(&self) -> Timestamp;
}

/// A source of randomness, for jitter and for the identity of a process. Only a test replaces it: two processes with
/// the same identity would both hold the Lease.
pub trait Random: Debug + Send + Sync + 'static {
    /// A number in `0.0..1.0`.
    fn unit(&self) -> f64;
}

/// Time and randomness.
#[derive(Clone, Debug)]
pub struct Env {
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub random: Arc<dyn Random>,
}

impl Env {
    /// The machine's own clock and randomness.
    pub fn system() -> Self {
        Env { clock: Arc::new(SystemClock::new()), random: Arc::new(SystemRandom) }
    }

    /// The steady time, see [`Clock::now`].
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// `duration` plus a random fraction of it, from 0 to `share`.
    pub fn jittered(&self, duration: SignedDuration, share: f64) -> SignedDuration {
        duration.saturating_add(SignedDuration::from_secs_f64(duration.as_secs_f64() * share * self.random.unit()))
    }

    /// A unique text of 52 random bits, in hexadecimal.
    pub fn token(&self) -> String {
        const VALUES: f64 = 4_503_599_627_370_496.0;
        format!("{:013x}", (self.random.unit() * VALUES) as u64)
    }

    /// Waits until the steady time is `when`. It checks the clock after the timer, because a test may stop the clock.
    pub async fn sleep_until(&self, when: Timestamp) {
        loop {
            let left = when.duration_since(self.now());
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
            if self.now() >= when {
                return;
            }
        }
    }
}

/// The machine's clock: the wall time at the start plus the time that has passed since, the larger of CLOCK_MONOTONIC and CLOCK_BOOTTIME.
/// Only the latter runs while the machine sleeps, and a leader that slept through the end of its lease must notice.
#[derive(Debug)]
struct SystemClock {
    started: Timestamp,
    origin: Instant,
    booted: SignedDuration,
}

impl SystemClock {
    fn new() -> Self {
        SystemClock { started: Timestamp::now(), origin: Instant::now(), booted: since_boot() }
    }
}

/// The clock that also runs while the machine sleeps.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

fn since_boot() -> SignedDuration {
    let time = rustix::time::clock_gettime(BOOT_CLOCK);
    Duration::try_from(time).ok().and_then(|time| SignedDuration::try_from(time).ok()).unwrap_or_default()
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let awake = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        let elapsed = awake.max(since_boot().saturating_sub(self.booted));
        self.started.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[derive(Debug)]
struct SystemRandom;

impl Random for SystemRandom {
    fn unit(&self) -> f64 {
        rand::random()
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_includes_sleep_and_never_stands_still() {
        let mut clock = SystemClock::new();
        // Simulates an hour of sleep.
        clock.booted -= SignedDuration::from_hours(1);
        assert!(clock.now().duration_since(clock.started) >= SignedDuration::from_hours(1));
        let mut clock = SystemClock::new();
        // Simulates a boot clock that stands still.
        clock.booted += SignedDuration::from_hours(1);
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(before >= clock.started && clock.now() > before);
    }

    #[test]
    fn a_token_has_thirteen_digits() {
        assert_eq!(testing::virtual_env().token(), "0000000000000");
    }

    #[test]
    fn jitter_lengthens_a_wait_by_at_most_its_share() {
        let ten = SignedDuration::from_secs(10);
        let jittered = |unit, share| testing::virtual_env_of(unit).jittered(ten, share).as_millis();
        assert_eq!((jittered(0.0, 0.1), jittered(0.5, 0.1), jittered(0.75, 0.2)), (10_000, 10_500, 11_500));
    }
}
