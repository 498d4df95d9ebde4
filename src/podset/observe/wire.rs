//! A pod as the API server sends it, and what we make of it. No I/O.

use std::{str::FromStr, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ContainerStateWaiting;
use serde::Deserialize;

use super::pod::{Phase, Pod};
use operator_kit::{
    listwatch::Watched,
    meta::{self, Meta, Uid},
    text::{LONGEST, cut},
};

use crate::{api, podset::compact_time::CompactTime};

/// What it costs to delete a pod, as its users see it.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The longest UID of an owner that is accepted, in bytes. Kubernetes' own have 36, but a client can write any text.
const LONGEST_UID: usize = 64;

/// A pod. Only these fields are decoded.
#[derive(Default, Deserialize)]
pub(super) struct PodWire {
    metadata: Meta,
    #[serde(default)]
    spec: SpecWire,
    #[serde(default)]
    status: StatusWire,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecWire {
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire {
    phase: Phase,
    #[serde(deserialize_with = "meta::time")]
    start_time: Option<Timestamp>,
    conditions: Vec<ConditionWire>,
    init_container_statuses: Vec<ContainerWire>,
    container_statuses: Vec<ContainerWire>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConditionWire {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
    #[serde(deserialize_with = "meta::time")]
    last_transition_time: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerWire {
    restart_count: i32,
    state: ContainerStateWire,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerStateWire {
    waiting: Option<ContainerStateWaiting>,
    terminated: Option<TerminatedWire>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TerminatedWire {
    exit_code: i32,
    #[serde(deserialize_with = "meta::time")]
    finished_at: Option<Timestamp>,
}

impl Watched for Pod {
    fn version(&self) -> u64 {
        self.version
    }
}

impl From<PodWire> for Pod {
    fn from(wire: PodWire) -> Self {
        let PodWire { metadata, spec, status } = wire;
        let phase = status.phase;
        let is_finished = matches!(phase, Phase::Failed | Phase::Succeeded);
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let turned = ready.and_then(|condition| condition.last_transition_time).map(CompactTime::from);
        let ready_since = ready
            .filter(|condition| condition.status == "True")
            .map(|_| turned.unwrap_or_else(|| Timestamp::default().into()));
        let ends = status.container_statuses.iter().filter_map(|status| status.state.terminated.as_ref()?.finished_at);
        let finished = ends.map(CompactTime::from).max().or(turned);
        // The deletionTimestamp is a grace period after the request.
        let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds);
        Pod {
            key: metadata.key(),
            version: metadata.version(),
            owner: owner(&metadata),
            phase,
            ready_since,
            node: meta::non_empty(&spec.node_name),
            restarts: status.container_statuses.iter().fold(0, |sum: i32, of| sum.saturating_add(of.restart_count)),
            // The scheduler's message about a pod that fits on no node, or why a container does not start.
            waits_for: told(&status.conditions, "PodScheduled", "False", |condition| &condition.message)
                .or_else(|| containers().find_map(trouble)),
            exit_code: exit_code(containers()).filter(|_| is_finished),
            created: metadata.creation_timestamp.unwrap_or_default().into(),
            started: status.start_time.map(CompactTime::from),
            finished: finished.filter(|_| is_finished),
            deletion_cost: number(&metadata, DELETION_COST),
            replacements: number(&metadata, api::ANNOTATION_REPLACEMENTS),
            revision: meta::value(&metadata.labels, api::LABEL_REVISION).and_then(|text| text.parse().ok()),
            is_labelled: meta::value(&metadata.labels, api::LABEL_MANAGED_BY) == Some(api::MANAGER),
            is_terminating: metadata.deletion_timestamp.is_some(),
            deleted: metadata.deletion_timestamp.and_then(|end| end.0?.checked_sub(grace).ok()).map(CompactTime::from),
            grace: u32::try_from(metadata.deletion_grace_period_seconds).unwrap_or_default(),
            disruption: told(&status.conditions, "DisruptionTarget", "True", |condition| &condition.reason),
            uid: metadata.uid.into(),
        }
    }
}

/// A text of the condition of this type, if it has this status.
fn told(conditions: &[ConditionWire], kind: &str, status: &str, text: fn(&ConditionWire) -> &str) -> Option<Arc<str>> {
    let told = conditions.iter().find(|condition| condition.kind == kind).filter(|told| told.status == status)?;
    meta::non_empty(&cut(text(told), LONGEST))
}

/// The exit code of the container that failed last, or 0.
fn exit_code<'a>(containers: impl Iterator<Item = &'a ContainerWire>) -> Option<i32> {
    let ends = containers.filter_map(|container| container.state.terminated.as_ref());
    ends.max_by_key(|end| (end.exit_code != 0, end.finished_at)).map(|end| end.exit_code)
}

/// Why a container does not start; `None` if it is about to.
fn trouble(container: &ContainerWire) -> Option<Arc<str>> {
    let reason = container.state.waiting.as_ref()?.reason.as_ref()?;
    meta::non_empty(&cut(reason, LONGEST)).filter(|_| reason != "ContainerCreating" && reason != "PodInitializing")
}

/// The number in an annotation; 0 if there is none.
fn number<T: FromStr + Default>(metadata: &Meta, annotation: &str) -> T {
    meta::value(&metadata.annotations, annotation).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Only a controller owner reference to a PodSet makes a pod a set's own, whatever its labels.
fn owner(metadata: &Meta) -> Option<Uid> {
    let controller = metadata.owner_references.iter().find(|owner| owner.controller)?;
    let is_podset = controller.kind == "PodSet" && controller.api_version.starts_with("app.example.com/");
    meta::non_empty(&controller.uid).filter(|uid| is_podset && uid.len() <= LONGEST_UID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator_kit::ObjectKey;
    use serde_json::{Value, json};

    fn waits_for(status: Value) -> Option<Arc<str>> {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": status })).unwrap();
        pod.waits_for
    }

    #[test]
    fn a_starting_container_waits_for_nothing() {
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
        let long = waits_for(json!({ "containerStatuses": waiting(&"x".repeat(9_999)) }));
        assert!(long.is_some_and(|text| text.len() <= LONGEST));
    }

    #[test]
    fn an_unschedulable_pod_has_the_message_of_the_scheduler() {
        let scheduled =
            |status| json!({ "conditions": [{ "type": "PodScheduled", "status": status, "message": "0/3 nodes" }] });
        assert_eq!(waits_for(scheduled("False")).as_deref(), Some("0/3 nodes"));
        assert_eq!(waits_for(scheduled("True")), None);
        assert_eq!(waits_for(json!({ "conditions": [{ "type": "PodScheduled", "status": "False" }] })), None);
    }

    #[test]
    fn the_exit_code_is_that_of_the_container_that_failed_last() {
        let end = |code, at: &str| json!({ "state": { "terminated": { "exitCode": code, "finishedAt": at } } });
        let exited = |phase, init: Value, containers: Value| {
            let status = json!({ "phase": phase, "initContainerStatuses": init, "containerStatuses": containers });
            serde_json::from_value::<Pod>(json!({ "metadata": {}, "status": status })).unwrap().exit_code
        };
        let [early, late] = ["2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"];
        assert_eq!(exited("Failed", json!([]), json!([end(1, early), end(2, late), end(0, late)])), Some(2));
        assert_eq!(exited("Failed", json!([end(3, early)]), json!([{ "state": { "waiting": {} } }])), Some(3));
        assert_eq!(exited("Succeeded", json!([end(0, early)]), json!([end(0, late)])), Some(0));
        assert_eq!(exited("Failed", json!([]), json!([])), None, "it was evicted");
        assert_eq!(exited("Running", json!([end(0, early)]), json!([])), None);
    }

    #[test]
    fn all_fields_of_a_pod_are_read() {
        let container = |restarts, finished| {
            let terminated = json!({ "exitCode": 1, "finishedAt": finished });
            json!({ "restartCount": restarts, "state": { "terminated": terminated } })
        };
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
                "deletionGracePeriodSeconds": 2,
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
                    { "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager" },
                ],
                "containerStatuses": [container(1, "2026-01-01T12:00:06Z"), container(4, "2026-01-01T12:00:05Z")],
            },
        });
        let at = |second: i8| {
            CompactTime::from(
                "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second.into()),
            )
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
            exit_code: Some(1),
            created: at(1),
            started: Some(at(2)),
            finished: Some(at(6)),
            deletion_cost: -7,
            replacements: 3,
            revision: None,
            is_labelled: true,
            is_terminating: true,
            deleted: Some(at(7)),
            grace: 2,
            disruption: Some("DeletionByTaintManager".into()),
        };
        assert_eq!(serde_json::from_value::<Pod>(wire.clone()).unwrap(), pod);

        let mut without_end = wire;
        without_end["status"]["containerStatuses"] = json!([]);
        let without_end: Pod = serde_json::from_value(without_end).unwrap();
        assert_eq!((without_end.finished, without_end.restarts), (Some(at(4)), 0), "the end is when it became unready");
    }

    /// A pod with all fields that are read, as Kubernetes 1.36 sends it.
    #[test]
    fn a_recorded_pod_is_read() {
        let watch = include_str!("../../../tests/data/pods.watch.json");
        let event: Value = serde_json::from_str(watch.lines().next().unwrap()).unwrap();
        let pod: Pod = serde_json::from_value(event["object"].clone()).unwrap();
        assert_eq!((&*pod.key.name, pod.restarts, pod.replacements), ("web-pod12345", 5, 3));
    }

    #[test]
    fn an_owner_uid_that_is_too_long_is_ignored() {
        let owned = |uid: String| {
            let (owner, group) = (json!({ "kind": "PodSet", "uid": uid, "controller": true }), "app.example.com/v1");
            let mut metadata = json!({ "name": "a", "ownerReferences": [owner] });
            metadata["ownerReferences"][0]["apiVersion"] = group.into();
            serde_json::from_value::<Pod>(json!({ "metadata": metadata })).unwrap().owner
        };
        assert!(owned("u".repeat(LONGEST_UID)).is_some());
        assert!(owned("u".repeat(LONGEST_UID + 1)).is_none());
    }
}
