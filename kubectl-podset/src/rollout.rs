//! What `kubectl podset rollout` prints and patches. Pure. The texts are those of `kubectl rollout`.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::{Value, json};

use crate::{
    objects::{KIND, PodSet, RESOURCE, Status, awaited, is_behind, is_owned, name},
    on_one_line,
};

const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// How far the rollout of a set is, in a line for the user, and whether it is over.
///
/// # Errors
///
/// If it cannot succeed, or the set has no rollouts.
pub fn progress(set: &PodSet) -> Result<(String, bool), String> {
    let (name, spec, none) = (name(&set.metadata), &set.spec, Status::default());
    let status = set.status.as_ref().unwrap_or(&none);
    let waiting = |what: String| Ok((format!("Waiting for podset {name:?} rollout to finish: {what}..."), false));
    if spec.is_on_delete() {
        return Err("rollout status is only available for RollingUpdate strategy type".to_owned());
    }
    let terminating = awaited(set, status);
    if is_behind(set, status) {
        let has_surplus = status.available_replicas > spec.replicas;
        let failure = status.condition("ReplicaFailure", "True");
        let failure = failure.filter(|failure| has_surplus && failure.reason == "FailedDelete");
        if let Some(failure) = failure {
            return waiting(format!("pods cannot be deleted: {}", on_one_line(&failure.message)));
        }
        return match terminating {
            0 => Ok(("Waiting for podset spec update to be observed...".to_owned(), false)),
            count => waiting(format!("{count} old pods are pending termination")),
        };
    }
    if let Some(stalled) = status.condition("Stalled", "True") {
        let what = match stalled.reason.as_str() {
            "ProgressDeadlineExceeded" => "exceeded its progress deadline",
            _ => "cannot be rolled out",
        };
        return Err(format!("podset {name:?} {what}: {}", stalled.message));
    }
    let updated = status.updated_replicas;
    let wanted = spec.replicas - spec.partition(status);
    if updated < wanted && (terminating == 0 || updated + terminating < wanted) {
        let is_paused = spec.update_strategy.rolling_update.paused;
        let advice = match terminating {
            _ if is_paused => format!("; it is paused, \"rollout resume {name}\" resumes it"),
            0 => String::new(),
            count => format!("; {count} old pods are pending termination"),
        };
        return waiting(format!("{updated} out of {wanted} new pods have been updated{advice}"));
    }
    let old = status.available_replicas.saturating_sub(spec.replicas.max(updated)) + terminating;
    if old > 0 {
        return waiting(format!("{old} old pods are pending termination"));
    }
    let available = status.updated_available_replicas;
    if available < wanted {
        return waiting(format!("{available} of {wanted} updated pods are available"));
    }
    if status.ready_replicas < spec.replicas {
        return waiting(format!("{} of {} pods are ready", status.ready_replicas, spec.replicas));
    }
    let done = match updated < spec.replicas {
        true => format!("partitioned roll out complete: {updated} new pods have been updated..."),
        false => format!("podset {name:?} successfully rolled out"),
    };
    Ok((done, true))
}

/// What to say if another revision than `pinned` is rolled out. `stored` is the ControllerRevision with the name in the status.
pub fn other_revision(set: &PodSet, stored: Option<&ControllerRevision>, pinned: i64, is_over: bool) -> Option<String> {
    if is_behind(set, set.status.as_ref()?) {
        return None;
    }
    let running = match stored.filter(|stored| is_owned(&stored.metadata, set.metadata.uid.as_ref())) {
        Some(stored) if stored.revision == pinned => return None,
        Some(stored) => stored.revision.to_string(),
        // The operator stores it before the rollout is over. A set that is up to date without it has no template.
        None if !is_over => return None,
        None => "none".to_owned(),
    };
    Some(format!("desired revision ({pinned}) is different from the running revision ({running})"))
}

/// The table of revisions, or the template of one of them.
///
/// # Errors
///
/// If there is no such revision, or it cannot be shown.
pub fn history(set: &PodSet, revisions: &[ControllerRevision], revision: i64) -> Result<String, String> {
    let name = name(&set.metadata);
    let found = chosen(revisions, revision)?;
    if revision > 0 {
        let shown = json!({ "Pod Template": template(found[0]) });
        let yaml = serde_saphyr::to_string(&shown).map_err(|error| format!("cannot show the template: {error}"))?;
        return Ok(format!("{KIND}/{name} with revision #{revision}\n{}", yaml.trim_end()));
    }
    if found.is_empty() {
        return Ok(format!("{KIND}/{name}\nNo rollout history found."));
    }
    let lines = found.into_iter().map(|stored| {
        // The annotation of the set may have been changed after its template.
        let cause = is_current(set, stored).then(|| set_cause(set)).flatten().or_else(|| cause(stored));
        format!("{:<10}{}\n", stored.revision, on_one_line(cause.unwrap_or("<none>")))
    });
    Ok(format!("{KIND}/{name}\n{:<10}CHANGE-CAUSE\n{}", "REVISION", lines.collect::<String>()))
}

/// The revision with this number; 0: all, sorted.
///
/// # Errors
///
/// If there is no such revision.
pub fn chosen(revisions: &[ControllerRevision], revision: i64) -> Result<Vec<&ControllerRevision>, String> {
    let mut found: Vec<_> = revisions.iter().filter(|one| revision == 0 || one.revision == revision).collect();
    found.sort_by_key(|one| one.revision);
    if found.is_empty() && revision > 0 {
        return Err("unable to find the specified revision".to_owned());
    }
    Ok(found)
}

