//! Fourth stage, *report*: tells users what was done. The only writes of statuses and events.
//!
//! In: what [`super::act::act`] returned, and the set as it stands afterwards. Nothing that was not tried can be reported.
//! A status is written only when it differs from the stored one, and seldom: see [`may_write`].

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event as EventResource;
use tracing::{debug, info, warn};

use super::{
    Context,
    act::Done,
    events::{self, Event},
    memory::{Memory, RefusalKind},
    observe::{Effects, Set, SetWire, View},
    plan::Plan,
    status,
};
use crate::{
    api::{PodSet, PodSetStatus, condition},
    client::Answer,
    controllers::requests,
};

/// The least time between two writes of one status, but for the news that something was brought to its end.
const STATUS_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// How many pod names a log line shows.
const NAMES_SHOWN: usize = 10;

/// Takes what was done into the memory, and says it in one line of the log. `from` is the number of live pods before.
pub fn learn(context: &Context, view: &View, done: Done, from: usize, memory: &mut Memory) {
    let (created, deleted) = (done.created.len(), done.deleted.len());
    let now = context.env.now();
    if created + deleted > 0 {
        let set = &view.set;
        let to = (from + created).saturating_sub(deleted);
        let pods = shown(done.created.iter().chain(&done.deleted));
        info!(set = %set.key, generation = set.generation, from, to, created, deleted, pods, "scaled");
        if memory.burst.is_empty() {
            memory.burst.from = from;
        }
        let is_asked_for = set.status.observed_generation != Some(set.generation);
        memory.burst.created += created;
        memory.burst.replaced += if is_asked_for { 0 } else { done.replaced };
        memory.burst.deleted += deleted;
        memory.has_news = true;
    }
    if done.has_failed {
        memory.back_off(now, view.set.generation, |wait| context.env.jittered(wait, 0.1));
    } else {
        memory.backoff = None;
    }
    if let Some(refusal) = done.refusal {
        if memory.refusal.as_ref() != Some(&refusal) && refusal.kind != RefusalKind::NamespaceTerminating {
            warn!(set = %view.set.key, reason = refusal.message, "pods are refused");
        }
        memory.refusal = Some(refusal);
    } else if created > 0 {
        memory.refusal = None;
    }
}

fn shown<'a>(names: impl Iterator<Item = &'a String> + Clone) -> String {
    let more = names.clone().count().saturating_sub(NAMES_SHOWN);
    let mut text = names
        .take(NAMES_SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(",");
    if more > 0 {
        text = format!("{text} and {more} more");
    }
    text
}

/// Writes the status and the events that are due. Returns when to come back for what is not due yet.
pub async fn report(context: &Context, view: &View, plan: &Plan, memory: &mut Memory) -> Option<Timestamp> {
    let set = &view.set;
    let is_settled = plan.create.is_empty() && plan.delete.is_empty();
    let events = if is_settled {
        due_events(set, memory)
    } else {
        Vec::new()
    };
    let new = status::status(view, plan, memory, context.env.clock.wall());
    if status::is_same(&set.status, &new) {
        tell(context, set, &events).await;
        return None;
    }
    let now = context.env.now();
    if let Err(when) = may_write(memory, now, is_at_its_end(&new)) {
        tell(context, set, &events).await;
        return Some(when);
    }
    if is_at_its_end(&new) {
        memory.has_news = false;
    }
    memory.status_written = Some(now);
    let (is_written, ()) = futures::join!(write_status(context, set, &new), tell(context, set, &events));
    (!is_written).then(|| now + STATUS_EVERY)
}

/// The events that are due now; they are not due again.
fn due_events(set: &Set, memory: &mut Memory) -> Vec<Event> {
    let mut due = events::of_burst(&std::mem::take(&mut memory.burst));
    let told = set
        .status
        .conditions
        .iter()
        .find(|stored| stored.type_ == condition::REPLICA_FAILURE);
    if let Some(refusal) = &memory.refusal {
        let told = memory
            .refusal_told
            .as_deref()
            .or(told.map(|stored| stored.message.as_str()));
        due.extend(events::of_refusal(refusal, told));
    }
    memory.refusal_told = memory.refusal.as_ref().map(|refusal| refusal.message.clone());
    due
}

/// Whether the status says that nothing is left to do.
fn is_at_its_end(status: &PodSetStatus) -> bool {
    status
        .conditions
        .iter()
        .any(|stored| stored.type_ == condition::READY && stored.status == "True")
}

/// A status is written at most once in five seconds, and once more as soon as what was done has come to its end.
/// Otherwise, when it may be.
fn may_write(memory: &Memory, now: Timestamp, is_at_its_end: bool) -> Result<(), Timestamp> {
    let next = memory.status_written.map(|written| written + STATUS_EVERY);
    match next {
        Some(next) if now < next && !(is_at_its_end && memory.has_news) => Err(next),
        _ => Ok(()),
    }
}

/// Applies a status. Returns false if it must be tried again.
async fn write_status(context: &Context, set: &Set, new: &PodSetStatus) -> bool {
    let request = serde_json::to_value(new)
        .map_err(|error| error.to_string())
        .and_then(|new| requests::apply_status::<PodSet>(&set.key, &set.uid, &new).map_err(|error| error.to_string()));
    let answer = match request {
        Ok(request) => context.clients.write.send(request).await,
        Err(error) => Answer::Unknown(error),
    };
    match answer {
        Answer::Done(body) => {
            if let Ok(wire) = serde_json::from_slice::<SetWire>(&body) {
                let mut effects = Effects::default();
                let mut caches = context.observed.lock();
                caches.sets.upsert(wire.into(), &mut effects);
                caches.settle(&effects, context.env.now());
                for key in effects.wake {
                    context.queue.add(key, "spec");
                }
            }
            true
        }
        // The set is gone, or another one has its name: its watch says so too.
        Answer::Refused(refused) if matches!(refused.code, 404 | 409) => true,
        Answer::Refused(refused) => {
            warn!(set = %set.key, error = refused.message, "the status cannot be written");
            false
        }
        Answer::Unknown(error) => {
            warn!(set = %set.key, error, "the status may not have been written");
            false
        }
        Answer::NotSent => true,
    }
}

/// Creates events. One that is lost is lost: an event must never hold up the pods.
async fn tell(context: &Context, set: &Set, events: &[Event]) {
    for event in events {
        // 52 random bits are all that a fraction of one holds, and enough.
        let unique = (context.env.random.unit() * 2_f64.powi(52)) as u64;
        let wall = context.env.clock.wall();
        let manifest = events::manifest(event, set, wall, unique, &context.instance);
        let Ok(request) = requests::create::<EventResource>(&set.key.namespace, &manifest) else {
            continue;
        };
        match context.clients.write.send(request).await {
            Answer::Done(_) | Answer::NotSent => {}
            answer => debug!(set = %set.key, reason = event.reason, ?answer, "an event was not written"),
        }
    }
}
