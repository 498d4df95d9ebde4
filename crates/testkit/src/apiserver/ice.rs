//! Freezes a client, like a stopped process or machine.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Holds back what a client sends, and in a whole freeze also what it receives. Its clock stops: no time passes for a
/// frozen process, and its timers fire after the freeze. So the client must not receive what it judges by its clock.
#[derive(Clone, Debug, Default)]
pub struct Ice(Arc<Mutex<Option<Frozen>>>);

/// A freeze.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    /// When it began.
    pub since: Instant,
    /// When it ends.
    pub until: Instant,
    /// Whether the client receives nothing, either.
    pub is_whole: bool,
}

impl Ice {
    /// Freezes from now on for `time`. Extends a freeze in progress, which becomes whole if either is.
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

    /// Whether a whole freeze is in progress.
    pub fn is_whole(&self) -> bool {
        self.frozen().is_some_and(|frozen| frozen.is_whole)
    }

    /// Waits for the end of a whole freeze.
    pub async fn melted(&self) {
        while let Some(frozen) = self.frozen().filter(|frozen| frozen.is_whole) {
            sleep_until(frozen.until).await;
        }
    }

    /// The freeze in progress.
    pub fn frozen(&self) -> Option<Frozen> {
        self.lock().filter(|frozen| Instant::now() < frozen.until)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Frozen>> {
        self.0.lock().expect("the holder does not panic")
    }
}
