//! Time that passes only when a test lets it.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
//! use std::time::Duration;
//! use leadership::env::testing::virtual_env;
//!
//! let (env, start) = (virtual_env(), virtual_env().now());
//! tokio::time::advance(Duration::from_secs(3600)).await;
//! assert_eq!(env.now().duration_since(start), jiff::SignedDuration::from_hours(1));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

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