/// A patch, if something is to change, and what it does.
pub type Change = (Option<Value>, String);

/// How a set gets the template of another revision; 0: of the last revision with another template.
///
/// # Errors
///
/// If there is no such revision, it has no template, or the set is paused.
pub fn undo(set: &PodSet, revisions: &[ControllerRevision], to: i64) -> Result<Change, String> {
    if set.spec.update_strategy.rolling_update.paused {
        let advice = "resume it first with 'kubectl podset rollout resume' and try again";
        return Err(format!("you cannot rollback a paused podset; {advice}"));
    }
    let found = chosen(revisions, to).unwrap_or_default();
    let found = found.into_iter().rfind(|stored| to > 0 || !is_current(set, stored)).ok_or_else(|| match to {
        0 => "no last revision to roll back to".to_owned(),
        to => format!("unable to find specified revision {to} in history"),
    })?;
    if is_current(set, found) {
        let reason = format!("(current template already matches revision {})", found.revision);
        return Ok((None, format!("skipped rollback {reason}")));
    }
    if found.data.as_ref().is_none_or(|data| data.0.get("template").is_none()) {
        return Err(format!("revision {} has no template", found.revision));
    }
    // This fails if the set was deleted and created again under the same name.
    let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": set.metadata.uid })];
    patch.push(match template(found) {
        Value::Null => json!({ "op": "remove", "path": "/spec/template" }),
        template => json!({ "op": "add", "path": "/spec/template", "value": template }),
    });
    patch.extend(restore_cause(set, found));
    Ok((Some(patch.into()), "rolled back".to_owned()))
}

/// The operations of a JSON patch that give the set the change cause of this revision.
fn restore_cause(set: &PodSet, found: &ControllerRevision) -> Vec<Value> {
    let path = format!("/metadata/annotations/{}", CHANGE_CAUSE.replace('/', "~1"));
    match (cause(found), set_cause(set)) {
        (Some(cause), Some(_)) => vec![json!({ "op": "replace", "path": path, "value": cause })],
        (None, Some(_)) => vec![json!({ "op": "remove", "path": path })],
        // With a cause in its template, the set needs none of its own.
        (_, None) => match (own_cause(found), &set.metadata.annotations) {
            (None, _) => Vec::new(),
            (Some(cause), Some(_)) => vec![json!({ "op": "add", "path": path, "value": cause })],
            // `add` would replace annotations that the set has got in the meantime, so the patch must fail then.
            (Some(cause), None) => vec![
                json!({ "op": "test", "path": "/metadata/resourceVersion", "value": set.metadata.resource_version }),
                json!({ "op": "add", "path": "/metadata/annotations", "value": { CHANGE_CAUSE: cause } }),
            ],
        },
    }
}

/// The merge patch that restarts a set: its template changes, and nothing in the pods but an annotation.
///
/// # Errors
///
/// If the set is paused, or was restarted within this second.
pub fn restart(set: &PodSet, now: Timestamp) -> Result<Change, String> {
    let now = format!("{now:.0}");
    if set.spec.update_strategy.rolling_update.paused {
        return Err(refused(set, "can't restart paused podset (run rollout resume first)"));
    }
    if set.spec.template["metadata"]["annotations"][RESTARTED_AT] == now.as_str() {
        return Err(refused(set, "was restarted within the past second: wait before you restart it again"));
    }
    let template = json!({ "metadata": { "annotations": { RESTARTED_AT: now } } });
    Ok((Some(json!({ "spec": { "template": template } })), "restarted".to_owned()))
}

/// The merge patch that pauses or resumes a set.
///
/// # Errors
///
/// If there is nothing to change, or nothing that could be paused.
pub fn pause(set: &PodSet, pause: bool) -> Result<Change, String> {
    match (set.spec.update_strategy.rolling_update.paused, pause) {
        (true, true) => Err(refused(set, "is already paused")),
        (false, false) => Err(refused(set, "is not paused")),
        (false, true) if set.spec.is_on_delete() => Err(refused(set, "has the strategy OnDelete: nothing to pause")),
        _ => {
            let patch = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "paused": pause } } } });
            Ok((Some(patch), if pause { "paused" } else { "resumed" }.to_owned()))
        }
    }
}

fn refused(set: &PodSet, why: &str) -> String {
    format!("{RESOURCE} {:?} {why}", name(&set.metadata))
}

/// The template of a revision; `null`: none.
fn template(stored: &ControllerRevision) -> Value {
    stored.data.as_ref().map_or(Value::Null, |data| data.0["template"].clone())
}

/// Whether the set has the template of this revision.
fn is_current(set: &PodSet, stored: &ControllerRevision) -> bool {
    set.spec.template == template(stored)
}

/// The cause of a revision: its own annotation, or the one in its template.
fn cause(stored: &ControllerRevision) -> Option<&str> {
    let in_template = || stored.data.as_ref()?.0["template"]["metadata"]["annotations"][CHANGE_CAUSE].as_str();
    own_cause(stored).or_else(in_template)
}

fn own_cause(stored: &ControllerRevision) -> Option<&str> {
    stored.metadata.annotations.as_ref()?.get(CHANGE_CAUSE).map(String::as_str)
}

fn set_cause(set: &PodSet) -> Option<&str> {
    set.metadata.annotations.as_ref()?.get(CHANGE_CAUSE).map(String::as_str)
}

#[cfg(test)]
mod tests {
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
        let revisions =
            [stored(10, json!("c"), None), stored(2, json!("b"), Some("image")), stored(3, in_template, None)];
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
}
