//! What the operator remembers of a set between two passes because no cache can know it. No I/O.
//!
//! It is lost with the process. The promise does not need it afterwards: a create of a former process has taken effect, or never will,
//! before the next one leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    count::Progress,
    observe::{PodsLike, Set, Wanted},
    rejected_writes::RejectedWrites,
    rejection::{BACKOFF, Rejection},
    restart_backoff::Finishes,
    revision::Revision,
    trace_link::TraceLink,
};
use operator_kit::{
    failures::{Failures, doubled},
    meta::Uid,
    pace::Pace,
};

/// The longest wait if the namespace is being deleted. The waits before it are short, because a lagging API server can say so of a namespace
/// that was created again.
const REST: SignedDuration = SignedDuration::from_mins(10);

/// With this many strays that cannot be deleted, no pod is created: it bounds them if a webhook changes every pod and a policy protects them.
/// Fewer must not block the set. (A new leader does not know the strays, and may add as many.)
const MOST_STRAYS: usize = 3;

/// What is remembered of a set.
#[derive(Clone, Debug, Default)]
pub struct SetState {
    /// Writes whose effect is unknown.
    pub fates: Fates,
    /// When to try again.
    pub retry: Retry,
    /// What was reported. Some of it also steers the next plan and its creates.
    pub reports: Reports,
    /// How far the template of the spec is prepared.
    pub preparation: Preparation,
    /// The last progress of the rollout.
    pub progress: Option<Box<Progress>>,
    /// At the last plan, the generation from which on the set waited for terminations; 0 if it did not wait. `None`: there was no plan yet.
    pub waited_from: Option<i64>,
    /// Only a read of the namespace with a higher number is new enough for the set; the others may have missed pods. 0: any is.
    pub read_after: u64,
    /// Whether a create met a pod of another owner under one of the set's names. The set is read before the next create.
    pub met_foreign_pod: bool,
    /// The number of live pods after the last pass that changed pods, or the highest since. If fewer are live now, some were lost. `None`:
    /// this process has not created or deleted a pod of the set.
    pub live: Option<usize>,
    /// For the traces: which change is being worked on.
    pub trace_link: TraceLink,
}

/// How far a template is prepared before pods get it.
#[derive(Clone, Debug, Default)]
pub struct Preparation {
    /// The revision of the spec at a time when the stored status did not name it yet.
    pub unreported: Option<Revision>,
    /// The revision that is stored in a ControllerRevision.
    pub stored: Option<Revision>,
    /// The revision whose ControllerRevision has other content or another owner.
    pub collided: Option<Revision>,
    /// The revision whose dry run passed.
    pub dry_run: Option<Revision>,
    /// The former revision whose template could not be used, and the generation of the set at that time.
    pub unusable: Option<(Revision, i64)>,
    /// The last failure, if nothing succeeded since.
    pub failed: Option<Box<FailedPreparation>>,
}

#[derive(Clone, Debug)]
pub struct FailedPreparation {
    pub revision: Revision,
    pub message: String,
    /// Whether the API server rejects pods of the template.
    pub is_invalid: bool,
    pub failures: Failures,
    pub again: Timestamp,
}

impl Preparation {
    /// Whether the template of the spec is stored. The default pod needs no storing.
    pub fn is_stored(&self, set: &Set) -> bool {
        let is_default = matches!(set.wanted, Ok(Wanted { template: PodsLike::Template(None), .. }));
        is_default || self.stored == set.revision()
    }

    /// Whether the template of the spec is new to this process, or could not be stored.
    pub fn is_new(&self, set: &Set) -> bool {
        let has_stored_another = self.stored.is_some() && !self.is_stored(set);
        self.unreported == set.revision() || has_stored_another || self.failure(set).is_some()
    }

    /// Whether no pod of the spec's template is created now: its revision is about to change, or it is not stored and pods of the former
    /// template can be created.
    pub fn stops_creates(&self, set: &Set) -> bool {
        let replaces_pods = set.wanted.as_ref().is_ok_and(|wanted| wanted.update.replaces_pods());
        self.has_collided(set) || (self.unstored(set).is_some() && replaces_pods && self.former(set).is_some())
    }

    /// The revision that all pods had last, if that is another one than the spec's and its template can be used.
    pub fn former(&self, set: &Set) -> Option<Revision> {
        set.former_revision().filter(|former| self.unusable != Some((*former, set.generation)))
    }

    pub fn has_collided(&self, set: &Set) -> bool {
        self.collided.is_some() && self.collided == set.revision()
    }

