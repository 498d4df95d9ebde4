use k8s_openapi::apimachinery::pkg::runtime::RawExtension;

use super::*;
use crate::objects::testing::set;

const PAUSED: &str = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"paused":true}}}}"#;

fn with_template(template: &Value) -> PodSet {
    set(&json!({ "spec": { "template": template } }).to_string())
}

fn stored(revision: i64, template: Value, cause: Option<&str>) -> ControllerRevision {
    let annotations = cause.map(|cause| json!({ CHANGE_CAUSE: cause }));
    let metadata = json!({ "name": format!("web-{revision}"), "annotations": annotations });
    let stored = json!({ "metadata": metadata, "revision": revision, "data": { "template": template } });
    serde_json::from_value(stored).unwrap()
}

/// How a set differs, and how far its rollout is.
const PROGRESS: &str = r#"
{}
done: podset "web" successfully rolled out

{"status":{"observedGeneration":2}}
Waiting for podset spec update to be observed...

{"spec":{"replicas":1},"status":{"observedGeneration":2,"conditions":{"ready":{"type":"ReplicaFailure","reason":"FailedDelete","message":"denied  by a webhook"}}}}
Waiting for podset "web" rollout to finish: pods cannot be deleted: denied by a webhook...

{"status":{"observedGeneration":2,"conditions":{"ready":{"type":"ReplicaFailure","reason":"FailedDelete","message":"denied by a webhook"}}}}
Waiting for podset spec update to be observed...

{"spec":{"replicas":3},"status":{"updatedReplicas":1}}
Waiting for podset "web" rollout to finish: 1 out of 3 new pods have been updated...

{"status":{"updatedAvailableReplicas":1}}
Waiting for podset "web" rollout to finish: 1 of 2 updated pods are available...

{"status":{"terminatingReplicas":1}}
done: podset "web" successfully rolled out

{"spec":{"podReplacementPolicy":"TerminationComplete"},"status":{"terminatingReplicas":1}}
Waiting for podset "web" rollout to finish: 1 old pods are pending termination...

{"spec":{"podReplacementPolicy":"TerminationComplete"},"status":{"updatedReplicas":1,"availableReplicas":1,"terminatingReplicas":1}}
Waiting for podset "web" rollout to finish: 1 old pods are pending termination...

{"spec":{"updateStrategy":{"rollingUpdate":{"paused":true}}},"status":{"updatedReplicas":1}}
Waiting for podset "web" rollout to finish: 1 out of 2 new pods have been updated; it is paused, "rollout resume web" resumes it...

{"spec":{"updateStrategy":{"rollingUpdate":{"paused":true}}}}
done: podset "web" successfully rolled out

{"spec":{"updateStrategy":{"rollingUpdate":{"partition":"50%"}}},"status":{"updatedReplicas":0}}
Waiting for podset "web" rollout to finish: 0 out of 1 new pods have been updated...

{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}},"status":{"updatedReplicas":1,"updatedAvailableReplicas":1}}
done: partitioned roll out complete: 1 new pods have been updated...

{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}},"status":{"updatedReplicas":1,"currentRevision":"new"}}
Waiting for podset "web" rollout to finish: 1 out of 2 new pods have been updated...

{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}},"status":{"updatedReplicas":1,"updatedAvailableReplicas":1,"readyReplicas":1}}
Waiting for podset "web" rollout to finish: 1 of 2 pods are ready...

{"status":{"conditions":{"ready":{"type":"Stalled","reason":"ProgressDeadlineExceeded"}}}}
error: podset "web" exceeded its progress deadline: 2 of 2

{"status":{"conditions":{"ready":{"type":"Stalled","reason":"InvalidTemplate"}}}}
error: podset "web" cannot be rolled out: 2 of 2

{"spec":{"updateStrategy":{"type":"OnDelete"}}}
error: rollout status is only available for RollingUpdate strategy type
"#;

#[test]
fn the_progress_is_told_as_kubectl_does() {
    for (patch, expected) in PROGRESS.trim().split("\n\n").map(|case| case.split_once('\n').unwrap()) {
        let told = match progress(&set(patch)) {
            Ok((text, is_over)) => format!("{}{text}", if is_over { "done: " } else { "" }),
            Err(text) => format!("error: {text}"),
        };
        assert_eq!(told, expected, "{patch}");
    }
}

