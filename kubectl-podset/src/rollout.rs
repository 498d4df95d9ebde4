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
mod tests;
