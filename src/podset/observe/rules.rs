//! The rules of the promise that the caches apply. Each is a value, so that a test can replace it: see [`promise`].
//!
//! [`promise`]: crate::podset::promise

use std::sync::Arc;

use jiff::SignedDuration;

use super::pod::Pod;
use leadership::MAY_LAND;
use operator_kit::{listwatch, meta::Uid};

/// A PodSet as its pods name it: the pod's namespace and the set's UID. No pod can name a set of another namespace.
pub type Owner = (Arc<str>, Uid);

/// How long after its sending a request may still take effect.
pub const QUARANTINE: SignedDuration = MAY_LAND;

/// The rules that the caches apply.
#[derive(Clone, Copy, Debug)]
pub struct CacheRules {
    /// How long a write without an answer may still take effect; then a read resolves it. A name rests as long after its pod ended.
    pub quarantine: SignedDuration,
    /// Whether a state of this resourceVersion is older than the known one. An older state changes nothing.
    pub is_stale: fn(version: u64, known: u64) -> bool,
    /// Whether a pod that the watch brings with this resourceVersion has come and gone already. A list of all pods as of `listed` did
    /// not show it.
    pub is_over: fn(version: u64, listed: u64) -> bool,
    /// Whether the watch is past this resourceVersion, at which a response shows a pod that the cache does not hold: the pod is gone, or
    /// lost its label.
    pub is_behind_watch: fn(version: u64, high_water: u64) -> bool,
    /// Whether a pod that the watch no longer shows, last in this state, may still count: it was not being deleted, or it may still
    /// run and pods count until they have ended (`waits`).
    pub may_count: fn(pod: &Pod, waits: bool) -> bool,
    /// The namespace under which [`Owner`] records sets and pods of this namespace: by default the same one.
    pub home: fn(namespace: &Arc<str>) -> Arc<str>,
}

impl CacheRules {
    /// The set of this UID, as pods in this namespace name it.
    pub fn owner(&self, namespace: &Arc<str>, uid: &Uid) -> Owner {
        ((self.home)(namespace), uid.clone())
    }

    /// The PodSet that the pod names as its owner.
    pub fn owner_of(&self, pod: &Pod) -> Option<Owner> {
        pod.owner.as_ref().map(|uid| self.owner(&pod.key.namespace, uid))
    }
}

impl Default for CacheRules {
    fn default() -> Self {
        CacheRules {
            quarantine: QUARANTINE,
            is_stale: listwatch::is_stale,
            is_over: |version, listed| version <= listed,
            is_behind_watch: |version, high_water| version <= high_water,
            may_count: |pod, waits| !pod.is_terminating || (waits && pod.may_run()),
            home: Arc::clone,
        }
    }
}
