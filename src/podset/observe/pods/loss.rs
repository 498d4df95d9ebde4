//! Part of the cache of pods: pods that the watch, a list or a read no longer shows. No I/O.

use super::{Arc, HashSet, News, Owner, Pod, Pods, Scope, Seen, Timestamp, Uid};
use crate::podset::observe::named::Named;
use operator_kit::in_scope;

impl Pods {
    /// Takes in a consistent list of what the watch shows.
    pub(super) fn snapshot(
        &mut self,
        scope: &Scope,
        items: Vec<Pod>,
        version: u64,
        is_set: &dyn Fn(&Owner) -> bool,
        now: Timestamp,
    ) {
        for pod in self.absent(scope, &items, version) {
            self.lose(&pod, is_set, now);
        }
        // The watch goes on from here.
        let listed: HashSet<&Uid> = items.iter().map(|pod| &pod.uid).collect();
        self.gone.retain(|uid, pod| !in_scope(scope, &pod.key) || listed.contains(uid));
        for pod in items {
            self.upsert(pod, true, now);
        }
    }

    /// The known pods that a consistent list of this version should show and does not.
    pub(super) fn absent(&self, scope: &Scope, items: &[Pod], version: u64) -> Vec<Arc<Pod>> {
        let listed: HashSet<&Uid> = items.iter().map(|pod| &pod.uid).collect();
        let known = self.by_uid.values().map(|seen| &seen.pod);
        known
            .filter(|pod| in_scope(scope, &pod.key) && pod.version <= version && !listed.contains(&pod.uid))
            .cloned()
            .collect()
    }

    /// The watch no longer shows a pod: it is gone, or it has only lost the watched label.
    pub(super) fn lose(&mut self, pod: &Pod, is_set: &dyn Fn(&Owner) -> bool, now: Timestamp) {
        let Some(seen) = self.by_uid.get(&pod.uid) else { return };
        // It lost its label and has it again in a newer state: an answer showed that, and the watch will show it, too.
        if seen.pod.is_labelled && (self.rules.is_stale)(pod.version, seen.pod.version) {
            return;
        }
        let may_live = (self.rules.may_live)(&seen.pod) && (self.rules.may_live)(pod) && seen.delete_answered.is_none();
        let is_owned = self.owner(&seen.pod).is_some_and(|owner| is_set(&owner));
        if let Some(seen) = self.by_uid.get_mut(&pod.uid).filter(|_| may_live && is_owned) {
            seen.lost(pod.version);
            let lost = seen.pod.clone();
            self.touch(&lost, News::Urgent);
            if !self.has_led {
                self.lost.push_back((now, lost.uid.clone()));
            }
        } else {
            self.remove(&pod.uid, now);
        }
    }

    /// A pod is gone for certain.
    pub(super) fn remove(&mut self, uid: &Uid, now: Timestamp) {
        let Some(seen) = self.by_uid.remove(uid) else { return };
        self.disown(&seen.pod);
        self.touch(&seen.pod, if seen.is_live() { News::Urgent } else { News::CanWait });
        if self.by_name.get(&seen.pod.key).is_some_and(|Named(pod)| pod.uid == *uid) {
            self.by_name.remove(&seen.pod.key);
        }
        self.names.pod_ended(seen.pod.key.clone(), now);
    }

    /// A read shows that a pod is gone. The watch may still show it.
    pub fn gone(&mut self, uid: &Uid, now: Timestamp) {
        let is_shown = |Seen { pod, .. }: &&Seen| pod.is_labelled || pod.version > self.high_water.at(&pod.key);
        if let Some(seen) = self.by_uid.get(uid).filter(|seen| !seen.is_missing).filter(is_shown) {
            self.gone.insert(uid.clone(), seen.pod.clone());
        }
        self.remove(uid, now);
    }
}