    /// The last failure, if it concerns the template of the spec.
    pub fn failure(&self, set: &Set) -> Option<&FailedPreparation> {
        self.failed.as_deref().filter(|failed| Some(failed.revision) == set.revision())
    }

    /// The last failure, if the template of the spec is not stored because of it.
    pub fn unstored(&self, set: &Set) -> Option<&FailedPreparation> {
        self.failure(set).filter(|_| !self.is_stored(set))
    }

    /// The last failure, if it shows that the template of the spec is invalid.
    pub fn invalid(&self, set: &Set) -> Option<&FailedPreparation> {
        self.failure(set).filter(|failed| failed.is_invalid)
    }
}

/// What was reported, and what is still to be reported.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// The last problem with creates: they were rejected or got no answer, or a created pod differs from its manifest. `None` if there is
    /// none. The plan reads it to choose the template of missing pods.
    pub rejected_create: Option<Rejection>,
    /// The rejected create that the last event reports.
    pub announced_rejection: Option<Rejection>,
    /// The rejected dry run that the last event reports.
    pub announced_invalid: Option<Rejection>,
    /// Whether an event says that pods cannot be deleted. Until all rejections are over, there is only one, because messages may differ.
    pub announced_undeletable: bool,
    /// The templates that already have an event about failing pods.
    pub announced_failing: BTreeSet<Option<Revision>>,
    /// The pods of which an event says that they have outlived their grace periods.
    pub overdue: BTreeSet<Uid>,
    /// The work that is under way and has no event yet. The next pass begins with one more create than this work has created so far.
    pub burst: Option<Burst>,
    /// Work that ended and has no event yet, and how many pods were live then.
    pub ended: Vec<(Burst, usize)>,
    /// The wanted number that the set last reached; `None` once it works towards another.
    pub reached: Option<usize>,
    /// The rollout in the last report.
    pub rollout: Option<ReportedRollout>,
    /// When the first work since the last report began.
    pub silent_since: Option<Timestamp>,
    /// The types of conditions that the API server keeps although they are not applied any more.
    pub kept: BTreeSet<&'static str>,
    /// When the status may be written again.
    pub pace: Pace,
}

/// Work on the pods that has no event yet. Work for another number of wanted pods gets an event of its own: otherwise, a repair and a
/// scale-down that follows it would be one event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Burst {
    pub wanted: usize,
    /// Pods that were live when it began.
    pub from: usize,
    pub created: usize,
    /// Whether surplus pods were to be deleted.
    pub is_deleting: bool,
    /// Whether it brings the set to what its spec wants for the first time. Otherwise it replaces lost pods.
    pub is_scaling: bool,
}

impl SetState {
    /// Whether the set waits for terminations now and did not in the last plan. A new leader has no last plan, so it compares with the
    /// generation in the status.
    pub fn begins_to_wait(&mut self, set: &Set) -> bool {
        let from = set.waits_from.unwrap_or(0);
        self.waited_from.replace(from).or(set.status.observed_generation).is_some_and(|former| former < from)
    }

    /// Whether strays keep pods from being created: one of them is still going, or too many cannot be deleted.
    pub fn strays_hold(&self) -> bool {
        self.has_pending_strays() || self.fates.strays.len() >= MOST_STRAYS
    }

    /// Whether there is a stray whose delete was not rejected.
    pub fn has_pending_strays(&self) -> bool {
        self.fates.strays.keys().any(|uid| !self.retry.rejected_deletes.contains(uid))
    }

    /// Whether the status reports this failure, and this process has not created or deleted a pod of the set yet: a former leader may have
    /// reported it.
    pub fn inherits_failure(&self, set: &Set, reason: &str) -> bool {
        self.live.is_none() && set.reports_failure(reason)
    }
}

/// Writes whose results the cache does not show, and strays. The promise depends on them: every pod that may live counts.
#[derive(Clone, Debug, Default)]
pub struct Fates {
    /// Creates without an answer, by name, and when each can no longer take effect. They count as pods until a read resolves them.
    pub unknown: BTreeMap<String, Timestamp>,
    /// Creates that were rejected or never sent, by name, and when they are forgotten. Their names are used again, so even a wrong
    /// rejection leads to no second pod.
    pub rejected_creates: BTreeMap<String, Timestamp>,
    /// Deletes without an answer, by UID, and when the last of them can no longer take effect. A read resolves them.
    pub deletes: BTreeMap<Uid, Timestamp>,
    /// Pods that differ from what was ordered and must go: their names by UID.
    pub strays: BTreeMap<Uid, String>,
}

