//! One pod: what the API server says about it, and what we know besides. No I/O.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::podset::{compact_time::CompactTime, revision::Revision};
use operator_kit::{ObjectKey, meta::Uid};

/// If the watch does not confirm a write within this time, the pod is read.
const CONFIRM_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// With TerminationComplete, a pod that still runs this long after its grace period causes a Warning event.
const OVERDUE: SignedDuration = SignedDuration::from_secs(10);

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
pub enum Phase {
    /// Accepted, not yet running.
    #[default]
    #[serde(alias = "")]
    Pending,
    /// At least one container runs.
    Running,
    /// Finished, and no container failed.
    Succeeded,
    /// Finished, because a container failed or the pod was evicted.
    Failed,
    /// Its node does not answer, or the phase is one that this operator does not know.
    #[serde(other)]
    Unknown,
}

/// A pod, as the API server describes it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(from = "super::wire::PodWire")]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Uid,
    /// resourceVersion.
    pub version: u64,
    /// The UID of the PodSet that its controller owner reference names, if it names one.
    pub owner: Option<Uid>,
    /// Phase.
    pub phase: Phase,
    /// Since when its condition Ready is True.
    pub ready_since: Option<CompactTime>,
    /// The node that it is scheduled to.
    pub node: Option<Arc<str>>,
    /// Restarts of its containers, without init containers.
    pub restarts: i32,
    /// Why it does not start. While it has no node: the scheduler's message. Then the kubelet's word for a container, such as
    /// `CrashLoopBackOff`; none while the container is about to start.
    pub waits_for: Option<Arc<str>>,
    /// The exit code of a finished pod: of the container that failed last, or 0.
    pub exit_code: Option<i32>,
    /// When it was created.
    pub created: CompactTime,
    /// `status.startTime`: when the kubelet accepted it.
    pub started: Option<CompactTime>,
    /// When it finished, if its status says so.
    pub finished: Option<CompactTime>,
    /// `controller.kubernetes.io/pod-deletion-cost`; lower goes first.
    pub deletion_cost: i32,
    /// How many replacements in a row led to it.
    pub replacements: u32,
    /// The revision of the template that it was made from, by its label; `None`: it has no such label.
    pub revision: Option<Revision>,
    /// Whether it carries the label by which pods are watched.
    pub is_labelled: bool,
    /// Whether its deletionTimestamp is set.
    pub is_terminating: bool,
    /// When its deletion was requested.
    pub deleted: Option<CompactTime>,
    /// The grace period of its deletion, in seconds.
    pub grace: u32,
    /// The reason of its condition DisruptionTarget: why it is about to be evicted or deleted.
    pub disruption: Option<Arc<str>>,
}

impl Pod {
    /// Whether it is Failed or Succeeded.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Failed | Phase::Succeeded)
    }

    /// Whether its containers may run, now or later. A pod that is being deleted and has no node never runs, because it can no longer be
    /// bound.
    pub fn may_run(&self) -> bool {
        !self.is_finished() && (self.node.is_some() || !self.is_terminating)
    }

    /// Whether both states differ in nothing but the version.
    pub fn is_same(&self, other: &Pod) -> bool {
        Pod { version: self.version, ..other.clone() } == *self
    }
}

/// A pod, and what we know besides.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its last known state.
    pub pod: Arc<Pod>,
    /// We wrote it at this time, and the watch has not shown it since.
    pub unconfirmed_since: Option<CompactTime>,
    /// When our delete was accepted. Events that show the pod alive are older and do not clear this. A later read clears it if it shows that
    /// the pod is not being deleted.
    pub delete_answered: Option<CompactTime>,
    /// When its label may be restored again; `None`: it never was.
    pub relabel_at: Option<CompactTime>,
    /// The watch no longer shows it and did not show its deletion: the pod may be gone, or only its label.
    pub is_missing: bool,
    /// Our delete of this state was rejected. A newer state may be without the protection.
    pub delete_rejected: bool,
    /// When it finished, in steady time.
    pub finished_since: Option<CompactTime>,
    /// When its deletion was requested, in steady time.
    pub deleted_since: Option<CompactTime>,
    /// When it became ready, in steady time: when this process saw it, or if it was ready before, when its node says.
    pub seen_ready: Option<CompactTime>,
}

