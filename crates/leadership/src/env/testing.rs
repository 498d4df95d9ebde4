//! Time that passes only when a test lets it.

use super::*;

/// tokio's clock, which a test may pause, and no randomness.
pub fn virtual_env() -> Env {
    virtual_env_of(0.0)
}

/// As [`virtual_env`], but every random number is `unit`.
pub fn virtual_env_of(unit: f64) -> Env {
    let clock = VirtualClock { started: Timestamp::UNIX_EPOCH, origin: Instant::now() };
    Env { clock: Arc::new(clock), random: Arc::new(Fixed(unit)) }
}

#[derive(Debug)]
struct VirtualClock {
    started: Timestamp,
    origin: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.started + SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX)
    }

    fn wall(&self) -> Timestamp {
        self.now()
    }
}

#[derive(Debug)]
struct Fixed(f64);

impl Random for Fixed {
    fn unit(&self) -> f64 {
        self.0
    }
}
