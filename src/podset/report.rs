//! Fourth stage, *report*: notes what was done, and shows it to users. It writes the status, and passes events to [`super::recorder`].
//!
//! In: the result of [`super::act::act`], and the set afterwards. A status is written only if it differs from the stored one, and not too
//! often: see [`operator_kit::pace`].

use jiff::{SignedDuration, Timestamp};
use kube::core::response::reason;
use tracing::{Span, info, record_all, warn};

use super::{
    act::Done,
    conditions,
    context::Context,
    events::{self, Event},
    observe::{Set, View},
    plan::{Hold, Plan, Rollout, Why},
    rejection::{Rejection, RejectionKind},
    set_state::{Burst, ReportedRollout, Reports, SetState, Stage},
    status,
};
use crate::api::{PodSet, PodSetStatus, condition};
use operator_kit::{
    statuses::{self, Applied},
    telemetry::spans,
};

/// How many pod names a log line shows.
const NAMES_SHOWN: usize = 10;

/// During a rollout, how long a status write waits after the last one while no further pod becomes available. This limits a rollout to about
/// one status write for each pod.
const STEP: SignedDuration = SignedDuration::from_secs(30);

/// Updates the state with the result of this plan: what the next plan and report need. Logs it in one line.
pub fn learn(context: &Context, set: &Set, plan: &Plan, done: Done, state: &mut SetState) {
    let (created, deleted) = (done.created.len(), done.deleted.len());
    let (from, is_creating) = (plan.count.live, !plan.create.is_empty());
    let to = (from + created).saturating_sub(deleted);
    let is_replacing = is_creating && plan.create.iter().all(|creation| creation.replacements > 0);
    let is_deleting = plan.delete.iter().any(|deletion| deletion.why == Why::Surplus);
    let is_rolling = plan.rollout == Rollout::InProgress;
    if state.live.is_none() && set.is_observed() && probably_reached_n(set) {
        state.reports.reached = Some(set.replicas());
    }
    let is_scaling = !is_replacing && !has_reached_n(set, state);
    // A rollout has events of its own.
    let is_update = is_rolling && !is_scaling;
    record_span(&done);
    if (is_creating || is_deleting) && !is_update {
        let burst = Burst { wanted: set.replicas(), from, created, is_deleting, is_scaling };
        extend_burst(burst, &mut state.reports);
    }
    if is_creating {
        state.retry.tried_generation = Some(set.generation);
    }
    if created + deleted > 0 {
        // If fewer pods live later, some were lost: the set is read before the next create (`Plan::creates_in_doubt`).
        state.live = Some(to);
        let pods = shown(done.created.iter().chain(&done.deleted));
        let what = match is_update {
            true => "updated pods",
            false if is_scaling => "scaled",
            false => "replaced lost pods",
        };
        info!(set = %set.key, generation = set.generation, from, to, created, deleted, pods, "{what}");
    }
    // In a rollout, pods of the former template prove nothing about the new one.
    if created > 0 && (done.has_created_updated || !is_rolling) && !done.has_failed {
        state.retry.backoff = None;
    }
    if done.has_failed || done.is_namespace_terminating() {
        let jittered = |wait| context.env.jittered(wait, 0.1);
        state.retry.back_off(context.env.now(), set.generation, done.is_namespace_terminating(), jittered);
    }
    if let Some(message) = &done.rejected_delete {
        let is_announced = std::mem::replace(&mut state.reports.announced_undeletable, true);
        // A former leader may have sent the event.
        if !is_announced && !set.reports_failure(status::FAILED_DELETE) {
            context.recorder.record(set, vec![events::deletes_rejected(message)]);
        }
    }
    match done.rejected_create {
        Some(rejected) => create_rejected(set, rejected, state),
        None if created > 0 => state.reports.rejected_create = None,
        None => {}
    }
}

/// Adds the work of a pass to the burst, which gets one event. If the wanted number has changed, the former burst ends first.
fn extend_burst(work: Burst, reports: &mut Reports) {
    let former = reports.burst.take_if(|burst| burst.wanted != work.wanted);
    reports.ended.extend(former.map(|burst| (burst, work.from)));
    let burst = reports.burst.get_or_insert(Burst { created: 0, ..work });
    burst.created += work.created;
    burst.is_deleting |= work.is_deleting;
    if work.is_scaling {
        reports.reached = None;
    }
}

