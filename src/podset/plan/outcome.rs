//! The outcome of *plan*.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::podset::{
    count::{Count, Progress},
    observe::{Seen, Set},
    revision::Revision,
    set_state::SetState,
};
use operator_kit::{ObjectKey, meta::Uid};

/// What should happen to the pods of a set.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The number of pods, wanted and existing.
    pub count: Count,
    /// Pods to create.
    pub create: Vec<Creation>,
    /// Pods to delete.
    pub delete: Vec<Deletion>,
    /// Pods to delete whose last delete was rejected, whether it is tried again now or later.
    pub rejected: BTreeSet<Uid>,
    /// Pods to read, because the result of a write is unknown or the watch no longer shows them.
    pub look: Vec<Look>,
    /// Pods whose watched label must be restored.
    pub relabel: Vec<Seen>,
    /// What comes before pods are created or replaced for the template in the spec.
    pub prepare: Option<Prepare>,
    /// The state of the rollout.
    pub rollout: Rollout,
    /// The last progress of the rollout, for the next plan.
    pub progress: Option<Progress>,
    /// Whether the rollout has made no progress for so long that its deadline is over.
    pub is_late: bool,
    /// Why missing pods are not created, or surplus pods not deleted, now. Strays and a failed preparation also delay creates.
    pub hold: Hold,
    /// Pods that count until they have ended, and have outlived their grace periods.
    pub overdue: BTreeSet<Uid>,
    /// When to plan again if nothing happens.
    pub wake: Option<Timestamp>,
}

/// A pod to read, because its fate is unknown.
#[derive(Clone, Debug)]
pub struct Look {
    pub key: ObjectKey,
    /// The pod in the cache; `None`: a create of this name got no answer, and can no longer take effect.
    pub sought: Option<Seen>,
    /// Whether the read shows the fate of a delete: it can no longer take effect.
    pub settles_delete: bool,
}

/// A pod to create.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Creation {
    pub name: String,
    /// How many replacements in a row there were, including this one; 0 for a pod that replaces none.
    pub replacements: u32,
    /// Whether an earlier create of this name may still take effect.
    pub is_repeated: bool,
    /// The revision of its template; `None`: the spec's.
    pub former: Option<Revision>,
}

/// What comes before pods are created or replaced for the template in the spec.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Prepare {
    /// The template is stored in a ControllerRevision, so that it can be used after the next change.
    Store,
    /// A pod is created with `dryRun`, before the first pod is deleted for it.
    DryRun,
}

/// The state of the rollout of the template in the spec.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rollout {
    /// All pods have this template, or the strategy is OnDelete.
    #[default]
    None,
    /// Pods are being replaced, or wait to be replaced.
    InProgress,
    /// As many pods have this template as the partition allows.
    AtPartition,
    /// `spec.updateStrategy.rollingUpdate.paused` is true.
    Paused,
}

/// A pod to delete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deletion {
    pub key: ObjectKey,
    /// UID, so that no other pod of this name is deleted.
    pub uid: Uid,
    /// Its resourceVersion in the cache; 0 if the cache does not have it.
    pub version: u64,
    /// Whether the delete requires this resourceVersion. Needed for a pod without a node under TerminationComplete: the API server would
    /// remove it at once, even if the scheduler has just bound it.
    pub is_exact: bool,
    pub why: Why,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// More pods live than are wanted.
    Surplus,
    /// It has another template than the spec's.
    Outdated,
    /// It finished, and enough finished pods are kept.
    Finished,
    /// It differs from its manifest.
    Stray,
}

/// Why a plan waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Hold {
    /// It does not wait.
    #[default]
    Nothing,
    /// The last try failed.
    Failure,
    /// Pods keep finishing, and replacements wait.
    RestartBackoff {
        pods: usize,
        /// When the first of them may be created.
        until: Timestamp,
        /// The template of that one.
        template: Option<Revision>,
    },
    /// No pod can be created: the set or its namespace is being deleted, or its spec cannot be read.
    Blocked,
}

impl Plan {
    /// Whether it creates pods for a set that may be gone. There are two signs: pods were lost since the last status or pass, perhaps
    /// because the set is being deleted; or a pod that the set does not own has one of its names, perhaps because the set was deleted and
    /// its pods were orphaned.
    pub fn creates_in_doubt(&self, set: &Set, state: &SetState) -> bool {
        let reported = usize::try_from(set.status.available_replicas).unwrap_or_default();
        !self.create.is_empty() && (state.met_foreign_pod || self.count.live < state.live.unwrap_or(reported))
    }

    /// Whether it deletes a pod whose delete was rejected at most once. The second try often works.
    pub fn tries_more_deletes(&self, state: &SetState) -> bool {
        self.delete.iter().any(|deletion| !state.retry.rejected_deletes.is_repeated(&deletion.uid))
    }

    /// Whether it asks for anything.
    pub fn has_work(&self) -> bool {
        let has_writes = !(self.create.is_empty() && self.delete.is_empty() && self.relabel.is_empty());
        has_writes || !self.look.is_empty() || self.prepare.is_some()
    }
}
