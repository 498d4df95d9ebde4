//! The events that users see under a PodSet. Pure: it says what to tell; `report.rs` says when, `recorder.rs` tells it.

use jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};

use super::{
    rejection::{Rejection, RejectionKind},
    set_state::Burst,
    status,
};
use crate::api::{MANAGER, PodSet};
use operator_kit::{ObjectKey, meta::Uid};
use leadership::text::cut;

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// A word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub note: String,
    is_warning: bool,
    action: &'static str,
}

/// What a burst of work amounts to, now that so many pods are live: one event for each plan that was carried out, not one
/// for each pod.
pub fn of_burst(burst: &Burst, to: usize) -> Option<Event> {
    let Burst { from, created, is_deleting, is_scaling, .. } = *burst;
    let normal = |reason, action, note| Some(Event { reason, note, is_warning: false, action });
    let made = created.max(to.saturating_sub(from));
    if !is_scaling && made > 0 {
        let pods = if made == 1 {
            "1 pod to replace a lost one".to_owned()
        } else {
            format!("{made} pods to replace lost ones")
        };
        normal("PodsReplaced", "Create", format!("Created {pods}"))
    } else if to > from {
        normal("ScaledUp", "Create", format!("Scaled up from {from} to {to}"))
    } else if is_deleting && to < from {
        normal("ScaledDown", "Delete", format!("Scaled down from {from} to {to}"))
    } else {
        None
    }
}

/// Pods are refused: told once for each new reason; where the API server fails, once, for its words are others each time. Of a
/// namespace that is being deleted nothing is told. `told` is what this process told last, `stored` what the status says.
pub fn of_rejected_create(
    rejected_create: &Rejection,
    told: Option<&Rejection>,
    stored: Option<&str>,
) -> Option<Event> {
    let (what, is_told_by_kind) = match rejected_create.kind {
        RejectionKind::Forbidden | RejectionKind::InvalidTemplate => ("Pods are refused", false),
        RejectionKind::Unclear => ("Pods may not have been created", true),
        RejectionKind::NamespaceTerminating => return None,
    };
    let is_news = match told {
        Some(told) => {
            told.kind != rejected_create.kind || (!is_told_by_kind && told.message != rejected_create.message)
        }
        None => stored.is_none_or(|stored| !is_told_by_kind && stored != rejected_create.message),
    };
    is_news.then(|| failure(status::FAILED_CREATE, "Create", what, &rejected_create.message))
}

/// The API server rejects the delete of pods, with this message.
pub fn of_rejection(message: &str) -> Event {
    failure(status::FAILED_DELETE, "Delete", "Pods cannot be deleted", message)
}

fn failure(reason: &'static str, action: &'static str, what: &str, message: &str) -> Event {
    Event { reason, note: cut(&format!("{what}: {message}"), 1024), is_warning: true, action }
}

/// The manifest of an event of the set of this name and UID. `unique` tells events of one set apart; `instance` is the process that reports.
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

    fn told(from: usize, created: usize, is_scaling: bool, to: usize) -> Option<String> {
        let burst = Burst { wanted: to, from, created, is_deleting: to < from, is_scaling };
        of_burst(&burst, to).map(|event| format!("{}: {}", event.reason, event.note))
    }

    #[test]
    fn each_event_says_what_happened() {
        assert_eq!(told(3, 2, true, 5).unwrap(), "ScaledUp: Scaled up from 3 to 5");
        assert_eq!(told(5, 0, true, 1).unwrap(), "ScaledDown: Scaled down from 5 to 1");
        let replaced = "PodsReplaced: Created 3 pods to replace lost ones";
        assert_eq!(told(2, 3, false, 3).unwrap(), replaced);
        assert_eq!(told(0, 0, false, 3).unwrap(), replaced, "the answers were lost");
        assert_eq!(told(3, 0, true, 3), None);
        let refused = Burst { wanted: 9, from: 9, created: 0, is_deleting: false, is_scaling: false };
        assert_eq!(of_burst(&refused, 8), None, "nothing was deleted: another one went");
    }

    #[test]
    fn a_refusal_is_told_once() {
        let rejected_create = Rejection { message: "no".to_owned(), kind: RejectionKind::Forbidden, generation: 1 };
        let of = |rejected_create: &Rejection, told| of_rejected_create(rejected_create, told, None);
        assert_eq!(of(&rejected_create, None).unwrap().note, "Pods are refused: no");
        assert_eq!(of(&rejected_create, Some(&rejected_create)), None);
        assert_eq!(of_rejected_create(&rejected_create, None, Some("no")), None, "by a former leader");
        let another = Rejection { message: "another reason".to_owned(), ..rejected_create.clone() };
        assert!(of(&rejected_create, Some(&another)).is_some());
        let unclear = Rejection { kind: RejectionKind::Unclear, ..rejected_create.clone() };
        assert_eq!(of(&unclear, Some(&rejected_create)).unwrap().note, "Pods may not have been created: no");
        assert_eq!(
            of(&Rejection { kind: RejectionKind::Unclear, ..another.clone() }, Some(&unclear)),
            None,
            "in other words"
        );
        let terminating = Rejection { kind: RejectionKind::NamespaceTerminating, ..rejected_create.clone() };
        assert_eq!(of(&terminating, None), None);
    }

    #[test]
    fn a_rejected_delete_is_a_warning() {
        let set = testing::set(1);
        let manifest = manifest(&of_rejection("no"), (&set.key, &set.uid), testing::now(), 1, "operator-1");
        assert_eq!((&manifest["type"], &manifest["reason"]), (&json!("Warning"), &json!("FailedDelete")));
        assert_eq!((&manifest["action"], &manifest["note"]), (&json!("Delete"), &json!("Pods cannot be deleted: no")));
    }

    #[test]
    fn what_went_well_is_told_under_the_set_as_normal() {
        let burst = Burst { wanted: 2, from: 0, created: 2, is_deleting: false, is_scaling: true };
        let set = testing::set(2);
        let event = of_burst(&burst, 2).unwrap();
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
        let event = of_rejected_create(&rejected_create, None, None).unwrap();
        let event = manifest(&event, (&set.key, &set.uid), testing::now(), 1, &"i".repeat(300));
        assert!(event["metadata"]["name"].as_str().unwrap().len() <= 253);
        assert_eq!(event["note"].as_str().unwrap().len(), 1024);
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["reportingInstance"].as_str().unwrap().len(), 128);
        assert_eq!(event["eventTime"], "2026-01-01T12:00:00.000000Z");
    }
}