/// Records the result in the span of the reconcile.
fn record_span(done: &Done) {
    let (created, deleted) = (spans::count(done.created.len()), spans::count(done.deleted.len()));
    let span = Span::current();
    record_all!(span, pods.created = created, pods.deleted = deleted);
    let rejected_create = done.rejected_create.as_ref().map(|rejected_create| rejected_create.message.as_str());
    match rejected_create.or(done.rejected_delete.as_deref()) {
        Some(reason) if done.has_failed || done.rejected_delete.is_some() => spans::failed(reason),
        None if done.has_failed => spans::failed("a request for a pod failed"),
        _ => {}
    }
}

/// Updates the state with a rejected create, and logs it if the message is new.
fn create_rejected(set: &Set, rejected: Rejection, state: &mut SetState) {
    let former = state.reports.rejected_create.as_ref();
    let is_news = former.is_none_or(|former| rejected.differs(former));
    if is_news && rejected.kind == RejectionKind::NamespaceTerminating {
        info!(set = %set.key, "the namespace is being deleted, so no pods are created");
    } else if is_news {
        warn!(set = %set.key, reason = rejected.message, "cannot create pods");
    }
    state.reports.rejected_create = Some(rejected);
}

/// Updates the state after a pass. `after` is the plan made after it.
pub fn settle(after: &Plan, state: &mut SetState) {
    state.live = state.live.map(|live| live.max(after.count.live));
    if after.count.is_complete() {
        state.reports.reached = Some(after.count.wanted);
    }
    if after.count.live >= after.count.wanted && !state.has_pending_strays() {
        state.reports.rejected_create = None;
    }
    state.retry.rejected_deletes.retain(&after.rejected);
    state.reports.announced_undeletable &= !after.rejected.is_empty();
    // While a rollout still misses pods, nothing to do does not mean that the new template works.
    let is_mid_rollout = after.rollout == Rollout::InProgress && !after.count.is_complete();
    if after.hold == Hold::Nothing && !after.has_work() && !is_mid_rollout {
        state.retry.backoff = None;
    }
}

/// Whether the set has already had as many pods as its spec wants, according to the state or the stored status.
fn has_reached_n(set: &Set, state: &SetState) -> bool {
    let wanted = set.replicas();
    let stored = &set.status;
    let is_stored =
        set.is_observed() && usize::try_from(stored.available_replicas).is_ok_and(|available| available == wanted);
    is_stored || state.reports.reached == Some(wanted)
}

/// Whether the set probably had all its pods under the former leader: its status says that it waits for terminations, or that a rollout is in
/// progress and no more than maxUnavailable pods are missing. An interrupted scale-up can look the same.
fn probably_reached_n(Set { status: stored, wanted, .. }: &Set) -> bool {
    let Ok(wanted) = wanted else { return false };
    let available = usize::try_from(stored.available_replicas).unwrap_or_default();
    let may_be_missing = wanted.update.budget().unwrap_or_default();
    (conditions::reports_rollout(stored) && available + may_be_missing >= wanted.replicas)
        || conditions::ready_reason(stored) == status::WAITING_FOR_TERMINATION
}

fn shown<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let text = names.join(",");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// Records the events that are due. `new` is the status that the set should have.
fn announce(context: &Context, view: &View, plan: &Plan, new: &PodSetStatus, state: &mut SetState) {
    let set = &view.set;
    let mut events = Vec::from_iter(rollout_event(set, plan, new, state));
    if is_settled(plan, state) {
        events.extend(due_events(view, plan, new, state));
    }
    context.recorder.record(set, events);
}

/// Whether nothing is left to create or delete, except pods whose delete was rejected repeatedly.
fn is_settled(plan: &Plan, state: &SetState) -> bool {
    plan.create.is_empty() && !plan.tries_more_deletes(state) && plan.prepare.is_none()
}

/// Records the events that are due, and writes this status if it differs from the stored one and is due. Returns when to report again; as an
/// error, if it cannot be written.
pub async fn write_if_due(
    context: &Context,
    view: &View,
    plan: &Plan,
    new: PodSetStatus,
    state: &mut SetState,
) -> Result<Option<Timestamp>, Timestamp> {
    announce(context, view, plan, &new, state);
    let (now, set) = (context.env.now(), &view.set);
    state.reports.silent_since = None;
    if conditions::is_same(&set.status, &new) {
        state.reports.pace.up_to_date();
        return Ok(None);
    }
    let next_step = state.reports.pace.last_write().map(|at| at + STEP).filter(|at| now < *at);
    let next_step = next_step.filter(|_| is_within_step(&set.status, &new, plan));
    // During a rollout, more pods come and go, so a change of names alone can wait.
    let is_awaited =
        status::is_awaited(&set.status, &new, is_settled(plan, state) && plan.rollout != Rollout::InProgress);
    match state.reports.pace.due(new.observed_generation, is_awaited, now).max(next_step) {
        None => write_status(context, set, new, state).await,
        again => Ok(again),
    }
}

