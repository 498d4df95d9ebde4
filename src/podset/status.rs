//! The content of a set's status. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    conditions::{self, LATE, PAUSED, ROLLING},
    count::Count,
    observe::{Phase, Pod, Seen, View},
    plan::{Hold, Plan, Rollout},
    pod,
    rejection::{Rejection, RejectionKind},
    set_state::SetState,
};
use crate::api::{PodSetStatus, condition};
use operator_kit::{meta::Uid, statuses};

/// The status of a set after a pass. `plan` is the plan made after the pass, and `wall` the time of day.
pub fn status(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus {
    let View { set, pods, .. } = view;
    let current: Vec<&Seen> = pods.iter().filter(|seen| seen.is_current()).collect();
    let ready = current.iter().filter(|seen| seen.is_ready()).count();
    let terminating = pods.iter().filter(|seen| seen.counts_as_terminating()).count();
    let updated: Vec<&&Seen> = current.iter().filter(|seen| set.is_template_of(&seen.pod)).collect();
    let updated_ready = updated.iter().filter(|seen| seen.is_ready()).count();
    let Described { ready: reason, why, others } = describe(view, plan, state, current.len(), ready);
    let of_n = set.wanted.as_ref().map(|wanted| format!(" of {}", wanted.replicas)).unwrap_or_default();
    // `kubectl get --output=wide` and most other tools show only this message.
    let message = format!("{ready}{of_n} pods are ready{why}");
    let condition = |type_, holds, reason, message| {
        statuses::condition(&set.status.conditions, type_, holds, reason, message, wall)
    };
    let mut conditions = vec![condition(condition::READY, TRUE_REASONS.contains(&reason), reason, message)];
    conditions.extend(others.into_iter().map(|(type_, reason, message)| condition(type_, true, reason, message)));
    for type_ in conditions::OWN {
        let is_over = conditions::find(&set.status, type_).is_some_and(|stored| stored.reason == conditions::OVER);
        let is_kept = is_over || state.reports.kept.contains(type_);
        if is_kept && conditions.iter().all(|present| present.type_ != type_) {
            conditions.push(condition(type_, false, conditions::OVER, String::new()));
        }
    }
    PodSetStatus {
        pod_names: current.iter().map(|seen| seen.pod.key.name.clone()).collect(),
        available_replicas: number(current.len()),
        ready_replicas: number(ready),
        terminating_replicas: number(terminating),
        updated_replicas: number(updated.len()),
        updated_ready_replicas: number(updated_ready),
        updated_available_replicas: number(plan.count.updated_available),
        current_revision: current_revision(view, plan, state),
        update_revision: set.revision().map(|revision| revision.to_string().into()),
        collision_count: collision_count(view, state),
        observed_generation: observed_generation(view, plan),
        selector: Some(pod::selector(&set.key.name)),
        conditions,
        // Each write adds it. A different writer alone is no reason to write a status.
        written_by: None,
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The revision of the spec once it is stored, and all pods have it and are available; until then the former one.
fn current_revision(view: &View, plan: &Plan, state: &SetState) -> Option<Arc<str>> {
    let is_complete = state.preparation.is_stored(&view.set) && plan.count.is_rolled_out();
    let complete = view.set.revision().filter(|_| is_complete).map(|revision| revision.to_string().into());
    complete.or_else(|| view.set.status.current_revision.clone())
}

/// One more if the ControllerRevision of the spec's template has other content or another owner: its name then changes.
fn collision_count(View { set, .. }: &View, state: &SetState) -> Option<i32> {
    let stored = set.status.collision_count;
    if state.preparation.has_collided(set) { Some(stored.unwrap_or_default().saturating_add(1)) } else { stored }
}

/// A generation is observed as soon as no more pods may live than it wants: at once on a scale-up, and on a scale-down only when the
/// surplus is certainly gone. Until then the status has the former generation, which shows how many pods there may be.
fn observed_generation(view: &View, plan: &Plan) -> Option<i64> {
    let is_answered = view.set.wanted.is_ok() && plan.count.occupied() <= plan.count.wanted;
    if is_answered { Some(view.set.generation) } else { view.set.status.observed_generation }
}

/// The reason of ReplicaFailure while creates are rejected.
pub const FAILED_CREATE: &str = "FailedCreate";
/// The reason of ReplicaFailure while deletes are rejected.
pub const FAILED_DELETE: &str = "FailedDelete";
/// The reason of Reconciling while creates or deletes are rejected.
const RETRYING: &str = "Retrying";
/// The reason of Reconciling while pods that failed are not replaced yet.
pub const BACKING_OFF: &str = "BackingOff";
/// The reason of Reconciling while the set waits for pods to terminate; also of Ready, if no pod reports why it is not ready.
pub const WAITING_FOR_TERMINATION: &str = "WaitingForTermination";
/// The reason of Ready while it is True and no other reason applies.
const ALL_READY: &str = "AllPodsReady";
/// The reason of Ready while it is True and as many pods have the template as the partition allows.
pub const AT_PARTITION: &str = "PartitionReached";
/// The reason of Ready while pods are missing, surplus or not ready.
const NOT_READY: &str = "PodsNotReady";
/// The reason of Ready while pods that failed are not replaced yet, and of the event about it.
pub const PODS_FAILING: &str = "PodsFailing";
/// The reason of Ready and Stalled for a spec that cannot work.
const INVALID: &str = "InvalidTemplate";
/// The reason of Ready and Reconciling while the set is being deleted.
const DELETING: &str = "Deleting";

/// The reasons of Ready while it is True.
const TRUE_REASONS: [&str; 3] = [ALL_READY, PAUSED, AT_PARTITION];

/// All reasons of the condition Ready.
pub const REASONS: [&str; 10] = [
    ALL_READY,
    PAUSED,
    AT_PARTITION,
    NOT_READY,
    ROLLING,
    LATE,
    WAITING_FOR_TERMINATION,
    PODS_FAILING,
    INVALID,
    DELETING,
];

/// The content of the conditions.
struct Described {
    /// The reason of Ready.
    ready: &'static str,
    /// What follows the number of ready pods in the message of Ready.
    why: String,
    /// The other conditions, which are True: type, reason and message.
    others: Vec<(&'static str, &'static str, String)>,
}

/// Describes the set, and adds Stalled if the rollout makes no progress.
fn describe(view: &View, plan: &Plan, state: &SetState, current: usize, ready: usize) -> Described {
    let mut described = describe_state(view, plan, state, current, ready);
    let is_silent = plan.rollout == Rollout::InProgress || view.set.is_deleting;
    if let Some(failed) = state.preparation.unstored(&view.set).filter(|_| !is_silent) {
        described.why += &format!("; the template cannot be stored: {}", failed.message);
    }
    if plan.is_late && described.ready != INVALID {
        let message = format!("the rollout makes no progress{}", described.why);
        described.others.retain(|(type_, ..)| *type_ != condition::RECONCILING);
        described.others.push((condition::STALLED, LATE, message));
        described.ready = LATE;
    }
    described
}

/// Describes the set by the first of these states that applies.
fn describe_state(view: &View, plan: &Plan, state: &SetState, current: usize, ready: usize) -> Described {
    let is_rolling = plan.rollout == Rollout::InProgress;
    if view.set.is_deleting {
        let waiting = "waiting for the garbage collector and for finalizers".to_owned();
        let others = vec![(condition::RECONCILING, DELETING, waiting)];
        return Described { ready: DELETING, why: ": the PodSet is being deleted".to_owned(), others };
    }
    if let Err(error) = &view.set.wanted {
        return invalid(error);
    }
    if let Some(failed) = state.preparation.invalid(&view.set).filter(|_| is_rolling) {
        return invalid(&failed.message);
    }
    let Count { wanted, updated, .. } = plan.count;
    let mut updated = format!("{updated} of {wanted} pods have the new template");
    if let Some(Rejection { message, kind, .. }) = applicable_rejection(view, plan, state) {
        if *kind == RejectionKind::InvalidTemplate {
            return invalid(message);
        }
        let others = retrying("pods cannot be created; next try within about 30 s", FAILED_CREATE, message);
        // The rollout goes on, and has a deadline of its own.
        let (ready, progress) = if is_rolling { (ROLLING, format!("; {updated}")) } else { (NOT_READY, String::new()) };
        return Described { ready, why: format!(": {message}{progress}"), others };
    }
    let undeletable_because = state.retry.rejected_deletes.message().filter(|_| !plan.rejected.is_empty());
    if let Hold::RestartBackoff { pods, until, template } = plan.hold {
        let message = failures(view.pods.iter().filter(|seen| seen.pod.revision == template), pods, until);
        let undeletable = undeletable_because.map(|why| format!("; pods cannot be deleted: {why}")).unwrap_or_default();
        let why = format!(": {message}{undeletable}");
        let mut others = vec![(condition::RECONCILING, BACKING_OFF, message)];
        others.extend(undeletable_because.map(|why| (condition::REPLICA_FAILURE, FAILED_DELETE, why.to_owned())));
        return Described { ready: PODS_FAILING, why, others };
    }
    if let Some(message) = undeletable_because {
        return undeletable(view, plan, ready, message);
    }
    if let Some(failed) = state.preparation.failure(&view.set).filter(|_| is_rolling) {
        updated += &format!("; the rollout is on hold: {}", failed.message);
    }
    if [current, ready, plan.count.occupied()] == [wanted; 3] && !is_rolling {
        return complete(plan.rollout, &updated);
    }
    let why = why_not_ready(&view.pods);
    let (ready, why, (reason, message)) = match terminations(view, &BTreeSet::new()) {
        terminations if is_rolling => {
            let terminations = terminations.map(|message| format!("; {message}")).unwrap_or_default();
            (ROLLING, format!("; {updated}{terminations}{why}"), (ROLLING, updated))
        }
        Some(message) if why.is_empty() => {
            (WAITING_FOR_TERMINATION, format!("; {message}"), (WAITING_FOR_TERMINATION, message))
        }
        Some(message) => (NOT_READY, format!("; {message}{why}"), (WAITING_FOR_TERMINATION, message)),
        None => (NOT_READY, why, ("Progressing", "creating, deleting or waiting for pods".to_owned())),
    };
    Described { ready, why, others: vec![(condition::RECONCILING, reason, message)] }
}

/// The conditions when all pods are ready. `updated` says how many have the new template.
fn complete(rollout: Rollout, updated: &str) -> Described {
    let (ready, why) = match rollout {
        Rollout::Paused => (PAUSED, format!("; the rollout is paused: {updated}")),
        Rollout::AtPartition => (AT_PARTITION, format!("; {updated}, as the partition allows")),
        Rollout::None | Rollout::InProgress => (ALL_READY, String::new()),
    };
    Described { ready, why, others: Vec::new() }
}

/// Why the API server rejects creates, if that still applies. A namespace that is being deleted is no failure.
fn applicable_rejection<'a>(view: &View, plan: &Plan, state: &'a SetState) -> Option<&'a Rejection> {
    let rejected = state.reports.rejected_create.as_ref()?;
    // While all creates wait for the restart backoff, none is tried, so an earlier rejection may be over.
    let are_tried = !matches!(plan.hold, Hold::RestartBackoff { .. }) || !plan.create.is_empty();
    // A rejection of a former spec applies to the current spec only while strays keep pods from being created.
    let is_current = rejected.generation == view.set.generation || state.strays_hold();
    (are_tried && is_current && rejected.kind != RejectionKind::NamespaceTerminating).then_some(rejected)
}

/// The conditions while requests for pods are rejected for this reason, and repeated.
fn retrying(what: &str, reason: &'static str, message: &str) -> Vec<(&'static str, &'static str, String)> {
    let reconciling = (condition::RECONCILING, RETRYING, what.to_owned());
    vec![reconciling, (condition::REPLICA_FAILURE, reason, message.to_owned())]
}

/// The conditions for a spec that cannot work.
fn invalid(message: &str) -> Described {
    let stalled = (condition::STALLED, INVALID, message.to_owned());
    let failure = (condition::REPLICA_FAILURE, FAILED_CREATE, message.to_owned());
    Described { ready: INVALID, why: format!(": {message}"), others: vec![stalled, failure] }
}

/// The conditions while pods cannot be deleted.
fn undeletable(view: &View, plan: &Plan, ready: usize, message: &str) -> Described {
    let may_be_too_many =
        view.pods.iter().filter(|seen| seen.is_live() && plan.rejected.contains(&seen.pod.uid)).count();
    let is_ready = ready >= plan.count.wanted && plan.count.occupied() <= plan.count.wanted + may_be_too_many;
    Described {
        ready: match plan.rollout {
            Rollout::InProgress => ROLLING,
            _ if is_ready => ALL_READY,
            _ => NOT_READY,
        },
        why: format!("; pods cannot be deleted: {message}"),
        others: retrying("pods cannot be deleted; next try within about 90 s", FAILED_DELETE, message),
    }
}

/// Describes the pods that the set waits for, except those in `told`; `None`: there are none. It names the pod whose grace period ends first,
/// and its node.
pub fn terminations(View { set, pods, .. }: &View, told: &BTreeSet<Uid>) -> Option<String> {
    let is_ending = |seen: &&Seen| set.waits_for_termination() && seen.is_ending() && !told.contains(&seen.pod.uid);
    let ending = || pods.iter().filter(is_ending);
    let first = ending().min_by_key(|seen| (seen.overdue_at(), seen.pod.key.name.clone()))?;
    let Pod { key, node, disruption, .. } = &*first.pod;
    let mut message = format!("waiting for {}", key.name);
    message += &node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    message += &disruption.as_ref().map(|reason| format!(" (DisruptionTarget/{reason})")).unwrap_or_default();
    message += &match ending().count() {
        1 => " to terminate".to_owned(),
        count => format!(" and {} more to terminate", count - 1),
    };
    Some(message)
}

/// Why pods are not ready: the scheduler's message, and each reason from the kubelet with the first pod that has it. Each begins with "; ".
fn why_not_ready(pods: &[Seen]) -> String {
    let not_ready = pods.iter().filter(|seen| seen.is_current() && !seen.is_ready()).map(|seen| &*seen.pod);
    let waiting = not_ready.filter_map(|pod| Some((pod, pod.waits_for.as_deref()?)));
    let (unscheduled, scheduled): (Vec<_>, Vec<_>) = waiting.partition(|(pod, _)| pod.node.is_none());
    let unscheduled = unscheduled.first().map(|(Pod { key, .. }, message)| match unscheduled.len() {
        1 => format!("{} cannot be scheduled: {message}", key.name),
        count => format!("{count} pods cannot be scheduled: {message}"),
    });
    let mut by_reason: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (pod, reason) in scheduled {
        by_reason.entry(reason).or_insert((&pod.key.name, 0)).1 += 1;
    }
    let scheduled = by_reason.into_iter().map(|(reason, (pod, count))| match count {
        1 => format!("{pod} is in {reason}"),
        _ => format!("{pod} and {} more are in {reason}", count - 1),
    });
    unscheduled.into_iter().chain(scheduled).map(|clause| format!("; {clause}")).collect()
}

/// How many pods failed, which of these was the last, and how long after it the next try is. There is no countdown, because each change would
/// be a write.
fn failures<'a>(pods: impl Iterator<Item = &'a Seen>, count: usize, next: Timestamp) -> String {
    let ended: Vec<&Seen> = pods.filter(|seen| seen.pod.is_finished() && !seen.is_terminating()).collect();
    let verb = if ended.iter().any(|seen| seen.pod.phase == Phase::Succeeded) { "exited" } else { "failed" };
    let mut message = if count == 1 { format!("1 pod {verb}") } else { format!("{count} pods {verb}") };
    if let Some(last) = ended.into_iter().max_by_key(|seen| seen.finished_since) {
        message += &format!(", most recently {}", last.pod.key.name);
        message += &last.pod.exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
        let wait = last.finished_since.map(|end| next.duration_since(end.into()).as_secs());
        message += &wait.map(|wait| format!("; next try {wait} s later")).unwrap_or_default();
    }
    message
}

/// Whether users wait for this change: Ready changes, or pods have come or gone and no more are about to.
pub fn is_awaited(stored: &PodSetStatus, new: &PodSetStatus, is_settled: bool) -> bool {
    conditions::holds(stored, condition::READY) != conditions::holds(new, condition::READY)
        || (is_settled && stored.pod_names != new.pod_names)
}

#[cfg(test)]
mod tests;
