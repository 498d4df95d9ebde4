//! Fourth stage, *report*: tells users what was done. The only writes of statuses; events go to [`super::recorder`].
//!
//! In: what [`super::act::act`] returned, and the set as it stands afterwards. Nothing that was not tried can be reported.
//! A status is written only when it differs from the stored one, and seldom: see [`super::pace`].

use jiff::Timestamp;
use tracing::{debug, info, warn};

use super::{
    Context,
    act::Done,
    events::{self, Event},
    memory::{Burst, Memory, RefusalKind},
    observe::{Set, View},
    plan::{Hold, Plan},
    status, trace_link,
};
use crate::{
    api::{PodSet, PodSetStatus, condition},
    controllers::statuses::{self, Applied},
    telemetry::spans,
};

/// How many pod names a log line shows.
const NAMES_SHOWN: usize = 10;

/// Takes what was done into the memory, and says it in one line of the log. `from` is the number of live pods before.
pub fn learn(context: &Context, view: &View, done: Done, from: usize, memory: &mut Memory) {
    let set = &view.set;
    let (created, deleted) = (done.created.len(), done.deleted.len());
    let is_scaling = !is_fulfilled(set, memory);
    // What went meanwhile is lost: the next create asks whether the set is still there.
    memory.live = (from + created).saturating_sub(deleted);
    trace_link::note_done(&done);
    if done.is_creating || done.is_deleting {
        let wanted = set.replicas();
        let former = memory.burst.take_if(|burst| burst.wanted != wanted);
        memory.ended.extend(former.map(|burst| (burst, from)));
        let burst = memory.burst.get_or_insert(Burst { wanted, from, created: 0, is_deleting: false, is_scaling });
        if is_scaling {
            memory.fulfilled = None;
        }
        burst.created += created;
        burst.is_deleting |= done.is_deleting;
    }
    if done.is_creating {
        memory.tried_generation = Some(set.generation);
    }
    if created + deleted > 0 {
        let to = (from + created).saturating_sub(deleted);
        let pods = shown(done.created.iter().chain(&done.deleted));
        let what = if is_scaling { "scaled" } else { "replaced lost pods" };
        info!(set = %set.key, generation = set.generation, from, to, created, deleted, pods, "{what}");
    }
    if done.has_failed {
        memory.back_off(context.env.now(), set.generation, |wait| context.env.jittered(wait, 0.1));
    } else if created > 0 {
        memory.backoff = None;
    }
    if created > 0 {
        memory.rest = None;
    }
    if let Some(refusal) = done.refusal {
        let is_news = memory.refusal.as_ref().is_none_or(|former| former.message != refusal.message);
        if refusal.kind == RefusalKind::NamespaceTerminating {
            if is_news {
                info!(set = %set.key, "the namespace is being deleted: no pods are created");
            }
            memory.give_up(context.env.now(), set.generation, |wait| context.env.jittered(wait, 0.1));
        } else if is_news {
            warn!(set = %set.key, reason = refusal.message, "pods are refused");
        }
        memory.refusal = Some(refusal);
    } else if created > 0 {
        memory.refusal = None;
    }
}

/// Takes note of how the set stands after a pass: what is cured is forgotten.
pub fn settle(after: &Plan, memory: &mut Memory) {
    memory.live = memory.live.max(after.count.live);
    // Creates of unknown fate fulfil and cure nothing.
    if after.count.occupied == after.count.wanted && after.count.live == after.count.wanted {
        memory.fulfilled = Some(after.count.wanted);
    }
    if after.count.live >= after.count.wanted && !memory.has_pending_strays() {
        memory.refusal = None;
    }
    memory.rejected.retain(&after.rejected);
    if after.hold == Hold::Nothing && !after.has_work() {
        memory.backoff = None;
    }
}

