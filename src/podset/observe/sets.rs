//! The cache of PodSets. No I/O, no decision. A set's spec never goes back to an older one.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    high_water::HighWater,
    rules::{CacheRules, Owner},
    set::Set,
};
use crate::{api::PodSetStatus, podset::conditions};
use operator_kit::{
    ObjectKey, in_scope,
    listwatch::{Change, Scope},
    meta::Uid,
    queue::{self, Trigger},
};

/// The PodSets of the watched namespaces.
#[derive(Debug, Default)]
pub struct Sets {
    pub(super) rules: CacheRules,
    by_key: HashMap<ObjectKey, Arc<Set>>,
    by_uid: HashMap<Uid, ObjectKey>,
    /// Sets that an answer showed to be gone while the watch still shows them. Watch events about them are outdated.
    gone: HashMap<Uid, ObjectKey>,
    /// How far each watch has come.
    high_water: HighWater,
    /// The versions of the lists that `TakeOver::read` reads beside the watch. A set that is not in the cache and not newer than such a list
    /// is gone.
    listed: HighWater,
}

/// What a change of the cache means for the controller.
#[derive(Debug, Default, PartialEq)]
pub struct Effects {
    /// Sets to reconcile, and why.
    pub wake: Vec<(ObjectKey, Trigger)>,
    /// Sets that are gone, as their pods name them.
    pub gone: Vec<Owner>,
    /// Installations that have just written a status.
    pub writers: Vec<Arc<str>>,
}

impl Sets {
    pub fn new(rules: CacheRules) -> Self {
        Sets { rules, ..Sets::default() }
    }

    /// Applies a change from the watch of `scope`.
    pub fn apply(&mut self, scope: &Scope, change: Change<Set>) -> Effects {
        let mut effects = Effects::default();
        let version = match &change {
            Change::Snapshot { version, .. } | Change::Progress(version) => *version,
            Change::Applied(set) | Change::Deleted(set) => set.version,
        };
        self.high_water.raise(scope, version);
        match change {
            Change::Snapshot { items, version } => self.snapshot(scope, items, version, &mut effects),
            Change::Applied(set) => self.upsert(set, true, &mut effects),
            Change::Deleted(set) => {
                self.remove(&set.uid, &mut effects);
                self.gone.remove(&set.uid);
            }
            Change::Progress(_) => {}
        }
        effects
    }

    fn snapshot(&mut self, scope: &Scope, items: Vec<Set>, version: u64, effects: &mut Effects) {
        let listed: HashSet<Uid> = items.iter().map(|set| set.uid.clone()).collect();
        self.remove_absent(scope, &listed, version, effects);
        // The watch continues from this list, so it brings no more events about sets that are not in it.
        self.gone.retain(|uid, key| !in_scope(scope, key) || listed.contains(uid));
        for set in items {
            self.upsert(set, true, effects);
        }
    }

    /// Removes the known sets that are missing from a list of this version.
    fn remove_absent(&mut self, scope: &Scope, listed: &HashSet<Uid>, version: u64, effects: &mut Effects) {
        let known = self.by_key.values().filter(|set| in_scope(scope, &set.key) && set.version <= version);
        let absent: Vec<_> = known.map(|set| &set.uid).filter(|uid| !listed.contains(*uid)).cloned().collect();
        absent.iter().for_each(|uid| self.remove(uid, effects));
    }

    /// Whether this state of a set is the known one.
    pub fn knows(&self, set: &Set) -> bool {
        self.by_key.get(&set.key).is_some_and(|known| known.uid == set.uid && known.version == set.version)
    }

    /// Applies a consistent list of the sets of `scope` that was read beside the watch. `items`: the sets that are not known in this
    /// state; `listed`: the UIDs of all. If the watch has already passed the state of an unknown set, the set was deleted in the meantime.
    pub fn apply_list(&mut self, scope: &Scope, items: Vec<Set>, listed: &HashSet<Uid>, version: u64) -> Effects {
        let mut effects = Effects::default();
        self.remove_absent(scope, listed, version, &mut effects);
        for set in items {
            if self.by_uid.contains_key(&set.uid) || set.version > self.high_water.at(&set.key) {
                self.upsert(set, true, &mut effects);
            }
        }
        self.listed.raise(scope, version);
        effects
    }

    /// A request for the set of this UID was answered with this state; `None`: it is gone. A set that is no longer known stays unknown.
    pub fn answered(&mut self, uid: &Uid, found: Option<Set>) -> Effects {
        let mut effects = Effects::default();
        let Some(key) = self.by_uid.get(uid).cloned() else { return effects };
        match found.filter(|found| found.uid == *uid) {
            Some(found) => self.upsert(found, false, &mut effects),
            None => {
                self.gone.insert(uid.clone(), key);
                self.remove(uid, &mut effects);
            }
        }
        effects
    }

