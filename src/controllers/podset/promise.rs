//! Never more than N, not for a moment: the promise, and the rules behind it.
//!
//! **The promise.** At any time the pods of a set that are live (in its namespace, owned by its UID, not being deleted, neither Failed
//! nor Succeeded) are at most as many as the largest `spec.replicas` among the generations from `status.observedGeneration`
//! to `metadata.generation`. It holds whatever the operator sees late, twice or not at all, and whatever becomes of its
//! requests, as long as a request takes effect within [`QUARANTINE`] of its sending and before the sender's lease ends.
//!
//! The line that keeps it is `Count::missing` in `plan.rs`: whatever may live counts. The rules ensure that the count
//! is true.
//!
//! **The promise.** Each is a value, so that a test can put another in its place and see the promise break. The attacks
//! A1 to A12 stand in `tests/simulation/attacks`, each told with the rules in place and with the one that stops it taken
//! out: A1, A8, A10 in `names.rs`, A2 to A4 in `leaders.rs`, A5 and A6 in `events.rs`, A7 in `labels.rs`, A9 in
//! `answers.rs`, A11 in `claims.rs`, A12 in `deletes.rs`.
//!
//! The table names files from this folder on, or from the root of the repository: `src/…`.
//!
//! | rule | what it keeps out | where it is used | test that fails without it |
//! |---|---|---|---|
//! | same intent, same name ([`Rules::name`]) | two pods out of one create that was sent twice | `plan.rs` | A1 |
//! | unknown counts as live, for [`Rules::quarantine`] | a create that lands after its answer was lost | `state.rs`, `plan.rs` | A1 |
//! | a read settles an unknown fate, not time ([`Rules::may_forget`]) | a create that took effect while the watch lags | `state.rs` | A1 |
//! | a name rests after its pod's end, for [`Rules::quarantine`] | the same pod made under two indices by two leaders | `observe/pods.rs` | A2 |
//! | a write ends before its sender's term ([`crate::client::Writer`]) | a request of a former leader | `src/client/writer.rs`, `crates/leadership/src/term.rs` | A3 |
//! | reads before the first write of a term ([`Rules::is_unread`]) | a standby whose watch stood still | `takeover.rs` | A4 |
//! | the take-over reads all pods, labelled or not ([`Rules::taken_over`]) | a pod that lost the watched label while nobody watched | `takeover.rs` | A7 |
//! | a status answers a generation when the surplus is gone ([`Rules::status`]) | more pods than the acknowledged generation allows | `report.rs` | `attacks/statuses.rs` |
//! | a status names the version that it was made for ([`Rules::status_version`]) | an old status in place of a newer one, or on another set of the name | `report.rs` | `attacks/statuses.rs` |
//! | nothing old undoes anything newer ([`Rules::is_stale`]) | a late event that brings back an old N or a dead pod | `src/listwatch/mod.rs`, `observe/` | A5 |
//! | a read is ahead of the watch ([`Rules::is_over`]) | a dead pod that comes back, and for which another one is deleted | `observe/pods.rs` | A5 |
//! | an end seen before its beginning was answered ([`Rules::has_ended`]) | a ghost that counts for ever | `observe/pods.rs` | A6 |
//! | out of sight is not gone ([`Rules::may_live`]) | a pod that lost the watched label | `observe/pods.rs` | A7 |
//! | whose name is it ([`Rules::is_ours`]) | a stranger's pod under one of our names | `act/create.rs` | A8 |
//! | what came back is what was ordered ([`Rules::differs`]) | pods without end behind a webhook that changes them | `act/create.rs` | A9 |
//! | a delete hits one incarnation ([`Rules::precondition`]) | a late delete that hits the pod's successor | `act.rs` | A10 |
//! | a claim counts in its own namespace ([`Rules::home`]) | a pod elsewhere that costs one of the set's its life | `observe/` | A11 |
//! | a rejected delete concerns one pod ([`Rules::is_confined`]) | a pod that cannot be deleted and keeps all others | `act.rs`, `rejected_deletes.rs` | A12 |

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{
    names,
    observe::{Owner, Pod, Set, View},
    plan::{Plan, Why},
    pod,
    set_state::{Create, SetState},
    status,
    takeover::Known,
};
use crate::{api::PodSetStatus, controllers::meta::Uid, listwatch};
use leadership::MAY_LAND;

/// How long after its sending a request may still take effect.
pub const QUARANTINE: SignedDuration = MAY_LAND;

/// The promise, see the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The name of the pod with this index in the set of this name and UID.
    pub name: fn(set: &str, uid: &str, index: u32) -> String,
    /// How long a create of unknown fate counts as live, and how long a name rests after its pod's end.
    pub quarantine: SignedDuration,
    /// Whether a create may be forgotten once it is too old to take effect.
    pub may_forget: fn(create: &Create) -> bool,
    /// Whether the set may have changed hands unseen: it may be older than the term, and was not read in it.
    pub is_unread: fn(known: &Known, set: &Set) -> bool,
    /// The label selector of the list of pods at take-over; `None`: all pods.
    pub taken_over: Option<&'static str>,
    /// The status of a set, with the generation that it answers.
    pub status: fn(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus,
    /// The resourceVersion that the set must have for a status made for this version.
    pub status_version: fn(version: u64) -> Option<u64>,
    /// Whether a state of this resourceVersion is older than the one that is known: it changes nothing.
    pub is_stale: fn(version: u64, known: u64) -> bool,
    /// Whether a pod that the watch brings with this resourceVersion, and that a list of all pods as of `verified` did not show,
    /// has come and gone already.
    pub is_over: fn(version: u64, verified: u64) -> bool,
    /// Whether a pod that was answered with this resourceVersion, and is not in the cache, has come and gone already.
    pub has_ended: fn(version: u64, high_water: u64) -> bool,
    /// Whether a pod that the watch no longer shows may be alive: its deletion was neither seen nor ours.
    pub may_live: fn(pod: &Pod) -> bool,
    /// Whether the pod belongs to the set of this UID.
    pub is_ours: fn(pod: &Pod, set: &Uid) -> bool,
    /// In what the pod that was made differs from what was ordered under this name for this set.
    pub differs: fn(made: &Pod, name: &str, set: &Uid) -> Option<String>,
    /// The UID that a delete of the pod of this UID must meet.
    pub precondition: fn(pod: &Uid) -> Option<String>,
    /// Within which namespace sets and pods of this namespace belong together.
    pub home: fn(namespace: &Arc<str>) -> Arc<str>,
    /// Whether a rejected delete concerns its pod alone. Otherwise the whole set backs off.
    pub is_confined: fn(why: Why) -> bool,
}

impl Rules {
    /// The owner that a pod in this namespace names by this UID, or the set itself of this namespace and UID.
    pub fn owner(&self, namespace: &Arc<str>, uid: &Uid) -> Owner {
        ((self.home)(namespace), uid.clone())
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            name: names::pod_name,
            quarantine: QUARANTINE,
            may_forget: |create| !create.is_unknown,
            is_unread: Known::is_unread,
            taken_over: None,
            status: status::status,
            status_version: Some,
            is_stale: listwatch::is_stale,
            is_over: |version, verified| version <= verified,
            has_ended: |version, high_water| version <= high_water,
            may_live: |pod| !pod.is_terminating,
            is_ours: |pod, set| pod.owner.as_ref() == Some(set),
            differs: pod::difference,
            precondition: |pod| Some(pod.to_string()),
            home: Arc::clone,
            is_confined: |_| true,
        }
    }
}
