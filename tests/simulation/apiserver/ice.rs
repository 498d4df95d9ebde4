//! Freezes of a client: a process, or its machine, that stands still.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Keeps a client from sending, and perhaps from hearing. Its clock stands still meanwhile: a frozen process sees no time pass,
/// and its timers end after it has gone on. So nothing that it judges by the clock may reach it.
#[derive(Clone, Debug, Default)]
pub struct Ice(Arc<Mutex<Option<Frozen>>>);

/// A freeze.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    /// When it began.
    pub since: Instant,
    /// When it ends.
    pub until: Instant,
    /// Whether nothing is heard, either.
    pub is_whole: bool,
}

impl Ice {
    /// Freezes for so long from now on. A freeze that goes on becomes longer, and whole if either is.
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

    /// Whether it goes on now and keeps from hearing, too.
    pub fn is_whole(&self) -> bool {
        self.frozen().is_some_and(|frozen| frozen.is_whole)
    }

    /// Waits until nothing is kept from being heard.
    pub async fn melted(&self) {
        while let Some(frozen) = self.frozen().filter(|frozen| frozen.is_whole) {
            sleep_until(frozen.until).await;
        }
    }

    /// The freeze that goes on now.
    pub fn frozen(&self) -> Option<Frozen> {
        self.lock().filter(|frozen| Instant::now() < frozen.until)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Frozen>> {
        self.0.lock().expect("no test panics here")
    }
}
