//! Fourth stage, *report*: tells users what was done. The only writes of statuses; events go to [`super::recorder`].
//!
//! In: what [`super::act::act`] returned, and the set as it stands afterwards. Nothing that was not tried can be reported.
//! A status is written only when it differs from the stored one, and seldom: see [`super::pace`].

use jiff::Timestamp;
use tracing::{Span, debug, info, record_all, warn};

use super::{
    act::Done,
    context::Context,
    events::{self, Event},
    observe::{Set, View},
    plan::{Hold, Plan},
    rejection::RejectionKind,
    set_state::{Burst, SetState},
    status, stored,
};
use crate::api::{PodSet, PodSetStatus, condition};
use operator_kit::{
    statuses::{self, Applied},
    telemetry::spans,
};

/// How many pod names a log line shows.
const NAMES_SHOWN: usize = 10;

/// Takes what was done into the state, and says it in one line of the log. `from` is the number of live pods before.
pub fn learn(context: &Context, view: &View, done: Done, from: usize, state: &mut SetState) {
    let set = &view.set;
    let (created, deleted) = (done.created.len(), done.deleted.len());
    let is_scaling = !is_fulfilled(set, state);
    // What went meanwhile is lost: the next create asks whether the set is still there.
    state.live = (from + created).saturating_sub(deleted);
    record_span(&done);
    if done.is_creating || done.is_deleting {
        let wanted = set.replicas();
        let former = state.reports.burst.take_if(|burst| burst.wanted != wanted);
        state.reports.ended.extend(former.map(|burst| (burst, from)));
        let burst =
            state.reports.burst.get_or_insert(Burst { wanted, from, created: 0, is_deleting: false, is_scaling });
        if is_scaling {
            state.reports.fulfilled = None;
        }
        burst.created += created;
        burst.is_deleting |= done.is_deleting;
    }
    if done.is_creating {
        state.retry.tried_generation = Some(set.generation);
    }
    if created + deleted > 0 {
        let to = (from + created).saturating_sub(deleted);
        let pods = shown(done.created.iter().chain(&done.deleted));
        let what = if is_scaling { "scaled" } else { "replaced lost pods" };
        info!(set = %set.key, generation = set.generation, from, to, created, deleted, pods, "{what}");
    }
    if done.has_failed {
        state.retry.back_off(context.env.now(), set.generation, |wait| context.env.jittered(wait, 0.1));
    } else if created > 0 {
        state.retry.backoff = None;
    }
    if created > 0 {
        state.retry.rest = None;
    }
    if let Some(rejected_create) = done.rejected_create {
        let is_news =
            state.reports.rejected_create.as_ref().is_none_or(|former| former.message != rejected_create.message);
        if rejected_create.kind == RejectionKind::NamespaceTerminating {
            if is_news {
                info!(set = %set.key, "the namespace is being deleted: no pods are created");
            }
            state.retry.give_up(context.env.now(), set.generation, |wait| context.env.jittered(wait, 0.1));
        } else if is_news {
            warn!(set = %set.key, reason = rejected_create.message, "pods are refused");
        }
        state.reports.rejected_create = Some(rejected_create);
    } else if created > 0 {
        state.reports.rejected_create = None;
    }
}

/// Records in the span of the reconcile what was done.
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

/// Takes note of how the set stands after a pass: what is cured is forgotten.
pub fn settle(after: &Plan, state: &mut SetState) {
    state.live = state.live.max(after.count.live);
    // Creates of unknown fate fulfil and cure nothing.
    if after.count.occupied == after.count.wanted && after.count.live == after.count.wanted {
        state.reports.fulfilled = Some(after.count.wanted);
    }
    if after.count.live >= after.count.wanted && !state.has_pending_strays() {
        state.reports.rejected_create = None;
    }
    state.retry.rejected.retain(&after.rejected);
    if after.hold == Hold::Nothing && !after.has_work() {
        state.retry.backoff = None;
    }
}

/// Whether the set had as many pods as its spec wants once already, as far as is remembered or its stored status tells.
fn is_fulfilled(set: &Set, state: &SetState) -> bool {
    let wanted = set.replicas();
    let stored = &set.status;
    let is_stored = stored.observed_generation == Some(set.generation)
        && usize::try_from(stored.available_replicas).is_ok_and(|available| available == wanted);
    is_stored || state.reports.fulfilled == Some(wanted)
}

