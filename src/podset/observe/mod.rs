//! First stage, *observe*: the caches of PodSets and pods, behind one lock. Nothing here acts.
//!
//! In: the events of the watches and the answers to our own writes. Out: a [`View`] of one set at one moment.

mod arrival;
mod high_water;
mod index;
mod pod;
mod pods;
mod rules;
mod set;
mod sets;
mod taken_names;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;

pub use pod::{Phase, Pod, Seen};
pub use pods::{News, Pods};
pub use rules::{CacheRules, Owner, QUARANTINE};
pub use set::{PodsLike, Set, Template, Wanted, Whole};
pub use sets::{Effects, Sets};

use operator_kit::{
    ObjectKey,
    listwatch::{Change, Scope},
    lock,
};

/// The caches behind their lock.
#[derive(Debug)]
pub struct Observed {
    caches: Mutex<Caches>,
}

/// The two caches.
#[derive(Debug)]
pub struct Caches {
    rules: CacheRules,
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
    /// Whether the set must be read before anything is written for it.
    pub is_unread: bool,
}

impl Observed {
    /// Nothing is known yet.
    pub fn new(rules: CacheRules) -> Self {
        Observed { caches: Mutex::new(Caches { rules, sets: Sets::new(rules), pods: Pods::new(rules) }) }
    }

    /// The caches. The lock is held for moments only, never across an await.
    pub fn lock(&self) -> MutexGuard<'_, Caches> {
        lock(&self.caches)
    }
}

impl Caches {
    /// Takes in a change from the watch of pods.
    pub fn apply_pods(&mut self, scope: &Scope, change: Change<Pod>, now: Timestamp) {
        let Caches { sets, pods, .. } = self;
        let waits = |owner: &Owner| Some(sets.get(sets.key_of(owner)?)?.waits_for_termination());
        pods.apply(scope, change, &waits, now);
        pods.expire(now);
    }

    /// The set, as its pods name it.
    pub fn owner(&self, set: &Set) -> Owner {
        self.rules.owner(&set.key.namespace, &set.uid)
    }

    /// The sets whose pods have changed in a way that matters since the last call, except the one that is being worked on.
    pub fn take_touched(&mut self, working_on: Option<&ObjectKey>) -> Vec<(ObjectKey, News)> {
        let touched = self.pods.take_touched();
        let known = |(owner, news)| {
            let key = self.sets.key_of(&owner).filter(|key| Some(*key) != working_on)?;
            let is_awaited = news == News::Ended && self.sets.get(key).is_some_and(|set| set.waits_for_termination());
            let can_wait = news < News::Urgent && !is_awaited && !self.has_surplus(key, &owner);
            Some((key.clone(), if can_wait { News::CanWait } else { news }))
        };
        touched.into_iter().filter_map(known).collect()
    }

    /// Whether more pods of the set live than it wants.
    fn has_surplus(&self, key: &ObjectKey, owner: &Owner) -> bool {
        let live = || self.pods.owned(owner).filter(|seen| seen.is_live()).count();
        let is_exceeded = |wanted: &Wanted| self.pods.number(owner) > wanted.replicas && live() > wanted.replicas;
        self.sets.get(key).is_some_and(|set| set.wanted.as_ref().is_ok_and(is_exceeded))
    }

    /// Forgets what belonged to sets that are gone.
    pub fn forget_gone(&mut self, effects: &Effects, now: Timestamp) {
        for owner in &effects.gone {
            self.pods.forget_set(owner, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::PodSetStatus, podset::testing};

    #[test]
    fn a_surplus_pod_is_urgent() {
        let observed = Observed::new(CacheRules::default());
        let mut caches = observed.lock();
        caches.sets.apply(&None, Change::Snapshot { items: vec![testing::set(2)], version: 10 });
        let mut news_of = |name, version| {
            let pod = testing::pod(name).version(version).0;
            caches.apply_pods(&None, Change::Applied(pod), testing::now());
            caches.take_touched(None).pop().map(|(_, news)| news)
        };
        assert_eq!(news_of("a", 11), Some(News::CanWait));
        assert_eq!(news_of("b", 12), Some(News::CanWait));
        assert_eq!(news_of("c", 13), Some(News::Appeared), "one pod more than wanted");
    }

    #[test]
    fn the_end_of_a_pod_is_urgent_for_a_set_that_waits_for_it() {
        for (set, expected) in [(testing::set(1), News::CanWait), (testing::patient_set(1), News::Ended)] {
            let observed = Observed::new(CacheRules::default());
            let mut caches = observed.lock();
            caches.sets.apply(&None, Change::Snapshot { items: vec![set], version: 10 });
            for pod in [testing::pod("a").deleted(1).version(11), testing::pod("a").deleted(1).failed(1).version(12)] {
                caches.take_touched(None);
                caches.apply_pods(&None, Change::Applied(pod.0), testing::now());
            }
            assert_eq!(caches.take_touched(None).pop().map(|(_, news)| news), Some(expected));
        }
    }

    #[test]
    fn names_in_a_written_status_are_in_memory_once() {
        let observed = Observed::new(CacheRules::default());
        let mut caches = observed.lock();
        let known = testing::set(1);
        caches.sets.apply(&None, Change::Snapshot { items: vec![known.clone()], version: 10 });
        let name: Arc<str> = "web-podabcde".into();
        let written = PodSetStatus { pod_names: vec![name.clone()], ..known.status.clone() };
        caches.sets.writing.begin(&known.uid, written);
        // In the response, and again in the watch.
        for version in [11, 11, 12] {
            let mut stored = Set { version, ..known.clone() };
            stored.status.pod_names = vec!["web-podabcde".into()];
            caches.sets.apply(&None, Change::Applied(stored));
            let stored = caches.sets.get(&known.key).unwrap();
            let [stored] = &stored.status.pod_names[..] else { panic!("one name") };
            assert!(Arc::ptr_eq(stored, &name));
            caches.sets.writing.end(&known.uid);
        }
    }
}
