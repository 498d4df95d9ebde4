//! First stage, *observe*: the caches of PodSets and pods, behind one lock. Nothing here acts.
//!
//! In: the events of the watches and the answers to our own writes. Out: a [`View`] of one set at one moment.

mod high_water;
mod index;
mod pod;
mod pods;
mod rules;
mod set;
mod sets;
mod wire;

use std::sync::Arc;

use jiff::Timestamp;

pub(super) use pod::Seen;
pub use pod::{Phase, Pod};
pub(super) use pods::Pods;
use pods::Urgency;
pub use rules::{CacheRules, Owner, QUARANTINE};
pub(super) use set::Wanted;
pub use set::{PodsLike, Set, Whole};
pub(super) use sets::{Effects, Sets};

use operator_kit::{
    ObjectKey,
    listwatch::{Change, Scope},
};

/// The two caches, behind one lock that is held for moments only, never across an await.
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
    /// Its pods, sorted by name.
    pub pods: Vec<Seen>,
    /// Whether the namespace of the set must be read before anything is written for the set.
    pub is_unread: bool,
}

impl Caches {
    /// Empty caches.
    pub fn new(rules: CacheRules) -> Self {
        Caches { sets: Sets::new(rules), pods: Pods::new(rules) }
    }

    /// Applies a change from the watch of pods.
    pub fn apply_pods(&mut self, scope: &Scope, change: Change<Pod>, now: Timestamp) {
        let Caches { sets, pods } = self;
        let waits = |owner: &Owner| Some(sets.get(sets.key_of(owner)?)?.waits_for_termination());
        pods.apply(scope, change, &waits, now);
    }

    /// The set, as its pods name it.
    pub fn owner(&self, set: &Set) -> Owner {
        self.sets.rules.owner(&set.key.namespace, &set.uid)
    }

    /// Returns the sets whose pods have changed since the last call, and whether the change is urgent. Leaves out the set that is being
    /// reconciled.
    pub fn take_touched(&mut self, working_on: Option<&ObjectKey>) -> Vec<(ObjectKey, bool)> {
        let touched = self.pods.take_touched();
        let known = |(owner, urgency)| {
            let key = self.sets.key_of(&owner)?;
            let waits = || self.sets.get(key).is_some_and(|set| set.waits_for_termination());
            Some((key.clone(), urgency == Urgency::Urgent || (urgency == Urgency::Ended && waits())))
        };
        touched.into_iter().filter_map(known).filter(|(key, _)| Some(key) != working_on).collect()
    }
}