fn shown<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let text = names.join(",");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// What came of a report.
#[derive(Debug, Default)]
pub struct Reported {
    /// When to report again what could not be told now.
    pub again: Option<Timestamp>,
    /// Whether the status could not be written.
    pub has_failed: bool,
}

/// Writes the status if it is due, and hands over the events that are.
pub async fn report(context: &Context, view: &View, plan: &Plan, state: &mut SetState) -> Reported {
    let set = &view.set;
    let is_settled = plan.create.is_empty() && plan.delete.is_empty();
    // A try that failed and changed nothing yet may still turn out to have changed something, and what was made otherwise
    // than ordered goes again.
    let has_strays = state.has_pending_strays();
    let is_over =
        |burst: &mut Burst| is_settled && !has_strays && (plan.hold != Hold::Failure || burst.from != plan.count.live);
    let burst = state.reports.burst.take_if(is_over);
    let events = if is_settled { due_events(set, plan, burst, state) } else { Vec::new() };
    context.recorder.record(set, events);
    let new = (context.rules.status)(view, plan, state, context.env.clock.wall());
    if stored::is_same(&set.status, &new) {
        state.reports.pace.is_right();
        return Reported::default();
    }
    match state.reports.pace.due(&set.status, &new, is_settled, context.env.now()) {
        None => write_status(context, set, &new, state).await,
        again => Reported { again, has_failed: false },
    }
}

/// The events that are due now, of work that is over and of a refusal; they are not due again.
fn due_events(set: &Set, plan: &Plan, burst: Option<Burst>, state: &mut SetState) -> Vec<Event> {
    let ended = state.reports.ended.drain(..).chain(burst.map(|burst| (burst, plan.count.live)));
    let mut due: Vec<Event> = ended.filter_map(|(burst, live)| events::of_burst(&burst, live)).collect();
    let stored = stored::find(&set.status, condition::REPLICA_FAILURE);
    let stored = |reason| stored.filter(|stored| stored.reason == reason).map(|stored| stored.message.as_str());
    if let Some(rejected_create) = &state.reports.rejected_create {
        due.extend(events::of_rejected_create(
            rejected_create,
            state.reports.told.as_ref(),
            stored(status::FAILED_CREATE),
        ));
    }
    state.reports.told = state.reports.rejected_create.clone();
    let rejection = state.retry.rejected.take_untold(stored(status::FAILED_DELETE));
    due.extend(rejection.map(|message| events::of_rejection(&message)));
    due
}

/// Whether the status says that nothing is left to do.
pub fn is_at_its_end(status: &PodSetStatus) -> bool {
    stored::holds(status, condition::READY)
}

/// Applies a status.
async fn write_status(context: &Context, set: &Set, new: &PodSetStatus, state: &mut SetState) -> Reported {
    let at = context.env.now();
    let new = PodSetStatus { written_by: Some(context.others.installation()), ..new.clone() };
    context.observed.lock().sets.writing.begin(&set.uid, new.clone());
    let version = (context.rules.status_version)(set.version);
    let applied = statuses::apply::<PodSet, Set>(&context.clients, &set.key, &set.uid, version, &new).await;
    let reported = written(context, set, &new, state, applied, at);
    context.observed.lock().sets.writing.end(&set.uid);
    reported
}

/// Takes in what became of a status.
fn written(
    context: &Context,
    set: &Set,
    new: &PodSetStatus,
    state: &mut SetState,
    applied: Applied<Set>,
    at: Timestamp,
) -> Reported {
    match applied {
        Applied::Written(stored) => {
            state.reports.pace.written(new, at);
            context.set_answered(set, Some(*stored));
            Reported::default()
        }
        Applied::Outdated(found) => {
            state.reports.pace.written(new, at);
            context.set_answered(set, found.map(|found| *found));
            Reported { again: Some(context.env.now()), has_failed: false }
        }
        Applied::Failed(error) => {
            let (again, is_news) = state.reports.pace.failed(new, &error, context.env.now());
            if is_news {
                warn!(set = %set.key, error, "the status may not have been written, trying again");
            } else {
                debug!(set = %set.key, error, "the status may not have been written again");
            }
            spans::failed(&error);
            Reported { again: Some(again), has_failed: true }
        }
        Applied::NotSent => Reported::default(),
    }
}