impl Seen {
    /// A pod of which nothing else is known.
    pub fn new(pod: Arc<Pod>, now: Timestamp) -> Self {
        let now = CompactTime::from(now);
        let finished_since = pod.is_finished().then(|| pod.finished.unwrap_or(now).min(now));
        let deleted_since = pod.is_terminating.then(|| pod.deleted.unwrap_or(now).min(now));
        let seen_ready = pod.ready_since.map(|at| at.min(now));
        Seen {
            pod,
            unconfirmed_since: None,
            delete_answered: None,
            relabel_at: None,
            is_missing: false,
            delete_rejected: false,
            finished_since,
            deleted_since,
            seen_ready,
        }
    }

    /// Applies a newer state of the same pod. An answer that shows it does not end `is_missing`.
    pub fn update(&mut self, pod: Arc<Pod>, now: Timestamp) {
        // Our own clock dates what we see happen: the node's clock may be minutes off.
        if pod.is_finished() {
            self.finished_since.get_or_insert(now.into());
        }
        if pod.is_terminating {
            self.deleted_since.get_or_insert(now.into());
        }
        if pod.ready_since != self.pod.ready_since {
            self.seen_ready = pod.ready_since.map(|_| now.into());
        }
        self.pod = pod;
    }

    /// Whether its deletion has been asked for.
    pub fn is_terminating(&self) -> bool {
        self.pod.is_terminating || self.delete_answered.is_some()
    }

    /// Whether it is live: not being deleted and not finished.
    pub fn is_live(&self) -> bool {
        !self.is_terminating() && !self.pod.is_finished()
    }

    /// Whether it is live and certainly exists: the watch has not lost it.
    pub fn is_certain(&self) -> bool {
        self.is_live() && !self.is_missing
    }

    /// Whether `status.terminatingReplicas` counts it: it is being deleted and has not finished.
    pub fn counts_as_terminating(&self) -> bool {
        self.is_terminating() && !self.pod.is_finished()
    }

    /// Whether it is being deleted and its containers may still run.
    pub fn is_ending(&self) -> bool {
        self.is_terminating() && self.pod.may_run()
    }

    /// When its deletion was requested, in steady time.
    pub fn terminating_since(&self) -> Option<Timestamp> {
        self.deleted_since.or(self.delete_answered).map(Timestamp::from)
    }

    /// When its grace period and [`OVERDUE`] are over, if it is being deleted.
    pub fn overdue_at(&self) -> Option<Timestamp> {
        Some(self.terminating_since()? + SignedDuration::from_secs(self.pod.grace.into()) + OVERDUE)
    }

    /// Whether it is current, which the API calls available: live, and Pending or Running.
    pub fn is_current(&self) -> bool {
        self.is_live() && matches!(self.pod.phase, Phase::Pending | Phase::Running)
    }

    /// Whether it is current and ready.
    pub fn is_ready(&self) -> bool {
        self.is_current() && self.pod.ready_since.is_some()
    }

    /// From when on it has been ready for so many seconds, if it is ready.
    pub fn ready_for(&self, seconds: u32) -> Option<Timestamp> {
        let since = self.seen_ready.filter(|_| self.is_ready())?;
        Some(Timestamp::from(since) + SignedDuration::from_secs(seconds.into()))
    }

    /// From when on only a read can tell whether it still exists; `None` while the watch shows it.
    pub fn look_at(&self) -> Option<Timestamp> {
        if self.is_missing {
            return Some(Timestamp::MIN);
        }
        let deleted = self.delete_answered.filter(|_| !self.pod.is_terminating);
        Some(Timestamp::from(self.unconfirmed_since.or(deleted)?) + CONFIRM_WITHIN)
    }
}
