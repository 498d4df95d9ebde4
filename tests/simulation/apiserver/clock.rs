//! The cluster's wall clock: tokio's time, which is paused in tests, on top of a fixed epoch. Nothing else in this folder reads a clock.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z: where the cluster's wall clock stands when a test begins.
const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The wall clock of the API server, the kubelet and the controllers beside them.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that stands at the epoch now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Virtual time since the test began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The wall clock, with its fraction of a second.
    pub fn now(&self) -> Timestamp {
        EPOCH + self.elapsed()
    }

    /// The wall clock as `metadata` carries it: RFC 3339, whole seconds.
    pub fn rfc3339(&self) -> String {
        self.rfc3339_in(0)
    }

    /// The wall clock `seconds` from now, as `metadata` carries it.
    pub fn rfc3339_in(&self, seconds: i64) -> String {
        Timestamp::from_second(self.now().as_second() + seconds)
            .expect("a grace period never reaches the year 10000")
            .to_string()
    }
}
