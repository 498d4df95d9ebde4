//! The cluster's wall clock: a fixed epoch plus tokio's time. The time is virtual if the test pauses tokio's clock.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z: the time of the cluster's wall clock when the server starts.
const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The wall clock of the API server, the kubelet and the cluster's controllers.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time since the server started.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time of the wall clock, with fractions of a second.
    pub fn now(&self) -> Timestamp {
        EPOCH + self.elapsed()
    }

    /// The time as in `metadata`: RFC 3339, whole seconds.
    pub fn rfc3339(&self) -> String {
        self.rfc3339_in(0)
    }

    /// The time in `seconds` from now, as in `metadata`.
    pub fn rfc3339_in(&self, seconds: i64) -> String {
        let time = Timestamp::from_second(self.now().as_second() + seconds);
        time.expect("a grace period never reaches the year 10000").to_string()
    }
}
