//! One pod as this controller sees it: what the API server says of it, and what we know besides. No I/O.

use std::{str::FromStr, sync::Arc};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use prost::Message;
use serde::Deserialize;

use crate::{
    api,
    controllers::{
        ObjectKey,
        meta::{self, Meta, Time, Uid},
    },
    listwatch::{Decode, Watched},
};

/// What it costs to delete a pod, as its users see it.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A write that the watch has not confirmed for so long is looked up.
const CONFIRM_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// A pod as the API server sends it; what is not named here is not decoded.
#[derive(Deserialize, Message)]
struct PodWire {
    #[prost(message, required, tag = "1")]
    metadata: Meta,
    #[serde(default)]
    #[prost(message, required, tag = "2")]
    spec: SpecWire,
    #[serde(default)]
    #[prost(message, required, tag = "3")]
    status: StatusWire,
}

#[derive(Deserialize, Message)]
#[serde(rename_all = "camelCase", default)]
struct SpecWire {
    #[serde(deserialize_with = "meta::text")]
    #[prost(bytes = "bytes", tag = "10")]
    node_name: Bytes,
}

#[derive(Deserialize, Message)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire {
    #[serde(deserialize_with = "meta::text")]
    #[prost(bytes = "bytes", tag = "1")]
    phase: Bytes,
    #[prost(message, optional, tag = "7")]
    start_time: Option<Time>,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<ConditionWire>,
    #[prost(message, repeated, tag = "10")]
    init_container_statuses: Vec<ContainerWire>,
    #[prost(message, repeated, tag = "8")]
    container_statuses: Vec<ContainerWire>,
}

#[derive(Deserialize, Message)]
#[serde(rename_all = "camelCase", default)]
struct ConditionWire {
    #[serde(rename = "type", deserialize_with = "meta::text")]
    #[prost(bytes = "bytes", tag = "1")]
    kind: Bytes,
    #[serde(deserialize_with = "meta::text")]
    #[prost(bytes = "bytes", tag = "2")]
    status: Bytes,
    #[prost(message, optional, tag = "4")]
    last_transition_time: Option<Time>,
}

#[derive(Deserialize, Message)]
#[serde(rename_all = "camelCase", default)]
struct ContainerWire {
    #[prost(int32, tag = "5")]
    restart_count: i32,
    #[prost(message, required, tag = "2")]
    state: ContainerStateWire,
}

#[derive(Deserialize, Message)]
#[serde(default)]
struct ContainerStateWire {
    #[prost(message, optional, tag = "1")]
    waiting: Option<WaitingWire>,
    #[prost(message, optional, tag = "3")]
    terminated: Option<TerminatedWire>,
}

#[derive(Deserialize, Message)]
#[serde(default)]
struct WaitingWire {
    #[serde(deserialize_with = "meta::text")]
    #[prost(bytes = "bytes", tag = "1")]
    reason: Bytes,
}

#[derive(Deserialize, Message)]
#[serde(rename_all = "camelCase", default)]
struct TerminatedWire {
    #[prost(message, optional, tag = "6")]
    finished_at: Option<Time>,
}

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

impl From<&[u8]> for Phase {
    fn from(text: &[u8]) -> Self {
        match text {
            b"" | b"Pending" => Phase::Pending,
            b"Running" => Phase::Running,
            b"Succeeded" => Phase::Succeeded,
            b"Failed" => Phase::Failed,
            _ => Phase::Unknown,
        }
    }
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
    pub ready_since: Option<Timestamp>,
    /// The node that it is scheduled to.
    pub node: Option<Arc<str>>,
    /// Restarts of all its containers.
    pub restarts: i32,
    /// Why a container of it does not start, in the kubelet's word: `CrashLoopBackOff`, `ImagePullBackOff`. That it is about to
    /// start is no reason.
    pub waits_for: Option<Arc<str>>,
    /// When it was created.
    pub created: Timestamp,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When it finished, if it did and says so.
    pub finished: Option<Timestamp>,
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
    const PROTOBUF: Option<Decode<Self>> = Some(|bytes| PodWire::decode(bytes).map(Pod::from));

    fn version(&self) -> u64 {
        self.version
    }
}

