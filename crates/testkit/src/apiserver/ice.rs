//! Freezes a client, like a stopped process or machine.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Holds back what a client sends, and in a whole freeze also what it receives. The client's clock stops, but tokio's timers do
/// not, so a client that compares events with its clock, such as a standby, needs a whole freeze.
#[derive(Clone, Debug, Default)]
pub struct Ice(Arc<Mutex<Option<Frozen>>>);

#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    pub since: Instant,
    pub until: Instant,
    /// Whether the client receives nothing, either.
    pub is_whole: bool,
}

impl Ice {
    /// Freezes from now on for `time`. If a freeze is in progress, extends it. The result is whole if one of the two is.
    pub fn freeze(&self, time: Duration, is_whole: bool) {
        let now = Instant::now();
        let new = Frozen { since: now, until: now + time, is_whole };
        let frozen = self.frozen().map_or(new, |old| Frozen {
            since: old.since,
            until: old.until.max(new.until),
            is_whole: old.is_whole || is_whole,
        });
        *self.lock() = Some(frozen);
    }

    pub fn is_whole(&self) -> bool {
        self.frozen().is_some_and(|frozen| frozen.is_whole)
    }

    pub async fn melted(&self) {
        while let Some(frozen) = self.frozen().filter(|frozen| frozen.is_whole) {
            sleep_until(frozen.until).await;
        }
    }

    pub fn frozen(&self) -> Option<Frozen> {
        self.lock().filter(|frozen| Instant::now() < frozen.until)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Frozen>> {
        self.0.lock().expect("the holder does not panic")
    }
}