#[test]
fn a_pinned_rollout_ends_when_another_revision_is_rolled_out() {
    let stored = |owner| {
        let owner = json!({ "apiVersion": "", "kind": "", "name": "web", "uid": owner, "controller": true });
        let mut stored = stored(4, json!("b"), None);
        stored.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        stored
    };
    let (own, foreign) = (stored("1"), stored("2"));
    let (now, behind) = (set("{}"), set(r#"{"status":{"observedGeneration":2}}"#));
    assert_eq!(other_revision(&now, Some(&own), 4, true), None);
    let error = "desired revision (3) is different from the running revision (4)";
    assert_eq!(other_revision(&now, Some(&own), 3, false).as_deref(), Some(error));
    assert_eq!(other_revision(&behind, Some(&own), 3, false), None, "it may be about to change");
    for missing in [None, Some(&foreign)] {
        assert_eq!(other_revision(&now, missing, 4, false), None, "it may be about to be stored");
        assert!(other_revision(&now, missing, 4, true).unwrap().ends_with("(none)"));
    }
}

#[test]
fn the_history_is_sorted_and_has_causes() {
    let in_template = json!({ "metadata": { "annotations": { CHANGE_CAUSE: "in the template" } } });
    let revisions = [stored(10, json!("c"), None), stored(2, json!("b"), Some("image")), stored(3, in_template, None)];
    let mut now = with_template(&json!("c"));
    let all = |set: &PodSet| history(set, &revisions, 0).unwrap();
    let table = "podset.app.example.com/web\nREVISION  CHANGE-CAUSE\n2         image\n3         in the template\n";
    assert_eq!(all(&now), format!("{table}10        <none>\n"));
    now.metadata.annotations = Some([(CHANGE_CAUSE.to_owned(), "newest".to_owned())].into());
    assert_eq!(all(&now), format!("{table}10        newest\n"));
    assert_eq!(history(&now, &[], 0).unwrap(), "podset.app.example.com/web\nNo rollout history found.");
    let one = [stored(4, json!({ "spec": { "hostname": "a" } }), None)];
    let text = "podset.app.example.com/web with revision #4\nPod Template:\n  spec:\n    hostname: a";
    assert_eq!(history(&now, &one, 4).unwrap(), text);
    assert_eq!(history(&now, &one, 5), Err("unable to find the specified revision".to_owned()));
}

#[test]
fn undo_goes_to_the_last_other_template() {
    let revisions = [stored(1, Value::Null, None), stored(4, json!("b"), Some("two")), stored(3, json!("c"), None)];
    let patched = |template: Value, to| {
        let mut set = with_template(&template);
        set.metadata.annotations = Some([(CHANGE_CAUSE.to_owned(), "x".to_owned())].into());
        match undo(&set, &revisions, to) {
            Ok((Some(patch), _)) => format!("{} {}", patch[1], patch[2]),
            Ok((None, text)) | Err(text) => text,
        }
    };
    let to_b = r#"{"op":"add","path":"/spec/template","value":"b"} {"op":"replace","path":"/metadata/annotations/kubernetes.io~1change-cause","value":"two"}"#;
    let to_c = r#"{"op":"add","path":"/spec/template","value":"c"} {"op":"remove","path":"/metadata/annotations/kubernetes.io~1change-cause"}"#;
    assert_eq!(patched(json!("b"), 0), to_c);
    assert_eq!(patched(json!("not stored yet"), 0), to_b);
    assert_eq!(patched(json!("b"), 4), "skipped rollback (current template already matches revision 4)");
    assert_eq!(patched(json!("b"), 9), "unable to find specified revision 9 in history");
    assert!(patched(json!("b"), 1).starts_with(r#"{"op":"remove","path":"/spec/template"}"#));
    let last = undo(&with_template(&json!("b")), &revisions[1..2], 0);
    assert_eq!(last, Err("no last revision to roll back to".to_owned()));
    assert!(undo(&set(PAUSED), &revisions, 0).is_err());
    let mut damaged = stored(5, Value::Null, None);
    for data in [None, Some(json!({ "spec": {} }))] {
        damaged.data = data.map(RawExtension);
        let error = undo(&with_template(&json!("b")), std::slice::from_ref(&damaged), 5).unwrap_err();
        assert_eq!(error, "revision 5 has no template");
    }
}

#[test]
fn undo_restores_the_change_cause_also_of_a_set_without_one() {
    let patched = |annotations: Value, stored: &ControllerRevision| {
        let mut set = with_template(&json!("b"));
        set.metadata.annotations = serde_json::from_value(annotations).unwrap();
        set.metadata.resource_version = Some("5".to_owned());
        let patch = undo(&set, std::slice::from_ref(stored), 0).unwrap().0.unwrap();
        patch.as_array().unwrap()[2..].iter().map(Value::to_string).collect::<Vec<_>>()
    };
    let own = stored(4, json!("c"), Some("two"));
    let add = r#"{"op":"add","path":"/metadata/annotations/kubernetes.io~1change-cause","value":"two"}"#;
    assert_eq!(patched(json!({ "a": "b" }), &own), [add]);
    let test = r#"{"op":"test","path":"/metadata/resourceVersion","value":"5"}"#;
    let add = r#"{"op":"add","path":"/metadata/annotations","value":{"kubernetes.io/change-cause":"two"}}"#;
    assert_eq!(patched(Value::Null, &own), [test, add]);
    let in_template = json!({ "metadata": { "annotations": { CHANGE_CAUSE: "in the template" } } });
    assert_eq!(patched(Value::Null, &stored(4, in_template, None)), [""; 0], "the template has it");
}

#[test]
fn patches_change_one_field_and_refuse_what_changes_nothing() {
    let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
    let plain = with_template(&Value::Null);
    let annotations = json!({ RESTARTED_AT: "2026-01-02T03:04:05Z" });
    let template = json!({ "metadata": { "annotations": annotations } });
    assert_eq!(restart(&plain, now).unwrap().0, Some(json!({ "spec": { "template": template } })));
    assert!(restart(&with_template(&template), now).is_err());
    let paused = set(PAUSED);
    assert!(restart(&paused, now).unwrap_err().ends_with("can't restart paused podset (run rollout resume first)"));
    assert_eq!(pause(&plain, true).unwrap().0.unwrap().to_string(), PAUSED);
    assert_eq!(pause(&paused, false).unwrap().0.unwrap().to_string(), PAUSED.replace("true", "false"));
    assert_eq!(pause(&paused, true).unwrap_err(), "podsets.app.example.com \"web\" is already paused");
    assert_eq!(pause(&plain, false).unwrap_err(), "podsets.app.example.com \"web\" is not paused");
    assert!(pause(&set(r#"{"spec":{"updateStrategy":{"type":"OnDelete"}}}"#), true).is_err());
}
