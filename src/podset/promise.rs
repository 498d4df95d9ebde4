//! The promise, never more than N pods at any moment, and the rules that keep it.
//!
//! # The promise
//!
//! A pod of a set is *live* if it is in the set's namespace, is owned by the set's UID, is not being deleted, and is neither Failed nor
//! Succeeded. At any time, a set has at most as many live pods as the largest `spec.replicas` among the generations from
//! `status.observedGeneration` to `metadata.generation`.
//!
//! With `podReplacementPolicy: TerminationComplete` the same holds for pods that *may run*: a pod that is being deleted counts until it is
//! Failed, Succeeded or gone, unless it never had a node. Time alone never ends this.
//!
//! The promise holds even if events come late, twice or not at all, and even if requests or answers are lost. It assumes that a request
//! takes effect within [`QUARANTINE`](super::observe::QUARANTINE) after it was sent, and before its sender's lease ends.
//!
//! # How it is kept
//!
//! `Count::missing` in `count.rs` says how many pods may be created: the wanted ones minus every pod that may live. Each rule below keeps
//! this count right in a case in which a simple count would be wrong.
//!
//! Each rule is a value in [`Rules`] or [`CacheRules`]. A test can replace a rule and see the promise break. The attacks A1 to A13 are such
//! tests, in `tests/simulation/attacks`: A1, A8 and A10 in `names.rs`, A2 to A4 in `leaders.rs`, A5 and A6 in `events.rs`, A7 in
//! `labels.rs`, A9 in `answers.rs`, A11 in `claims.rs`, A12 in `deletes.rs`, A13 in `terminations.rs`.
//!
//! Paths are relative to this folder or to the root of the repository.
//!
//! | rule | what goes wrong without it | where it is used | test that fails without it |
//! |---|---|---|---|
//! | The same intent has the same name ([`Rules::name`]) | A create that is sent twice makes two pods | `pass.rs`, `plan.rs` | A1 |
//! | A create without an answer counts as live; after [`CacheRules::quarantine`] it is read | It takes effect after another pod was created in its place | `act/batch.rs`, `set_state.rs`, `plan.rs` | A1 |
//! | Only a read resolves a create without an answer, time does not ([`Rules::forgets_unknown`]) | The create took effect, and the watch lags | `pass.rs`, `set_state.rs` | A1 |
//! | A name is not reused for [`CacheRules::quarantine`] after its pod ended | Two leaders create the same pod under two indices | `observe/pods.rs` | A2 |
//! | A write ends before its sender's term ([`operator_kit::client::Writer`]) | A request of a former leader takes effect | `crates/operator-kit/src/client/writer.rs`, `crates/leadership/src/term.rs` | A3 |
//! | A new leader reads before its first write ([`Rules::reads_first`]) | The watch of a standby had stalled | `pass.rs`, `takeover.rs` | A4 |
//! | The take-over reads all pods, labelled or not ([`Rules::take_over_selector`]) | A pod lost the watched label while nobody watched | `takeover.rs` | A7 |
//! | A status acknowledges a generation when the surplus is gone ([`Rules::status`]) | More pods live than the acknowledged generation allows | `report.rs`, `pass.rs` | `attacks/statuses.rs` |
//! | A status names the version for which it was made ([`Rules::status_version`]) | An old status replaces a newer one, or lands on another set of the name | `report.rs` | `attacks/statuses.rs` |
//! | An older state changes nothing ([`CacheRules::is_stale`]) | A late event brings back an old N or a dead pod | `crates/operator-kit/src/listwatch/mod.rs`, `observe/` | A5 |
//! | A read is ahead of the watch ([`CacheRules::is_over`]) | A dead pod comes back, and another one is deleted for it | `observe/pods/arrival.rs` | A5 |
//! | A pod may end before its create is answered ([`CacheRules::is_behind_watch`]) | A pod that no longer exists counts for ever | `observe/pods/arrival.rs` | A6 |
//! | A pod that the watch no longer shows may be alive ([`CacheRules::may_count`]) | A pod lost the watched label | `observe/pods.rs` | A7 |
//! | A pod belongs to the set that owns it ([`Rules::is_ours`]) | A stranger's pod has one of our names | `act/create.rs` | A8 |
//! | A created pod must match its manifest ([`Rules::differs`]) | Pods that a webhook changes do not count, so more and more are created | `act/create.rs`, `act/prepare.rs` | A9 |
//! | A delete names the UID ([`Rules::precondition`]) | A late delete hits the pod's successor | `act/delete.rs` | A10 |
//! | With TerminationComplete, a pod that is being deleted counts ([`Rules::counts_terminating`]) | Its containers run beside those of its replacement | `plan.rs` | A13 |
//! | A pod counts in its own namespace only ([`CacheRules::home`]) | A pod in another namespace counts, and one of the set's pods is deleted | `observe/` | A11 |
//! | A rejected delete concerns one pod ([`Rules::is_confined`]) | A pod that cannot be deleted blocks all others | `act/delete.rs`, `rejected_writes.rs` | A12 |

use jiff::Timestamp;

use super::{
    names,
    observe::{CacheRules, Pod, View},
    plan::{Plan, RolloutRules},
    pod,
    revision::Revision,
    set_state::SetState,
    status,
};
use crate::api::PodSetStatus;
use operator_kit::meta::Uid;

/// The rules of the table above.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The rules that the caches apply.
    pub cache: CacheRules,
    /// Whether pods that are being deleted and may run count, if their set waits for terminations.
    pub counts_terminating: bool,
    /// What bounds a rollout.
    pub rollout: RolloutRules,
    /// The name of the pod with this index in the set of this name and UID.
    pub name: fn(set: &str, uid: &str, index: u32) -> String,
    /// Whether a create without an answer is forgotten when it is too old to take effect.
    pub forgets_unknown: bool,
    /// Whether the namespace of a set is read before the first write there in a term.
    pub reads_first: bool,
    /// The label selector of the list of pods at take-over; `None`: all pods.
    pub take_over_selector: Option<&'static str>,
    /// The status of a set, with the generation that it acknowledges.
    pub status: fn(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus,
    /// The resourceVersion that the set must have when a status that was made for this version is applied.
    pub status_version: fn(version: u64) -> Option<u64>,
    /// Whether the pod belongs to the set of this UID.
    pub is_ours: fn(pod: &Pod, set: &Uid) -> bool,
    /// How a created pod differs from its manifest, for this name, set and revision.
    pub differs: fn(made: &Pod, name: &str, set: &Uid, revision: Revision) -> Option<String>,
    /// The UID that a delete of this pod names.
    pub precondition: fn(pod: &Uid) -> Option<String>,
    /// Whether a rejected delete delays only its pod. Otherwise the whole set backs off.
    pub is_confined: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            cache: CacheRules::default(),
            counts_terminating: true,
            rollout: RolloutRules::default(),
            name: names::pod_name,
            forgets_unknown: false,
            reads_first: true,
            take_over_selector: None,
            status: status::status,
            status_version: Some,
            is_ours: |pod, set| pod.owner.as_ref() == Some(set),
            differs: pod::difference,
            precondition: |pod| Some(pod.to_string()),
            is_confined: true,
        }
    }
}