impl From<PodWire> for Pod {
    fn from(wire: PodWire) -> Self {
        let PodWire { metadata, spec, status } = wire;
        let phase = Phase::from(&status.phase[..]);
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let turned = ready.and_then(|condition| condition.last_transition_time?.timestamp());
        let ready_since = ready.filter(|condition| condition.status == "True").map(|_| turned.unwrap_or_default());
        let ends = status.container_statuses.iter().filter_map(|status| status.state.terminated.as_ref()?.finished_at);
        let finished = ends.filter_map(Time::timestamp).max().or(turned);
        Pod {
            key: metadata.key(),
            version: metadata.version(),
            owner: owner(&metadata),
            phase,
            ready_since,
            node: meta::said(&spec.node_name),
            restarts: status.container_statuses.iter().fold(0, |sum: i32, of| sum.saturating_add(of.restart_count)),
            waits_for: status.init_container_statuses.iter().chain(&status.container_statuses).find_map(trouble),
            created: metadata.creation_timestamp.and_then(Time::timestamp).unwrap_or_default(),
            started: status.start_time.and_then(Time::timestamp),
            finished: finished.filter(|_| matches!(phase, Phase::Failed | Phase::Succeeded)),
            deletion_cost: number(&metadata, DELETION_COST),
            replacements: number(&metadata, api::ANNOTATION_REPLACEMENTS),
            is_labelled: meta::value(&metadata.labels, api::LABEL_MANAGED_BY) == Some(api::MANAGER),
            is_terminating: metadata.deletion_timestamp.is_some(),
            uid: metadata.uid.into(),
        }
    }
}

/// Why a container does not start, if that is not because it is about to.
fn trouble(container: &ContainerWire) -> Option<Arc<str>> {
    let reason = &container.state.waiting.as_ref()?.reason;
    meta::said(reason).filter(|_| reason != "ContainerCreating" && reason != "PodInitializing")
}

/// The number that an annotation says; 0 where it says none.
fn number<T: FromStr + Default>(metadata: &Meta, annotation: &str) -> T {
    meta::value(&metadata.annotations, annotation).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Only a controller owner reference to a PodSet makes a pod a set's own, whatever its labels.
fn owner(metadata: &Meta) -> Option<Uid> {
    let controller = metadata.owner_references.iter().find(|owner| owner.controller)?;
    let is_podset = controller.kind == "PodSet" && controller.api_version.starts_with(b"app.example.com/");
    meta::said(&controller.uid).filter(|_| is_podset)
}

impl Pod {
    /// Whether it reached its end: Failed or Succeeded.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Failed | Phase::Succeeded)
    }

    /// Whether nothing differs that a status could tell or a plan would act on. What only ranks victims, or dates what comes
    /// later, is looked at when it is needed.
    pub fn is_same(&self, other: &Pod) -> bool {
        let Pod { version, node, started, restarts, deletion_cost, .. } = other.clone();
        Pod { version, node, started, restarts, deletion_cost, ..self.clone() } == *other
    }
}

/// A pod, and what we know besides what the API server last said of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the API server last said.
    pub pod: Arc<Pod>,
    /// We wrote it at this time, and the watch has not shown it since.
    pub unconfirmed_since: Option<Timestamp>,
    /// Our delete was answered at this time. No event takes it back, for a deletion cannot be undone; only a later read does, which
    /// shows that there was none.
    pub delete_answered: Option<Timestamp>,
    /// The watch lost sight of it without showing its deletion: it may be gone, or only its label.
    pub is_missing: bool,
    /// When it finished, in steady time.
    pub finished_since: Option<Timestamp>,
}

impl Seen {
    /// A pod of which nothing is known but what the API server says.
    pub fn new(pod: Arc<Pod>, now: Timestamp) -> Self {
        let finished_since = pod.is_finished().then(|| pod.finished.unwrap_or(now).min(now));
        Seen { pod, unconfirmed_since: None, delete_answered: None, is_missing: false, finished_since }
    }

