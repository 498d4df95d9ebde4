//! The events of a PodSet. Pure: `report.rs` decides when they are due, and `recorder.rs` sends them.

use jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};

use super::{
    conditions,
    count::Count,
    rejection::{Rejection, RejectionKind},
    set_state::{Burst, Stage},
    status,
};
use crate::api::{MANAGER, PodSet};
use operator_kit::{ObjectKey, meta::Uid, text::cut};

/// A Kubernetes Event to record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The reason, for machines.
    pub reason: &'static str,
    /// The message, for people.
    pub note: String,
    is_warning: bool,
    action: &'static str,
}

/// The event about a burst of creates and deletes that ends with `to` live pods: one for all pods.
pub fn work_done(burst: &Burst, to: usize) -> Option<Event> {
    let Burst { from, created, is_deleting, is_scaling, .. } = *burst;
    let normal = |reason, action, note| Some(Event { reason, note, is_warning: false, action });
    let made = created.max(to.saturating_sub(from));
    if !is_scaling && made > 0 {
        let (s, ones) = if made == 1 { ("", "a lost one") } else { ("s", "lost ones") };
        normal("PodsReplaced", "Create", format!("Created {made} pod{s} to replace {ones}"))
    } else if to > from {
        normal("ScaledUp", "Create", format!("Scaled up from {from} to {to}"))
    } else if is_deleting && to < from {
        normal("ScaledDown", "Delete", format!("Scaled down from {from} to {to}"))
    } else {
        None
    }
}

/// The API server rejects creates: one event, until a rejection tells something new. A namespace that is being deleted gets none. `announced`
/// is the rejection in the last event of this process, `stored` the message in the status.
pub fn creates_rejected(rejected: &Rejection, announced: Option<&Rejection>, stored: Option<&str>) -> Option<Event> {
    let what = match rejected.kind {
        RejectionKind::Forbidden | RejectionKind::InvalidTemplate => "Cannot create pods",
        RejectionKind::Unclear => "Creating pods failed or got no answer",
        RejectionKind::NamespaceTerminating => return None,
    };
    let is_news = match announced {
        Some(former) => rejected.differs(former),
        None => stored.is_none_or(|stored| !rejected.says(stored)),
    };
    is_news.then(|| warning(status::FAILED_CREATE, "Create", &format!("{what}: {}", rejected.message)))
}

/// Pods cannot be deleted, for this reason.
pub fn deletes_rejected(message: &str) -> Event {
    warning(status::FAILED_DELETE, "Delete", &format!("Pods cannot be deleted: {message}"))
}

/// Pods fail, and are replaced with backoff.
pub fn pods_failing(message: &str) -> Event {
    warning(status::PODS_FAILING, "BackOff", message)
}

/// A rollout of this revision has reached a stage.
pub fn rollout(stage: Stage, revision: &str, count: Count) -> Option<Event> {
    let Count { updated, wanted, .. } = count;
    let progress = format!("{updated} of {wanted} pods have revision {revision}");
    let normal = |reason, note| Some(Event { reason, note, is_warning: false, action: "Rollout" });
    match stage {
        Stage::Idle => None,
        Stage::Started => normal("RolloutStarted", format!("Started updating pods to revision {revision}")),
        Stage::Paused => normal(conditions::PAUSED, format!("The rollout is paused: {progress}")),
        Stage::Stalled => {
            Some(warning("RolloutStalled", "Rollout", &format!("The rollout makes no progress: {progress}")))
        }
        Stage::Complete => normal("RolloutComplete", format!("All {wanted} pods have revision {revision}")),
    }
}

/// A pod that counts has outlived its grace period.
pub fn termination_overdue(message: &str) -> Event {
    let advice =
        "if its node is lost for good, delete the Node object or taint it with node.kubernetes.io/out-of-service";
    warning(status::WAITING_FOR_TERMINATION, "Wait", &format!("{message}; {advice}"))
}

fn warning(reason: &'static str, action: &'static str, note: &str) -> Event {
    Event { reason, note: cut(note, 1024), is_warning: true, action }
}