    /// Applies a state of a set. `is_from_watch`: it comes from a watch or a list, so another process may have written its status.
    fn upsert(&mut self, mut set: Set, is_from_watch: bool, effects: &mut Effects) {
        let is_over = !self.by_uid.contains_key(&set.uid) && set.version <= self.listed.at(&set.key);
        if is_over || self.gone.contains_key(&set.uid) {
            return;
        }
        let former = self.by_key.get(&set.key);
        if former.is_some_and(|former| (self.rules.is_stale)(set.version, former.version)) {
            return;
        }
        if former.is_none_or(|former| former.calls_for_action(&set)) {
            effects.wake.push((set.key.clone(), queue::SPEC));
        } else if is_from_watch && former.is_some_and(|former| former.status != set.status) {
            effects.wake.push((set.key.clone(), queue::STATUS));
        }
        if let Some(former) = former {
            effects.writers.extend(new_writer(&former.status, &set.status));
            if former.uid == set.uid {
                if set.waits_from.is_some() && former.waits_from.is_some() {
                    set.waits_from = former.waits_from;
                }
            } else {
                effects.gone.push(self.rules.owner(&former.key.namespace, &former.uid));
                self.by_uid.remove(&former.uid);
            }
        }
        self.by_uid.insert(set.uid.clone(), set.key.clone());
        self.by_key.insert(set.key.clone(), Arc::new(set));
    }

    fn remove(&mut self, uid: &Uid, effects: &mut Effects) {
        let Some(key) = self.by_uid.remove(uid) else { return };
        self.by_key.remove(&key);
        effects.gone.push(self.rules.owner(&key.namespace, uid));
        effects.wake.push((key, queue::SPEC));
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Set>> {
        self.by_key.get(key).cloned()
    }

    /// The key of the set that pods name as this owner.
    pub fn key_of(&self, owner: &Owner) -> Option<&ObjectKey> {
        let (_, uid) = owner;
        self.by_uid.get(uid).filter(|key| self.rules.owner(&key.namespace, uid) == *owner)
    }

    pub fn all(&self) -> impl Iterator<Item = &Set> {
        self.by_key.values().map(|set| &**set)
    }

    pub fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<_> = self.by_key.keys().cloned().collect();
        keys.sort();
        keys
    }
}

/// The installation that wrote `new` after `former`, if one did. An old status does not count, nor does a field that somebody else added
/// to it.
fn new_writer(former: &PodSetStatus, new: &PodSetStatus) -> Option<Arc<str>> {
    let is_new = former.written_by != new.written_by || !conditions::is_same(former, new);
    new.written_by.clone().filter(|_| is_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    const HERE: &str = "here/podset-operator";
    const THERE: &str = "there/podset-operator";

    /// The writers that are noticed when the status of a set changes from `former` to `new`.
    fn noticed(former: PodSetStatus, new: PodSetStatus) -> Vec<Arc<str>> {
        let set = |version, status| Set { version, status, ..testing::set(2) };
        let mut sets = Sets::new(CacheRules::default());
        let first = sets.apply(&None, Change::Snapshot { items: vec![set(10, former)], version: 10 });
        assert_eq!(first.writers, [], "it is not known when an existing status was written");
        sets.apply(&None, Change::Applied(set(11, new.clone()))).writers
    }

    #[test]
    fn only_the_writer_of_a_new_status_is_noticed() {
        let status = |ready_replicas, writer: Option<&str>| PodSetStatus {
            ready_replicas,
            written_by: writer.map(Into::into),
            ..PodSetStatus::default()
        };
        for (former, new, expected) in [
            (status(0, None), status(1, Some(THERE)), Some(THERE)),
            (status(0, Some(HERE)), status(1, Some(THERE)), Some(THERE)),
            // The same status, written by another installation.
            (status(1, Some(HERE)), status(1, Some(THERE)), Some(THERE)),
            (status(0, Some(THERE)), status(1, Some(THERE)), Some(THERE)),
            // For example, a label of the set was changed.
            (status(1, Some(THERE)), status(1, Some(THERE)), None),
            // A version of the operator that does not name the writer.
            (status(0, Some(THERE)), status(1, None), None),
        ] {
            let writers = noticed(former.clone(), new.clone());
            assert_eq!(writers, Vec::from_iter(expected.map(Arc::from)), "{former:?} {new:?}");
        }
    }

    #[test]
    fn a_foreign_condition_is_not_attributed_to_the_named_writer() {
        let former = PodSetStatus { written_by: Some(THERE.into()), ..PodSetStatus::default() };
        let theirs = serde_json::json!({
            "type": "Theirs", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T12:00:00Z",
        });
        let conditions = vec![serde_json::from_value(theirs).unwrap()];
        assert_eq!(noticed(former.clone(), PodSetStatus { conditions, ..former }), []);
    }
}