    /// Takes in a newer state of the same pod. That an answer knows it does not bring it back to sight.
    pub fn update(&mut self, pod: Arc<Pod>, now: Timestamp) {
        // A finish that happens before our eyes is timed by our own clock: the node's may be minutes off.
        if pod.is_finished() && self.finished_since.is_none() {
            self.finished_since = Some(now);
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
        Some(self.unconfirmed_since.or(deleted)? + CONFIRM_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::meta::Owner;
    use serde_json::{Value, json};

    fn waits_for(status: Value) -> Option<Arc<str>> {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": status })).unwrap();
        pod.waits_for
    }

    #[test]
    fn a_container_that_is_about_to_start_waits_for_nothing() {
        let waiting = |reason| json!([{ "restartCount": 1, "state": { "waiting": { "reason": reason } } }]);
        for reason in ["ContainerCreating", "PodInitializing"] {
            assert_eq!(waits_for(json!({ "containerStatuses": waiting(reason) })), None);
        }
        let crashing = waiting("CrashLoopBackOff");
        assert_eq!(waits_for(json!({ "containerStatuses": crashing })).as_deref(), Some("CrashLoopBackOff"));
        let creating = waiting("PodInitializing");
        let status = json!({ "initContainerStatuses": crashing, "containerStatuses": creating });
        assert_eq!(waits_for(status).as_deref(), Some("CrashLoopBackOff"));
        assert_eq!(waits_for(json!({ "containerStatuses": [{ "state": { "running": {} } }] })), None);
    }

    #[test]
    fn what_is_no_text_stops_no_watch() {
        let odd = || Bytes::from_static(b"odd\xff");
        let owner = Owner { api_version: odd(), kind: odd(), uid: odd(), controller: true };
        let metadata = Meta { name: "a".to_owned(), owner_references: vec![owner], ..Meta::default() };
        let condition = ConditionWire { kind: odd(), status: odd(), last_transition_time: None };
        let waiting = ContainerStateWire { waiting: Some(WaitingWire { reason: odd() }), terminated: None };
        let container = ContainerWire { restart_count: 1, state: waiting };
        let status = StatusWire {
            phase: odd(),
            conditions: vec![condition],
            container_statuses: vec![container],
            ..StatusWire::default()
        };
        let wire = PodWire { metadata, spec: SpecWire { node_name: odd() }, status };
        let pod = PodWire::decode(Bytes::from(wire.encode_to_vec())).map(Pod::from).unwrap();
        assert_eq!((pod.phase, pod.owner, pod.ready_since), (Phase::Unknown, None, None));
        assert_eq!((pod.node.as_deref(), pod.waits_for.as_deref()), (Some("odd\u{fffd}"), Some("odd\u{fffd}")));
        let nothing = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": null }, "status": { "phase": null } });
        assert_eq!(serde_json::from_value::<Pod>(nothing).unwrap().node, None);
    }

    #[test]
    fn a_pod_is_what_the_api_server_says_of_it() {
        let container = |restarts, finished| json!({ "restartCount": restarts, "state": { "terminated": { "finishedAt": finished } } });
        let owner = |kind, uid, controller| {
            let group = "app.example.com/v1alpha1";
            json!({ "apiVersion": group, "kind": kind, "name": "web", "uid": uid, "controller": controller })
        };
        let wire = json!({
            "metadata": {
                "name": "web-pod12345",
                "namespace": "shop",
                "uid": "pod-1",
                "resourceVersion": "17",
                "creationTimestamp": "2026-01-01T12:00:01Z",
                "deletionTimestamp": "2026-01-01T12:00:09Z",
                "labels": { "app.kubernetes.io/managed-by": "podset-operator" },
                "annotations": {
                    "controller.kubernetes.io/pod-deletion-cost": "-7",
                    "app.example.com/replacements": "3",
                },
                "ownerReferences": [owner("PodSet", "another", false), owner("PodSet", "set-1", true)],
            },
            "spec": { "nodeName": "node-1" },
            "status": {
                "phase": "Failed",
                "startTime": "2026-01-01T12:00:02Z",
                "conditions": [
                    { "type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T12:00:03Z" },
                    { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:04Z" },
                ],
                "containerStatuses": [container(1, "2026-01-01T12:00:06Z"), container(4, "2026-01-01T12:00:05Z")],
            },
        });
        let at = |second: i8| {
            "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second.into())
        };
        let pod = Pod {
            key: ObjectKey::new("shop", "web-pod12345"),
            uid: "pod-1".into(),
            version: 17,
            owner: Some("set-1".into()),
            phase: Phase::Failed,
            ready_since: Some(at(4)),
            node: Some("node-1".into()),
            restarts: 5,
            waits_for: None,
            created: at(1),
            started: Some(at(2)),
            finished: Some(at(6)),
            deletion_cost: -7,
            replacements: 3,
            is_labelled: true,
            is_terminating: true,
        };
        assert_eq!(serde_json::from_value::<Pod>(wire.clone()).unwrap(), pod);

        let mut told_less = wire;
        told_less["status"]["containerStatuses"] = json!([]);
        let told_less: Pod = serde_json::from_value(told_less).unwrap();
        assert_eq!((told_less.finished, told_less.restarts), (Some(at(4)), 0), "when it ceased to be ready");
    }
}
