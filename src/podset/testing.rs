//! Sets and pods for the tests of this folder.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{
    compact_time::CompactTime,
    observe::{Phase, Pod, PodsLike, Seen, Set, Wanted},
    revision::{Revision, Update},
};
use crate::api::PodSetStatus;
use operator_kit::ObjectKey;

/// The current time in the tests of this folder.
pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// The set `web` with its first generation, which the status has observed.
pub fn set(replicas: usize) -> Set {
    Set {
        key: ObjectKey::new("default", "web"),
        uid: "set-uid".into(),
        version: 10,
        generation: 1,
        is_deleting: false,
        change_cause: None,
        waits_from: None,
        wanted: Ok(Wanted {
            replicas,
            revision: Revision::of(None, 0),
            update: Update::new(&serde_json::from_str("{}").unwrap(), replicas),
            template: PodsLike::Template(None),
        }),
        status: PodSetStatus {
            observed_generation: Some(1),
            update_revision: Some(Revision::of(None, 0).to_string().into()),
            ..PodSetStatus::default()
        },
    }
}

/// The set `web` with the policy TerminationComplete.
pub fn patient_set(replicas: usize) -> Set {
    Set { waits_from: Some(1), ..set(replicas) }
}

/// A pod of [`set`], running on a node and not ready.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder(Pod {
        key: ObjectKey::new("default", name),
        uid: format!("uid-of-{name}").into(),
        version: 20,
        owner: Some("set-uid".into()),
        phase: Phase::Running,
        ready_since: None,
        node: Some(format!("node-of-{name}").into()),
        restarts: 0,
        waits_for: None,
        exit_code: None,
        created: ago(1000),
        started: Some(ago(1000)),
        finished: None,
        deletion_cost: 0,
        replacements: 0,
        revision: Some(Revision::of(None, 0)),
        is_labelled: true,
        is_terminating: false,
        deleted: None,
        grace: 0,
        disruption: None,
    })
}

fn ago(seconds: i64) -> CompactTime {
    (now() - SignedDuration::from_secs(seconds)).into()
}

/// A pod in the making.
#[derive(Clone, Debug)]
pub struct PodBuilder(pub Pod);

impl PodBuilder {
    /// It waits, for this reason.
    pub fn waits_for(self, reason: &str) -> Self {
        self.with(|pod| pod.waits_for = Some(reason.into()))
    }

    fn with(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn phase(self, phase: Phase) -> Self {
        self.with(|pod| pod.phase = phase)
    }

    pub fn unscheduled(self) -> Self {
        self.with(|pod| {
            pod.node = None;
            pod.phase = Phase::Pending;
        })
    }

    pub fn on(self, node: &str) -> Self {
        self.with(|pod| pod.node = Some(node.into()))
    }

    /// Ready for so many seconds.
    pub fn ready(self, seconds: i64) -> Self {
        self.with(|pod| pod.ready_since = Some(ago(seconds)))
    }

    pub fn age(self, seconds: i64) -> Self {
        self.with(|pod| pod.created = ago(seconds))
    }

    pub fn restarts(self, count: i32) -> Self {
        self.with(|pod| pod.restarts = count)
    }

    pub fn delete_cost(self, cost: i32) -> Self {
        self.with(|pod| pod.deletion_cost = cost)
    }

    pub fn replacements(self, count: u32) -> Self {
        self.with(|pod| pod.replacements = count)
    }

    /// Of this revision.
    pub fn of(self, revision: Revision) -> Self {
        self.with(|pod| pod.revision = Some(revision))
    }

    pub fn version(self, version: u64) -> Self {
        self.with(|pod| pod.version = version)
    }

    pub fn uid(self, uid: &str) -> Self {
        self.with(|pod| pod.uid = uid.into())
    }

    pub fn terminating(self) -> Self {
        self.with(|pod| pod.is_terminating = true)
    }

    /// Being deleted for so many seconds, with 30 s of grace.
    pub fn deleted(self, seconds: i64) -> Self {
        self.terminating().with(|pod| {
            pod.deleted = Some(ago(seconds));
            pod.grace = 30;
        })
    }

    /// Its condition DisruptionTarget has this reason.
    pub fn disrupted(self, reason: &str) -> Self {
        self.with(|pod| pod.disruption = Some(reason.into()))
    }

    pub fn unlabelled(self) -> Self {
        self.with(|pod| pod.is_labelled = false)
    }

    /// Failed so many seconds ago, after a second.
    pub fn failed(self, seconds: i64) -> Self {
        self.with(|pod| {
            pod.phase = Phase::Failed;
            pod.finished = Some(ago(seconds));
            pod.started = Some(ago(seconds + 1));
        })
    }

    /// Of a finished pod: it exited with this code.
    pub fn exit_code(self, code: i32) -> Self {
        self.with(|pod| pod.exit_code = Some(code))
    }

    /// Of a finished pod: it ran for so many seconds.
    pub fn ran(self, seconds: i64) -> Self {
        self.with(|pod| {
            let before = |end| (Timestamp::from(end) - SignedDuration::from_secs(seconds)).into();
            pod.started = pod.finished.map(before);
        })
    }

    pub fn seen(self) -> Seen {
        Seen::new(Arc::new(self.0), now())
    }
}
