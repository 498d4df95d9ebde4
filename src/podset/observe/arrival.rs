//! What a state of a pod means, compared with what is known. Pure.

use super::{
    pod::{Pod, Seen},
    rules::CacheRules,
};
use operator_kit::meta::Uid;

/// What a state of a pod means that comes from the watch or from an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Arrival {
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

/// What is known when a state of a pod arrives.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The pod itself.
    pub pod: Option<&'a Seen>,
    /// The pod that has its name.
    pub namesake: Option<&'a Seen>,
    /// Up to which version lists of all pods show its namespace.
    pub listed: u64,
    /// How far the watch of its namespace has come.
    pub high_water: u64,
    /// A read showed that it is gone.
    pub is_gone: bool,
    /// A pod of its name ended recently.
    pub has_ended: bool,
}

/// What this state of a pod means.
pub fn classify(pod: &Pod, is_from_watch: bool, known: Known<'_>, rules: &CacheRules) -> Arrival {
    if let Some(seen) = known.pod {
        let is_stale = (rules.is_stale)(pod.version, seen.pod.version);
        return if is_stale { Arrival::Stale } else { Arrival::Update };
    }
    // A consistent read is ahead of the watch.
    let is_over = is_from_watch && (rules.is_over)(pod.version, known.listed);
    // The watch is past this version and does not show the pod, so the pod is gone or lost its label.
    let is_watched = !is_from_watch && pod.is_labelled;
    let is_missing = is_watched && (rules.is_behind_watch)(pod.version, known.high_water);
    if is_over || known.is_gone || (is_missing && known.has_ended) {
        return Arrival::Over;
    }
    match known.namesake.map(|seen| &seen.pod) {
        // One name, one pod at a time: the one of the higher version came later.
        Some(former) if (rules.is_stale)(pod.version, former.version) => Arrival::Stale,
        former => Arrival::New { is_missing, replaces: former.map(|former| former.uid.clone()) },
    }
}
