//! The known pods by UID, by name and by owner, always in agreement. No I/O, no decision.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    pod::{Pod, Seen},
    rules::{CacheRules, Owner},
};
use operator_kit::{ObjectKey, in_scope, interner::Interner, listwatch::Scope, meta::Uid};

#[derive(Debug, Default)]
pub struct PodIndex {
    rules: CacheRules,
    by_uid: HashMap<Uid, Seen>,
    by_owner: HashMap<Owner, BTreeSet<Uid>>,
    by_name: HashMap<ObjectKey, Uid>,
    /// The namespaces, owners, nodes, reasons to wait and reasons of disruptions of all of them.
    texts: Interner,
}

impl PodIndex {
    pub fn new(rules: CacheRules) -> Self {
        PodIndex { rules, ..PodIndex::default() }
    }

    pub fn get(&self, uid: &Uid) -> Option<&Seen> {
        self.by_uid.get(uid)
    }

    /// The pod of this UID, to note what we know besides its state. [`PodIndex::update`] changes its state.
    pub fn get_mut(&mut self, uid: &Uid) -> Option<&mut Seen> {
        self.by_uid.get_mut(uid)
    }

    pub fn named(&self, key: &ObjectKey) -> Option<&Seen> {
        self.by_name.get(key).and_then(|uid| self.by_uid.get(uid))
    }

    /// The pods of this set, in any order.
    pub fn owned(&self, owner: &Owner) -> impl Iterator<Item = &Seen> {
        self.by_owner.get(owner).into_iter().flatten().filter_map(|uid| self.by_uid.get(uid))
    }

    /// The known pods of the scope that are not newer than a list of this version, and not in it.
    pub fn absent(&self, scope: &Scope, listed: &HashSet<Uid>, version: u64) -> Vec<Arc<Pod>> {
        let known = self.by_uid.values().map(|seen| &seen.pod);
        known
            .filter(|pod| in_scope(scope, &pod.key) && pod.version <= version && !listed.contains(&pod.uid))
            .cloned()
            .collect()
    }

    /// The pod, sharing its texts with other pods and with its former state. It keeps its revision and its number of replacements, even if
    /// somebody removes the label or the annotation.
    pub fn shared(&mut self, mut pod: Pod) -> Arc<Pod> {
        if let Some(Seen { pod: former, .. }) = self.by_uid.get(&pod.uid) {
            pod.revision = pod.revision.or(former.revision);
            pod.replacements = pod.replacements.max(former.replacements);
            // A UID keeps its name.
            (pod.key, pod.uid) = (former.key.clone(), former.uid.clone());
        }
        let Pod { key, owner, node, waits_for, disruption, .. } = &mut pod;
        let texts = [Some(&mut key.namespace), owner.as_mut(), node.as_mut(), waits_for.as_mut(), disruption.as_mut()];
        for text in texts.into_iter().flatten() {
            self.texts.share(text);
        }
        Arc::new(pod)
    }

    /// Adds a pod. Its UID and its name are not known: `Pods::upsert` has removed a former pod of the name.
    pub fn insert(&mut self, seen: Seen) {
        self.by_name.insert(seen.pod.key.clone(), seen.pod.uid.clone());
        self.own(&seen.pod);
        self.by_uid.insert(seen.pod.uid.clone(), seen);
    }

    /// Applies a state of a known pod. Returns the former and the new entry; `None`: the pod is not known.
    pub fn update(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Option<(Seen, &mut Seen)> {
        let former = self.by_uid.get(&pod.uid)?.clone();
        if former.pod.owner != pod.owner {
            self.disown(&former.pod);
            self.own(pod);
        }
        let seen = self.by_uid.get_mut(&pod.uid)?;
        seen.update(pod.clone(), now);
        Some((former, seen))
    }

    pub fn remove(&mut self, uid: &Uid) -> Option<Seen> {
        let seen = self.by_uid.remove(uid)?;
        self.disown(&seen.pod);
        self.by_name.remove(&seen.pod.key);
        Some(seen)
    }

    fn own(&mut self, pod: &Pod) {
        if let Some(owner) = self.rules.owner_of(pod) {
            self.by_owner.entry(owner).or_default().insert(pod.uid.clone());
        }
    }

    fn disown(&mut self, pod: &Pod) {
        let Some(owner) = self.rules.owner_of(pod) else { return };
        if let Some(pods) = self.by_owner.get_mut(&owner) {
            pods.remove(&pod.uid);
            if pods.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PodIndex {
        /// The numbers of UIDs, of owners and of names.
        pub fn sizes(&self) -> (usize, usize, usize) {
            (self.by_uid.len(), self.by_owner.len(), self.by_name.len())
        }
    }
}
