//! The faults that the simulation cannot produce: those of real connections, real watch caches and a real etcd.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

/// What the proxy does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Every connection is closed at its first request.
    Away,
    /// Requests get lost: connections stay open, and nothing reaches the API server.
    Silent,
    /// Responses get lost: requests take effect, and connections stay open.
    AnswersLost,
    /// Creates of pods take effect late, and their responses get lost.
    CreatesLate,
    /// Watches send nothing until the fault ends. Then they send all events in order.
    WatchesHeld,
    /// Watches also repeat old events, even of pods that are gone.
    WatchesReplayed,
}

impl Fault {
    /// Whether connections stay open and nothing comes back.
    pub fn is_mute(self) -> bool {
        matches!(self, Fault::Silent | Fault::AnswersLost)
    }
}

/// The current fault, and the dice.
pub struct Faults {
    now: watch::Sender<Option<Fault>>,
    strikes: AtomicUsize,
    dice: Mutex<StdRng>,
}

impl Faults {
    pub fn new(seed: u64) -> Self {
        let dice = Mutex::new(StdRng::seed_from_u64(seed));
        Self { now: watch::Sender::new(None), strikes: AtomicUsize::new(0), dice }
    }

    pub fn set(&self, fault: Option<Fault>) {
        if fault.is_some() {
            self.strikes.store(0, Relaxed);
        }
        self.now.send_replace(fault);
    }

    pub fn now(&self) -> Option<Fault> {
        *self.now.borrow()
    }

    /// Waits until `is_right` accepts the current fault.
    pub async fn until(&self, is_right: impl Fn(Option<Fault>) -> bool) {
        // The sender is in this value, so it exists.
        let _ = self.now.subscribe().wait_for(|now| is_right(*now)).await;
    }

    pub fn struck(&self) {
        self.strikes.fetch_add(1, Relaxed);
    }

    pub fn strikes(&self) -> usize {
        self.strikes.load(Relaxed)
    }

    /// True in this percentage of all cases.
    pub fn chance(&self, percent: u32) -> bool {
        self.dice.lock().random_range(0..100) < percent
    }

    /// A number below `end`.
    pub fn below(&self, end: usize) -> usize {
        self.dice.lock().random_range(0..end)
    }
}
