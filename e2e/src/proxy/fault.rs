//! The faults, and which of them is in force.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

/// What the proxy does to the operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Watches tell nothing, new ones neither; everything comes, in order, when the fault ends.
    WatchesHeld,
    /// Each event comes up to three seconds late, in order.
    WatchesLate,
    /// Events that were told already, of pods long gone too, are told again between the new ones.
    WatchesReplayed,
    /// Watches end after a moment, some of them with 410 Gone.
    WatchesEnded,
    /// Half of all writes are answered with 409, 429, 500 or 503 and not done.
    WritesRefused,
    /// Half of all writes are done and then answered with 500 or 503.
    WritesDoneButFailed,
    /// Half of all writes are done and then answered with 409 or 429, as no API server does it; a webhook or a gateway
    /// between might.
    WritesDoneButRefused,
    /// Half of the creates are done, and the connection is cut instead of an answer.
    CreatesCut,
    /// Writes are done and never answered; what is read is answered as always.
    WritesUnanswered,
    /// The same with creates of pods alone.
    CreatesUnanswered,
    /// Half of the creates reach the API server up to 20 s late, long after the operator gave up waiting.
    CreatesLate,
    /// The first create of each name reaches the API server 14 to 20 s late, a second one of that name at once.
    FirstCreatesLate,
    /// Every connection is cut at the first request: there is no API server.
    Away,
    /// Connections are accepted and requests taken, and nothing comes of them: the packets vanish on their way there.
    Silent,
    /// Requests arrive and are done, and no answer ever comes: the packets vanish on their way back.
    AnswersLost,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 15] = [
        Fault::WatchesHeld,
        Fault::WatchesLate,
        Fault::WatchesReplayed,
        Fault::WatchesEnded,
        Fault::WritesRefused,
        Fault::WritesDoneButFailed,
        Fault::WritesDoneButRefused,
        Fault::CreatesCut,
        Fault::WritesUnanswered,
        Fault::CreatesUnanswered,
        Fault::CreatesLate,
        Fault::FirstCreatesLate,
        Fault::Away,
        Fault::Silent,
        Fault::AnswersLost,
    ];
}

/// The fault in force, and the dice.
pub struct Faults {
    now: watch::Sender<Option<Fault>>,
    strikes: AtomicUsize,
    names: Mutex<HashSet<String>>,
    dice: Mutex<StdRng>,
}

impl Faults {
    pub fn new(seed: u64) -> Self {
        let dice = Mutex::new(StdRng::seed_from_u64(seed));
        let names = Mutex::default();
        Self { now: watch::Sender::new(None), strikes: AtomicUsize::new(0), names, dice }
    }

    pub fn set(&self, fault: Option<Fault>) {
        if fault.is_some() {
            self.strikes.store(0, Ordering::Relaxed);
        }
        self.now.send_replace(fault);
    }

    pub fn now(&self) -> Option<Fault> {
        *self.now.borrow()
    }

    /// Waits until none of these faults is in force.
    pub async fn until_none_of(&self, faults: &[Fault]) {
        // The sender is ours: it cannot be gone.
        let _ = self.now.subscribe().wait_for(|now| now.is_none_or(|now| !faults.contains(&now))).await;
    }

    /// Waits until one of these faults is in force.
    pub async fn until(&self, faults: &[Fault]) {
        let _ = self.now.subscribe().wait_for(|now| now.is_some_and(|now| faults.contains(&now))).await;
    }

    pub fn struck(&self) {
        self.strikes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn strikes(&self) -> usize {
        self.strikes.load(Ordering::Relaxed)
    }

    /// Whether this name was never asked about before.
    pub fn is_first(&self, name: String) -> bool {
        self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(name)
    }

    /// True so many times in a hundred.
    pub fn chance(&self, percent: u32) -> bool {
        self.dice().random_range(0..100) < percent
    }

    /// One of these.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.dice().random_range(0..choices.len())]
    }

    /// A number below `end`.
    pub fn below(&self, end: usize) -> usize {
        self.dice().random_range(0..end)
    }

    /// A time up to so many milliseconds.
    pub fn up_to_ms(&self, end: u64) -> Duration {
        Duration::from_millis(self.dice().random_range(0..=end))
    }

    fn dice(&self) -> MutexGuard<'_, StdRng> {
        self.dice.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