/// Whether the set had as many pods as its spec wants once already, as far as is remembered or its stored status tells.
fn is_fulfilled(set: &Set, memory: &Memory) -> bool {
    let wanted = set.replicas();
    let stored = &set.status;
    let is_stored = stored.observed_generation == Some(set.generation)
        && usize::try_from(stored.available_replicas).is_ok_and(|available| available == wanted);
    is_stored || memory.fulfilled == Some(wanted)
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
pub async fn report(context: &Context, view: &View, plan: &Plan, memory: &mut Memory) -> Reported {
    let set = &view.set;
    let is_settled = plan.create.is_empty() && plan.delete.is_empty();
    // A try that failed and changed nothing yet may still turn out to have changed something, and what was made otherwise
    // than ordered goes again.
    let has_strays = memory.has_pending_strays();
    let is_over =
        |burst: &mut Burst| is_settled && !has_strays && (plan.hold != Hold::Failure || burst.from != plan.count.live);
    let burst = memory.burst.take_if(is_over);
    let events = if is_settled { due_events(set, plan, burst, memory) } else { Vec::new() };
    context.recorder.record(set, events);
    let new = (context.locks.status)(view, plan, memory, context.env.clock.wall());
    if status::is_same(&set.status, &new) {
        memory.pace.is_right();
        return Reported::default();
    }
    match memory.pace.due(&set.status, &new, is_settled, context.env.now()) {
        None => write_status(context, set, &new, memory).await,
        again => Reported { again, has_failed: false },
    }
}

/// The events that are due now, of work that is over and of a refusal; they are not due again.
fn due_events(set: &Set, plan: &Plan, burst: Option<Burst>, memory: &mut Memory) -> Vec<Event> {
    let ended = memory.ended.drain(..).chain(burst.map(|burst| (burst, plan.count.live)));
    let mut due: Vec<Event> = ended.filter_map(|(burst, live)| events::of_burst(&burst, live)).collect();
    let stored = status::find(&set.status, condition::REPLICA_FAILURE);
    let stored = |reason| stored.filter(|stored| stored.reason == reason).map(|stored| stored.message.as_str());
    if let Some(refusal) = &memory.refusal {
        due.extend(events::of_refusal(refusal, memory.refusal_told.as_ref(), stored(status::FAILED_CREATE)));
    }
    memory.refusal_told = memory.refusal.clone();
    let rejection = memory.rejected.take_untold(stored(status::FAILED_DELETE));
    due.extend(rejection.map(|message| events::of_rejection(&message)));
    due
}

/// Whether the status says that nothing is left to do.
pub fn is_at_its_end(status: &PodSetStatus) -> bool {
    status::holds(status, condition::READY)
}

/// Applies a status.
async fn write_status(context: &Context, set: &Set, new: &PodSetStatus, memory: &mut Memory) -> Reported {
    let at = context.env.now();
    let new = PodSetStatus { written_by: Some(context.others.installation()), ..new.clone() };
    context.observed.lock().sets.writing.begin(&set.uid, new.clone());
    let version = (context.locks.status_version)(set.version);
    let applied = statuses::apply::<PodSet, Set>(&context.clients, &set.key, &set.uid, version, &new).await;
    let reported = written(context, set, &new, memory, applied, at);
    context.observed.lock().sets.writing.end(&set.uid);
    reported
}

/// Takes in what became of a status.
fn written(
    context: &Context,
    set: &Set,
    new: &PodSetStatus,
    memory: &mut Memory,
    applied: Applied<Set>,
    at: Timestamp,
) -> Reported {
    match applied {
        Applied::Written(stored) => {
            memory.pace.written(new, at);
            context.set_answered(set, Some(*stored));
            Reported::default()
        }
        Applied::Outdated(found) => {
            memory.pace.written(new, at);
            context.set_answered(set, found.map(|found| *found));
            Reported { again: Some(context.env.now()), has_failed: false }
        }
        Applied::Failed(error) => {
            let (again, is_news) = memory.pace.failed(new, &error, context.env.now());
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