/// Whether a rollout is in progress, and nothing that users follow has changed: how many pods are available with its template, and whether
/// ReplicaFailure holds.
fn is_within_step(stored: &PodSetStatus, new: &PodSetStatus, plan: &Plan) -> bool {
    let is_rolling = |status: &PodSetStatus| conditions::ready_reason(status) == conditions::ROLLING;
    let progress = |status: &PodSetStatus| {
        let has_failure = conditions::holds(status, condition::REPLICA_FAILURE);
        (status.updated_available_replicas, status.observed_generation, status.update_revision.clone(), has_failure)
    };
    plan.rollout == Rollout::InProgress && is_rolling(stored) && is_rolling(new) && progress(stored) == progress(new)
}

/// The event about a new stage of the rollout. The stored status shows whether it was already sent.
fn rollout_event(set: &Set, plan: &Plan, new: &PodSetStatus, state: &mut SetState) -> Option<Event> {
    let revision = new.update_revision.as_ref()?;
    let is_complete = plan.count.is_rolled_out() && new.current_revision.as_ref() == Some(revision);
    let is_same = set.status.update_revision.as_ref() == Some(revision);
    let reason = conditions::ready_reason(&set.status);
    let is_rolling = conditions::reports_rollout(&set.status);
    let before = state.reports.rollout.as_ref().filter(|before| before.revision == *revision);
    let was_rolling = before.is_some_and(|before| matches!(before.stage, Stage::Started | Stage::Stalled));
    // On a scale-down, the status may be about an older spec for a while.
    let is_known = set.is_observed() || before.is_some_and(|before| before.generation == set.generation);
    let (stage, was_announced) = match plan.rollout {
        _ if plan.is_late => (Stage::Stalled, is_same && reason == conditions::LATE),
        // A rollout starts or pauses when the spec changes. If this spec is known already, a pod was lost or is no longer ready: no event.
        Rollout::InProgress => (Stage::Started, is_same && (is_rolling || is_known)),
        Rollout::Paused => (Stage::Paused, is_same && (reason == conditions::PAUSED || is_known)),
        Rollout::None | Rollout::AtPartition if is_complete => {
            let former = set.status.current_revision.as_ref();
            (Stage::Complete, !is_rolling && !was_rolling && former.is_none_or(|former| former == revision))
        }
        Rollout::None | Rollout::AtPartition => (Stage::Idle, true),
    };
    let is_news = before.is_none_or(|before| before.stage != stage);
    state.reports.rollout = Some(ReportedRollout { revision: revision.clone(), generation: set.generation, stage });
    (is_news && !was_announced).then(|| events::rollout(stage, revision, plan.count)).flatten()
}

/// Ends the work that is under way if nothing is left to do. Later work gets an event of its own.
pub fn end_burst(after: &Plan, state: &mut SetState) {
    // The event waits while strays are to be deleted. If the number of live pods is unchanged, it also waits while a failed try is to be
    // repeated, or a delete has no answer.
    let is_settled = is_settled(after, state) && !state.has_pending_strays();
    let may_change = after.hold == Hold::Failure || !state.fates.deletes.is_empty();
    let is_over = |burst: &mut Burst| is_settled && (!may_change || burst.from != after.count.live);
    let burst = state.reports.burst.take_if(is_over);
    state.reports.ended.extend(burst.map(|burst| (burst, after.count.live)));
}

/// Takes the events about finished work. Only this process knows about that work.
pub fn work_events(reports: &mut Reports) -> Vec<Event> {
    reports.ended.drain(..).filter_map(|(burst, live)| events::work_done(&burst, live)).collect()
}

