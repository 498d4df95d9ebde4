//! Part of the cache of pods: what a state of a pod means, compared with what is known. Pure.

use super::{Pod, Pods, Uid};
use crate::podset::observe::named::Named;

/// What a state of a pod means that comes from the watch or from an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Arrival {
    /// It is older than the known state.
    Stale,
    /// It is the newest state of a known pod.
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
    pub(super) fn classify(&self, pod: &Pod, is_from_watch: bool) -> Arrival {
        if let Some(seen) = self.by_uid.get(&pod.uid) {
            let is_stale = (self.rules.is_stale)(pod.version, seen.pod.version);
            return if is_stale { Arrival::Stale } else { Arrival::Update };
        }
        // A consistent read is ahead of the watch.
        let is_over = is_from_watch && (self.rules.is_over)(pod.version, self.verified.at(&pod.key));
        // It has come and gone, or lost its label meanwhile.
        let is_watched = !is_from_watch && pod.is_labelled;
        let is_missing = is_watched && (self.rules.has_ended)(pod.version, self.high_water.at(&pod.key));
        if is_over || self.gone.contains_key(&pod.uid) || (is_missing && self.names.ended_at(&pod.key).is_some()) {
            return Arrival::Over;
        }
        let former = self.by_name.get(&pod.key).and_then(|Named(former)| self.by_uid.get(&former.uid));
        match former.map(|seen| &seen.pod) {
            // One name, one pod at a time: the one of the higher version came later.
            Some(former) if (self.rules.is_stale)(pod.version, former.version) => Arrival::Stale,
            former => Arrival::New { is_missing, replaces: former.map(|former| former.uid.clone()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::{observe::CacheRules, testing};
    use operator_kit::listwatch::Change;

    #[test]
    fn a_state_is_judged_by_what_is_known() {
        let mut pods = Pods::new(CacheRules::default());
        let known = testing::pod("known").version(5).0;
        pods.apply(&None, Change::Snapshot { items: vec![known], version: 10 }, &|_| true, testing::now());
        pods.verify(&None, vec![testing::pod("known").version(5).0], 20, testing::now());
        let new = |is_missing, replaces: Option<&str>| Arrival::New { is_missing, replaces: replaces.map(Into::into) };
        for (story, pod, is_from_watch, expected) in [
            ("an older state", testing::pod("known").version(4), true, Arrival::Stale),
            ("a newer state", testing::pod("known").version(6), true, Arrival::Update),
            ("a list that is newer did not show it", testing::pod("ghost").version(15), true, Arrival::Over),
            ("a new pod", testing::pod("new").version(21), true, new(false, None)),
            ("an answer that the watch has come past", testing::pod("new").version(9), false, new(true, None)),
            ("an answer that is ahead of the watch", testing::pod("new").version(11), false, new(false, None)),
            ("an earlier pod of the name", testing::pod("known").uid("a").version(4), false, Arrival::Stale),
            (
                "the next pod of the name",
                testing::pod("known").uid("a").version(22),
                true,
                new(false, Some("uid-of-known")),
            ),
        ] {
            assert_eq!(pods.classify(&pod.0, is_from_watch), expected, "{story}");
        }
    }
}