/// The manifest of an event about the set with this name and UID. `unique` makes its name unique, and `instance` names the process.
pub fn manifest(event: &Event, (key, uid): (&ObjectKey, &Uid), wall: Timestamp, unique: i128, instance: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{unique:x}", cut(&key.name, 230)),
            "namespace": key.namespace,
        },
        "eventTime": format!("{wall:.6}"),
        "reportingController": MANAGER,
        "reportingInstance": cut(instance, 128),
        "action": event.action,
        "reason": event.reason,
        "note": event.note,
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "regarding": {
            "apiVersion": PodSet::api_version(&()),
            "kind": PodSet::kind(&()),
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    fn event_text(from: usize, created: usize, is_scaling: bool, to: usize) -> Option<String> {
        let burst = Burst { wanted: to, from, created, is_deleting: to < from, is_scaling };
        work_done(&burst, to).map(|event| format!("{}: {}", event.reason, event.note))
    }

    #[test]
    fn each_event_says_what_happened() {
        assert_eq!(event_text(3, 2, true, 5).unwrap(), "ScaledUp: Scaled up from 3 to 5");
        assert_eq!(event_text(5, 0, true, 1).unwrap(), "ScaledDown: Scaled down from 5 to 1");
        let replaced = "PodsReplaced: Created 3 pods to replace lost ones";
        assert_eq!(event_text(2, 3, false, 3).unwrap(), replaced);
        assert_eq!(event_text(0, 0, false, 3).unwrap(), replaced, "the responses were lost");
        assert_eq!(event_text(3, 0, true, 3), None);
        let rejected = Burst { wanted: 9, from: 9, created: 0, is_deleting: false, is_scaling: false };
        assert_eq!(work_done(&rejected, 8), None, "another client deleted the pod");
    }

    #[test]
    fn a_rejected_create_is_reported_once() {
        let rejected_create = Rejection { message: "no".to_owned(), kind: RejectionKind::Forbidden, generation: 1 };
        let of = |rejected_create: &Rejection, last| creates_rejected(rejected_create, last, None);
        assert_eq!(of(&rejected_create, None).unwrap().note, "Cannot create pods: no");
        assert_eq!(of(&rejected_create, Some(&rejected_create)), None);
        let quota = |used: &str| Rejection { message: format!("used: pods={used}"), ..rejected_create.clone() };
        let former = quota("9");
        assert_eq!(of(&quota("12"), Some(&former)), None);
        let invalid =
            |n| Rejection { message: format!("containers[{n}]"), kind: RejectionKind::InvalidTemplate, generation: 1 };
        let former = invalid(0);
        assert!(of(&invalid(1), Some(&former)).is_some());
        assert_eq!(creates_rejected(&rejected_create, None, Some("no")), None, "a former leader reported it");
        let another = Rejection { message: "another reason".to_owned(), ..rejected_create.clone() };
        assert!(of(&rejected_create, Some(&another)).is_some());
        let unclear = Rejection { kind: RejectionKind::Unclear, ..rejected_create.clone() };
        assert_eq!(of(&unclear, Some(&rejected_create)).unwrap().note, "Creating pods failed or got no answer: no");
        assert_eq!(
            of(&Rejection { kind: RejectionKind::Unclear, ..another.clone() }, Some(&unclear)),
            None,
            "only the message differs"
        );
        let terminating = Rejection { kind: RejectionKind::NamespaceTerminating, ..rejected_create.clone() };
        assert_eq!(of(&terminating, None), None);
    }

    #[test]
    fn a_rejected_delete_is_a_warning() {
        let set = testing::set(1);
        let manifest = manifest(&deletes_rejected("no"), (&set.key, &set.uid), testing::now(), 1, "operator-1");
        assert_eq!((&manifest["type"], &manifest["reason"]), (&json!("Warning"), &json!("FailedDelete")));
        assert_eq!((&manifest["action"], &manifest["note"]), (&json!("Delete"), &json!("Pods cannot be deleted: no")));
    }

    #[test]
    fn pods_that_fail_are_a_warning() {
        let set = testing::set(1);
        let manifest = manifest(&pods_failing("1 pod failed"), (&set.key, &set.uid), testing::now(), 1, "operator-1");
        assert_eq!((&manifest["type"], &manifest["reason"]), (&json!("Warning"), &json!("PodsFailing")));
        assert_eq!((&manifest["action"], &manifest["note"]), (&json!("BackOff"), &json!("1 pod failed")));
    }

    #[test]
    fn completed_work_is_a_normal_event_about_the_set() {
        let burst = Burst { wanted: 2, from: 0, created: 2, is_deleting: false, is_scaling: true };
        let set = testing::set(2);
        let event = work_done(&burst, 2).unwrap();
        let manifest = manifest(&event, (&set.key, &set.uid), testing::now(), 255, "operator-1");
        let expected = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": "web.ff", "namespace": "default" },
            "eventTime": "2026-01-01T12:00:00.000000Z",
            "reportingController": "podset-operator",
            "reportingInstance": "operator-1",
            "action": "Create",
            "reason": "ScaledUp",
            "note": "Scaled up from 0 to 2",
            "type": "Normal",
            "regarding": {
                "apiVersion": "app.example.com/v1alpha1",
                "kind": "PodSet",
                "namespace": "default",
                "name": "web",
                "uid": set.uid,
            },
        });
        assert_eq!(manifest, expected);
    }

    #[test]
    fn long_names_and_notes_are_cut() {
        let mut set = testing::set(1);
        set.key.name = "n".repeat(253).into();
        let rejected_create = Rejection { message: "x".repeat(5000), kind: RejectionKind::Forbidden, generation: 1 };
        let event = creates_rejected(&rejected_create, None, None).unwrap();
        let event = manifest(&event, (&set.key, &set.uid), testing::now(), 1, &"i".repeat(300));
        assert!(event["metadata"]["name"].as_str().unwrap().len() <= 253);
        assert_eq!(event["note"].as_str().unwrap().len(), 1024);
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["reportingInstance"].as_str().unwrap().len(), 128);
        assert_eq!(event["eventTime"], "2026-01-01T12:00:00.000000Z");
    }
}
