//! What a state of a pod means, compared with what is known. Pure.

use jiff::Timestamp;

use super::{Pod, Pods};
use operator_kit::meta::Uid;

/// What a state of a pod means that comes from the watch or from an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// The state is older than the known state of this pod, or the pod is older than another one of its name.
    Stale,
    /// The pod is known, and this state is not older.
    Update,
    /// The pod has come and gone already.
    Over,
    /// It is a pod that was not known.
    New {
        /// The watch is past this state and does not show the pod: only a read can tell whether it exists.
        is_missing: bool,
        /// The pod that had the name before.
        replaces: Option<Uid>,
    },
}

impl Pods {
    /// What this state of a pod means.
    pub(super) fn classify(&self, pod: &Pod, is_from_watch: bool, now: Timestamp) -> Arrival {
        let rules = &self.rules;
        if let Some(seen) = self.index.get(&pod.uid) {
            let is_stale = (rules.is_stale)(pod.version, seen.pod.version);
            return if is_stale { Arrival::Stale } else { Arrival::Update };
        }
        // A consistent read is ahead of the watch.
        let is_over = is_from_watch && (rules.is_over)(pod.version, self.listed.at(&pod.key));
        // The watch is past this version and does not show the pod, so the pod is gone or lost its label.
        let is_labelled_answer = !is_from_watch && pod.is_labelled;
        let is_missing = is_labelled_answer && (rules.is_behind_watch)(pod.version, self.high_water.at(&pod.key));
        if is_over || self.gone.contains_key(&pod.uid) || (is_missing && self.is_resting(&pod.key, now)) {
            return Arrival::Over;
        }
        match self.index.named(&pod.key).map(|seen| &seen.pod) {
            // One name, one pod at a time: the one of the higher version came later.
            Some(former) if (rules.is_stale)(pod.version, former.version) => Arrival::Stale,
            former => Arrival::New { is_missing, replaces: former.map(|former| former.uid.clone()) },
        }
    }
}
