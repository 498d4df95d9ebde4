//! What the operator takes from the world besides the API server: time and chance.
//!
//! Both are constructor arguments everywhere, so that a test decides them. No other file reads a clock or draws a number.

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The steady time: it never jumps and never goes back, whatever happens to the machine's clock. All waiting,
    /// counting and comparing is done with it.
    fn now(&self) -> Timestamp;

    /// The time of day, for people to read in statuses and events. It may jump; nothing is decided by it.
    fn wall(&self) -> Timestamp;
}

/// A source of chance, for jitter.
pub trait Random: Debug + Send + Sync + 'static {
    /// A number in `0.0..1.0`.
    fn unit(&self) -> f64;
}

/// Time and chance, handed to everything that needs them.
#[derive(Clone, Debug)]
pub struct Env {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from.
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

    /// `duration`, longer by a random part of up to `share` of it.
    pub fn jittered(&self, duration: SignedDuration, share: f64) -> SignedDuration {
        duration.saturating_add(SignedDuration::from_secs_f64(duration.as_secs_f64() * share * self.random.unit()))
    }

    /// Waits until the steady time is `when`.
    pub async fn sleep_until(&self, when: Timestamp) {
        let left = when.duration_since(self.now());
        tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
    }
}

/// The machine's clock: the wall time of the start, carried on by the monotonic clock.
#[derive(Debug)]
struct SystemClock {
    started: Timestamp,
    origin: Instant,
}

impl SystemClock {
    fn new() -> Self {
        SystemClock { started: Timestamp::now(), origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
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