/// What a report said about the rollout of the spec's template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReportedRollout {
    pub revision: Arc<str>,
    pub generation: i64,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// There is no rollout, or the partition has stopped it.
    Idle,
    Started,
    Paused,
    /// Its deadline is over.
    Stalled,
    /// All pods have the template and are available.
    Complete,
}

impl Fates {
    /// Whether a create of this name was tried and did not succeed.
    pub fn has_failed(&self, name: &str) -> bool {
        self.unknown.contains_key(name) || self.rejected_creates.contains_key(name)
    }

    /// Whether a delete of this pod got no answer, and no read has shown what came of it.
    pub fn is_going(&self, uid: &Uid) -> bool {
        self.deletes.contains_key(uid)
    }

    /// Forgets rejected creates, and deletes of pods that are gone, once their time is over. Other writes without an answer are not
    /// forgotten, unless `forgets_unknown`: their pods are read.
    pub fn expire(&mut self, now: Timestamp, forgets_unknown: bool, is_known: impl Fn(&Uid) -> bool) {
        self.rejected_creates.retain(|_, until| *until > now);
        self.unknown.retain(|_, until| *until > now || !forgets_unknown);
        self.deletes.retain(|uid, until| *until > now || is_known(uid));
    }

    /// The creates without an answer that can no longer take effect: a read shows whether they did.
    pub fn overdue(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        self.unknown.iter().filter(move |(_, until)| **until <= now).map(|(name, _)| name.as_str())
    }

    /// Whether a delete of this pod can no longer take effect: a read shows whether it did.
    pub fn is_delete_overdue(&self, uid: &Uid, now: Timestamp) -> bool {
        self.deletes.get(uid).is_some_and(|until| *until <= now)
    }

    /// When the next fate can be read.
    pub fn next_overdue(&self, now: Timestamp) -> Option<Timestamp> {
        self.unknown.values().chain(self.deletes.values()).copied().filter(|until| *until > now).min()
    }

    /// A create got no answer. It may take effect until this time.
    pub fn create_unanswered(&mut self, name: &str, until: Timestamp) {
        self.rejected_creates.remove(name);
        self.unknown.insert(name.to_owned(), until);
    }

    /// A create was rejected, or never sent. An earlier one of the same name may still take effect.
    pub fn create_rejected(&mut self, name: &str, until: Timestamp) {
        if !self.unknown.contains_key(name) {
            self.rejected_creates.insert(name.to_owned(), until);
        }
    }

    /// A create was answered, or the pod that had its name is gone. An earlier create of the same name may still take effect.
    pub fn create_answered(&mut self, name: &str) {
        self.rejected_creates.remove(name);
    }
}

/// What a set waits for.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// The wait after a failure: nothing is tried.
    pub backoff: Option<Backoff>,
    /// Deletes that were rejected, or failed after an earlier failure.
    pub rejected_deletes: RejectedWrites,
    /// Restores of the watched label that failed.
    pub relabels: RejectedWrites,
    /// The pods that finished, and what waits to be created in their place.
    pub finishes: Finishes,
    /// The generation for which pods were last created, or tried to be.
    pub tried_generation: Option<i64>,
    /// Failed reads of the set, in a row.
    pub read_failures: Failures,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    /// Without jitter.
    wait: SignedDuration,
    pub until: Timestamp,
    /// The generation that failed. Another one is tried at once.
    generation: i64,
    /// Whether the namespace is being deleted. Then only creates wait.
    pub is_namespace_terminating: bool,
}

impl Retry {
    /// Something failed: waits, twice as long as the last time, up to a bound, or for a long time if the namespace is being deleted.
    /// `jittered` adds the jitter.
    pub fn back_off(
        &mut self,
        now: Timestamp,
        generation: i64,
        is_namespace_terminating: bool,
        jittered: impl Fn(SignedDuration) -> SignedDuration,
    ) {
        let former = self.backoff.filter(|former| {
            (former.generation, former.is_namespace_terminating) == (generation, is_namespace_terminating)
        });
        let wait = doubled(former.map(|former| former.wait), BACKOFF);
        let wait = if is_namespace_terminating && wait == BACKOFF.1 { REST } else { wait };
        self.backoff = Some(Backoff { wait, until: now + jittered(wait), generation, is_namespace_terminating });
    }

    /// The wait for this generation that is not over.
    pub fn waits(&self, generation: i64, now: Timestamp) -> Option<Backoff> {
        self.backoff.filter(|wait| wait.generation == generation && now < wait.until)
    }
}

#[cfg(test)]
mod tests;
