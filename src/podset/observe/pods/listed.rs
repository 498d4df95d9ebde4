//! Consistent lists of all pods, which a new leader reads beside the watch.

use std::collections::HashSet;

use jiff::Timestamp;

use super::{Pod, Pods};
use operator_kit::{listwatch::Scope, meta::Uid};

impl Pods {
    /// Whether this state of a pod is the known one, so that [`Pods::apply_list`] learns nothing from it, now or later: known versions only
    /// rise, and a pod that goes meanwhile does not come back.
    pub fn knows(&self, pod: &Pod) -> bool {
        self.is_watched(pod) && self.index.get(&pod.uid).is_some_and(|seen| seen.pod.version == pod.version)
    }

    /// Whether the watch has shown this state of a pod, or is past it.
    pub(super) fn is_watched(&self, pod: &Pod) -> bool {
        pod.is_labelled && pod.version <= self.high_water.at(&pod.key)
    }

    /// Takes in a consistent list of all pods of `scope`, without a label selector: it shows pods of our sets that no watch shows. `known`:
    /// those that were known in this state when their page was read; `items`: the others that concern us.
    pub fn apply_list(&mut self, scope: &Scope, items: Vec<Pod>, known: HashSet<Uid>, version: u64, now: Timestamp) {
        let mut listed = known;
        listed.extend(items.iter().map(|pod| pod.uid.clone()));
        for pod in self.index.absent(scope, &listed, version) {
            self.remove(&pod.uid, now);
        }
        for pod in items {
            let is_watched = self.is_watched(&pod);
            // Perhaps it ended while the list was read. Without the label, the watch does not tell.
            let may_be_over = !pod.is_labelled && self.index.get(&pod.uid).is_none();
            let uid = pod.uid.clone();
            self.upsert(pod, false, now);
            if !is_watched && let Some(seen) = self.index.get_mut(&uid) {
                seen.unconfirmed_since.get_or_insert(now);
                seen.is_missing |= may_be_over;
            }
        }
        self.listed.raise(scope, version);
    }
}
