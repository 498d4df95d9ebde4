//! One pod as this controller sees it: what the API server says of it, and what we know besides. No I/O.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::wire::PodWire;
use crate::{
    controllers::{ObjectKey, compact_time::CompactTime, meta::Uid},
    listwatch::Watched,
};

/// A write that the watch has not confirmed for so long is looked up.
const CONFIRM_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Phase {
    /// Accepted, not yet running.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// Finished well.
    Succeeded,
    /// Finished badly.
    Failed,
    /// Its node does not answer, or the phase is one that this operator does not know.
    Unknown,
}

/// What the API server says of a pod.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(from = "PodWire")]
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
    /// Restarts of all its containers.
    pub restarts: i32,
    /// Why it does not start. While it has no node: the scheduler's message. Then the kubelet's word for a container, such as
    /// `CrashLoopBackOff`; none while the container is about to start.
    pub waits_for: Option<Arc<str>>,
    /// The exit code of a finished pod: of the container that failed last, or 0.
    pub exit_code: Option<i32>,
    /// When it was created.
    pub created: CompactTime,
    /// When it started.
    pub started: Option<CompactTime>,
    /// When it finished, if it did and says so.
    pub finished: Option<CompactTime>,
    /// `controller.kubernetes.io/pod-deletion-cost`; lower goes first.
    pub deletion_cost: i32,
    /// How many replacements in a row led to it.
    pub replacements: u32,
    /// Whether it carries the label by which pods are watched.
    pub is_labelled: bool,
    /// Whether its deletionTimestamp is set.
    pub is_terminating: bool,
}

impl Watched for Pod {
    fn version(&self) -> u64 {
        self.version
    }
}

impl Pod {
    /// Whether it reached its end: Failed or Succeeded.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Failed | Phase::Succeeded)
    }

    /// Whether nothing differs that a status could tell or a plan would act on. What only ranks victims, or dates what comes
    /// later, is looked at when it is needed.
    pub fn is_same(&self, other: &Pod) -> bool {
        let Pod {
            key,
            uid,
            version: _,
            owner,
            phase,
            ready_since,
            node: _,
            restarts: _,
            waits_for,
            exit_code,
            created,
            started: _,
            finished,
            deletion_cost: _,
            replacements,
            is_labelled,
            is_terminating,
        } = self;
        (phase, is_labelled, is_terminating) == (&other.phase, &other.is_labelled, &other.is_terminating)
            && (ready_since, created, finished) == (&other.ready_since, &other.created, &other.finished)
            && (waits_for, exit_code, replacements) == (&other.waits_for, &other.exit_code, &other.replacements)
            && (key, uid, owner) == (&other.key, &other.uid, &other.owner)
    }
}

/// A pod, and what we know besides what the API server last said of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the API server last said.
    pub pod: Arc<Pod>,
    /// We wrote it at this time, and the watch has not shown it since.
    pub unconfirmed_since: Option<CompactTime>,
    /// Our delete was answered at this time. No event takes it back, for a deletion cannot be undone; only a later read does, which
    /// shows that there was none.
    pub delete_answered: Option<CompactTime>,
    /// The watch lost sight of it without showing its deletion: it may be gone, or only its label.
    pub is_missing: bool,
    /// Our delete of this state of it was rejected: a newer one may be without its protection.
    pub delete_rejected: bool,
    /// When it finished, in steady time.
    pub finished_since: Option<CompactTime>,
}

impl Seen {
    /// A pod of which nothing is known but what the API server says.
    pub fn new(pod: Arc<Pod>, now: Timestamp) -> Self {
        let now = CompactTime::from(now);
        let finished_since = pod.is_finished().then(|| pod.finished.unwrap_or(now).min(now));
        let (unconfirmed_since, delete_answered) = (None, None);
        Seen { pod, unconfirmed_since, delete_answered, is_missing: false, delete_rejected: false, finished_since }
    }

    /// Takes in a newer state of the same pod. That an answer knows it does not bring it back to sight.
    pub fn update(&mut self, pod: Arc<Pod>, now: Timestamp) {
        // A finish that happens before our eyes is timed by our own clock: the node's may be minutes off.
        if pod.is_finished() && self.finished_since.is_none() {
            self.finished_since = Some(now.into());
        }
        self.pod = pod;
    }

    /// The watch lost sight of it at this version.
    pub fn lost(&mut self, version: u64) {
        if version > self.pod.version {
            Arc::make_mut(&mut self.pod).version = version;
        }
        self.is_missing = true;
    }

    /// Whether its deletion has been asked for.
    pub fn is_terminating(&self) -> bool {
        self.pod.is_terminating || self.delete_answered.is_some()
    }

    /// Whether it counts for N: owned, not terminating, not finished.
    pub fn is_live(&self) -> bool {
        !self.is_terminating() && !self.pod.is_finished()
    }

    /// Whether it counts as available: live, and Pending or Running.
    pub fn is_available(&self) -> bool {
        self.is_live() && matches!(self.pod.phase, Phase::Pending | Phase::Running)
    }

    /// Whether it is available and ready.
    pub fn is_ready(&self) -> bool {
        self.is_available() && self.pod.ready_since.is_some()
    }

    /// From when on only a read can tell whether it still exists; `None` while the watch tells.
    pub fn look_at(&self) -> Option<Timestamp> {
        if self.is_missing {
            return Some(Timestamp::MIN);
        }
        let deleted = self.delete_answered.filter(|_| !self.pod.is_terminating);
        Some(Timestamp::from(self.unconfirmed_since.or(deleted)?) + CONFIRM_WITHIN)
    }
}
