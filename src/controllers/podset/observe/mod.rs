//! First stage, *observe*: what is. The caches of PodSets and pods behind one lock, and nothing that acts.
//!
//! In: what the watches say and what our own writes were answered. Out: a [`View`] of one set at one moment.

mod pod;
mod pods;
mod reached;
mod set;
mod sets;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

pub use pod::{Phase, Pod, Seen};
pub use pods::{News, Pods};
pub use set::{Set, Wanted};
pub use sets::{Effects, Sets};

use super::locks::Locks;
use crate::{
    controllers::ObjectKey,
    listwatch::{Change, Scope},
};

/// Everything that is known.
#[derive(Debug)]
pub struct Observed {
    caches: Mutex<Caches>,
}

/// The two caches; whoever holds them holds the lock.
#[derive(Debug)]
pub struct Caches {
    /// PodSets.
    pub sets: Sets,
    /// Pods.
    pub pods: Pods,
}

/// One set and its pods at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// The set.
    pub set: Arc<Set>,
    /// Its pods, by name.
    pub pods: Vec<Seen>,
    /// Whether it must be read before anything is written for it.
    pub is_unread: bool,
}

impl Observed {
    /// Nothing is known yet.
    pub fn new(locks: Locks) -> Self {
        Observed { caches: Mutex::new(Caches { sets: Sets::new(locks), pods: Pods::new(locks) }) }
    }

    /// The caches. The lock is held for moments only, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, Caches> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caches {
    /// Takes in what the watch of pods says.
    pub fn apply_pods(&mut self, scope: &Scope, change: Change<Pod>, now: Timestamp) {
        let Caches { sets, pods } = self;
        pods.apply(scope, change, &|uid| sets.contains(uid), now);
        pods.expire(now);
    }

    /// The sets whose pods changed in a way that matters, since this was last asked.
    pub fn take_touched(&mut self) -> Vec<(ObjectKey, News)> {
        let touched = self.pods.take_touched();
        touched.into_iter().filter_map(|(uid, news)| Some((self.sets.key_of(&uid)?.clone(), news))).collect()
    }

    /// Forgets what belonged to sets that are gone.
    pub fn settle(&mut self, effects: &Effects, now: Timestamp) {
        for uid in &effects.gone {
            self.pods.forget_set(uid, now);
        }
    }
}