/// The events that are due when nothing is left to create or delete, except pods whose delete was rejected repeatedly. Each is due once.
fn due_events(view: &View, plan: &Plan, new: &PodSetStatus, state: &mut SetState) -> Vec<Event> {
    let set = &view.set;
    let mut due = work_events(&mut state.reports);
    let stored_create = conditions::message(&set.status, condition::REPLICA_FAILURE, status::FAILED_CREATE);
    let rejected = state.reports.rejected_create.clone();
    let invalid = state.preparation.invalid(set).filter(|_| plan.rollout == Rollout::InProgress);
    let invalid = invalid.map(|failed| {
        let (kind, generation) = (RejectionKind::InvalidTemplate, set.generation);
        Rejection { message: failed.message.clone(), kind, generation }
    });
    let announced = std::mem::replace(&mut state.reports.announced_rejection, rejected.clone());
    due.extend(rejected.as_ref().and_then(|now| events::creates_rejected(now, announced.as_ref(), stored_create)));
    // A rejected create may already have announced the same message.
    let announced = std::mem::replace(&mut state.reports.announced_invalid, invalid.clone()).or(rejected);
    due.extend(invalid.and_then(|now| events::creates_rejected(&now, announced.as_ref(), stored_create)));
    let failing = conditions::message(new, condition::RECONCILING, status::BACKING_OFF);
    let (announced, finishes) = (&mut state.reports.announced_failing, &state.retry.finishes.next);
    if let (Hold::RestartBackoff { template, .. }, Some(failing)) = (plan.hold, failing) {
        // A former leader may have sent the event.
        let is_stored = conditions::message(&set.status, condition::RECONCILING, status::BACKING_OFF).is_some();
        let is_by_former = announced.is_empty() && is_stored;
        due.extend((announced.insert(template) && !is_by_former).then(|| events::pods_failing(failing)));
    } else {
        // Until the count of replacements restarts, these are the same failures.
        announced.retain(|template| finishes.get(template).is_some_and(|next| next.count > 1));
    }
    let is_news = !plan.overdue.is_subset(&state.reports.overdue);
    let overdue = is_news.then(|| status::terminations(view, &state.reports.overdue)).flatten();
    due.extend(overdue.map(|message| events::termination_overdue(&message)));
    state.reports.overdue.clone_from(&plan.overdue);
    due
}

async fn write_status(
    context: &Context,
    set: &Set,
    new: PodSetStatus,
    state: &mut SetState,
) -> Result<Option<Timestamp>, Timestamp> {
    let (at, generation) = (context.env.now(), new.observed_generation);
    let new = PodSetStatus { written_by: Some(context.others.installation.clone()), ..new };
    let version = (context.rules.status_version)(set.version);
    let applied = statuses::apply::<PodSet, Set>(&context.clients, &set.key, &set.uid, version, &new).await;
    match applied {
        Applied::Written(stored) => {
            let kept = conditions::kept(&stored.status, &new);
            // A collision changes the revision of the spec, and nothing else queues the set for that.
            let again = (!kept.is_empty() || stored.revision() != set.revision()).then_some(at);
            state.reports.kept.extend(kept);
            state.reports.pace.written(generation, at);
            context.set_answered(set, Some(stored));
            Ok(again)
        }
        Applied::Outdated(found) => {
            state.reports.pace.written(generation, at);
            context.set_answered(set, found);
            Ok(Some(context.env.now()))
        }
        Applied::Failed(error) => {
            // Another client owns a part of a condition that this status omits. That part alone is invalid, so apply the condition as False.
            // (An admission policy rejects with the same reason.)
            if error.starts_with(reason::INVALID) && error.contains("status.conditions") {
                state.reports.kept.extend(conditions::kept(&set.status, &new));
            }
            let now = context.env.now();
            let (wait, is_news) = state.reports.pace.failed(generation, &error, now);
            statuses::log_failure(&set.key, &error, is_news);
            Err(now + wait)
        }
        Applied::NotLeading => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::podset::{revision::Revision, testing};

    #[test]
    fn the_failing_pods_of_each_template_are_announced_once() {
        let failed = testing::pod("a").failed(3).exit_code(1).seen();
        let view = View { pods: vec![failed], set: Arc::new(testing::set(2)), is_unread: false };
        let mut state = SetState::default();
        let announced = [0, 0, 1, 0].map(|collisions| {
            let template = Some(Revision::of(None, collisions));
            let hold = Hold::RestartBackoff { pods: 1, until: testing::now(), template };
            let plan = Plan { hold, ..Plan::default() };
            let new = status::status(&view, &plan, &state, testing::now());
            due_events(&view, &plan, &new, &mut state).len()
        });
        assert_eq!(announced, [1, 0, 1, 0]);
    }
}
