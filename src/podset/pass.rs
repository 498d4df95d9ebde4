//! One pass of the pipeline over one set: observe, plan, read missing data, act, plan again, report.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tracing::{Span, field, info_span, warn};

use super::{
    act, conditions,
    context::Context,
    count::Count,
    names::Names,
    observe::{Set, View, Whole},
    plan::{self, Hold, Input, Plan, soonest},
    report,
    set_state::SetState,
    takeover::{READ_RETRY, TakeOver},
};
use crate::api::{PodSet, PodSetStatus};
use operator_kit::{
    ObjectKey, budget, failures::Failures, fair::Permit, lock, meta::Uid, runner::Next, telemetry::spans,
};

/// How long a set without memory for its template waits before the next try.
const ROOM_RETRY: SignedDuration = SignedDuration::from_millis(500);

/// The longest delay of a report while the set has more to try, or while the operator works on pods of other sets in the namespace.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(4);

/// One pass over one set.
pub struct Pass<'a> {
    /// What every stage can reach.
    pub context: &'a Context,
    /// Which namespaces were read in this term.
    pub take_over: &'a TakeOver,
    /// The set's namespace and name.
    pub key: &'a ObjectKey,
    /// The set's UID. A set that was recreated under the name has another one.
    pub uid: &'a Uid,
}

/// What must be read before a plan is carried out.
enum Needed {
    /// The sets and pods of the namespace: it was not read in this term, or the cache may have forgotten pods since.
    Namespace,
    /// The set: it may be gone, or its template is not in the cache. The number of bytes to reserve for the template and its pods.
    Set(usize),
}

/// The set, as it was read in this pass, and the memory that is reserved for its template and the pods created from it.
struct ReadSet {
    set: Option<Set>,
    room: Option<Permit>,
    bytes: usize,
}

/// A plan that can be carried out, and the memory that is reserved until its pods are created.
type Executable = (View, Plan, Option<Permit>);

impl Pass<'_> {
    /// Brings the set closer to its spec. Returns when to look at it again; as an error, if the pass ended early.
    pub async fn run(&self, state: &mut SetState) -> Result<Next, Next> {
        let (view, plan, room) = self.plan_and_read(state).await?;
        state.retry.read_failures = Failures::default();
        let (view, after, has_failed) = match plan.has_work() {
            true => self.act((view, plan, room), state).await?,
            false => (view, plan, false),
        };
        report::settle(&after, state);
        report::end_burst(&after, state);
        let new = self.status(&view, &after, state);
        if !has_failed && let Some(until) = self.report_can_wait(&view, &after, &new, state) {
            state.reports.pace.outdated(self.context.env.now());
            // The plan may need another look before that.
            return Ok(Next::Report(after.wake.map_or(until, |wake| wake.min(until))));
        }
        let reported = report::write_if_due(self.context, &view, &after, new, state).await;
        let act_again = after.has_work().then(|| self.context.env.now());
        let is_reported = reported.is_ok();
        Ok(match soonest([act_again, reported.unwrap_or_else(Some), after.wake]) {
            None => Next::Resync,
            // If no pod can be created, for example because the namespace is being deleted, the pass does not count as failed.
            Some(when) if (has_failed && after.hold != Hold::Blocked) || !is_reported => Next::Retry(when),
            Some(when) => Next::At(when),
        })
    }

    /// Plans, and reads what must be known before the plan is carried out.
    async fn plan_and_read(&self, state: &mut SetState) -> Result<Executable, Next> {
        let mut known = None;
        loop {
            let (view, plan) = self.plan(state)?;
            record_plan(&plan);
            match self.must_read_first(&view, &plan, state, known.as_ref()) {
                None => return Ok(executable(view, plan, known)),
                Some(Needed::Namespace) => self.take_over.read(self.context, &view.set, state.read_after).await?,
                // The set changed while it was read. End the pass, so that other sets can use the memory for templates.
                Some(Needed::Set(_)) if known.is_some() => return Err(Next::At(self.context.env.now())),
                Some(Needed::Set(bytes)) => {
                    let needs_room = bytes > budget::SMALL;
                    let room = needs_room.then(|| self.context.templates.try_acquire(&self.key.namespace, bytes));
                    if matches!(room, Some(None)) {
                        return self.without_room(view, plan, state).await;
                    }
                    known = Some(ReadSet { set: self.read_set(&view, state).await?, room: room.flatten(), bytes });
                }
            }
        }
    }

    /// The set and the plan for it, both of one moment. An error if the set is gone.
    fn plan(&self, state: &mut SetState) -> Result<(View, Plan), Next> {
        let Context { env, rules, observed, .. } = self.context;
        let now = env.now();
        let caches = lock(observed);
        let set = caches.sets.get(self.key).filter(|set| set.uid == *self.uid).ok_or(Next::Never)?;
        // Before the set waited for terminations, the cache may have forgotten pods that are being deleted.
        if state.begins_to_wait(&set) {
            state.read_after = self.take_over.last_begun(&set);
        }
        let is_unread = rules.reads_first && self.take_over.is_unread(&set, state.read_after);
        let view = View { pods: caches.pods.of(&caches.owner(&set)), set, is_unread };
        if !view.is_unread && !view.set.is_revision_reported() {
            state.preparation.unreported = view.set.revision();
        }
        let is_known = |uid: &Uid| view.pods.iter().any(|seen| seen.pod.uid == *uid);
        state.fates.expire(now, rules.forgets_unknown, is_known);
        state.retry.finishes.update(&view, now);
        let key = |name: &str| self.key.sibling(name);
        let names = Names {
            nth: &|index| (rules.name)(&self.key.name, self.uid, index),
            is_known: &|name| caches.pods.is_known(&key(name), now),
            is_resting: &|name| caches.pods.is_resting(&key(name), now),
        };
        let plan = plan::plan(&Input {
            view: &view,
            state,
            names,
            counts_terminating: rules.counts_terminating,
            rollout: rules.rollout,
            now,
        });
        state.progress = plan.progress.map(Box::new);
        Ok((view, plan))
    }

    /// What must be read before the plan is carried out. An unread namespace is read before any write, also before a status is written.
    fn must_read_first(&self, view: &View, plan: &Plan, state: &SetState, known: Option<&ReadSet>) -> Option<Needed> {
        let is_reported = || conditions::is_same(&view.set.status, &self.status(view, plan, state));
        if view.is_unread && (plan.has_work() || !is_reported()) {
            return Some(Needed::Namespace);
        }
        let bytes = act::bytes_to_read(&view.set, plan);
        let is_known = match known {
            Some(ReadSet { set: read, bytes: reserved, .. }) => {
                let is_current = |read: &Set| read.uid == view.set.uid && read.generation == view.set.generation;
                bytes.is_none_or(|bytes| read.as_ref().is_some_and(is_current) && bytes <= *reserved)
            }
            // The watch of pods may be ahead of the watch of sets: pods may be gone because their set was deleted.
            None => bytes.is_none() && !plan.creates_in_doubt(&view.set, state),
        };
        (!is_known).then_some(Needed::Set(bytes.unwrap_or_default()))
    }

    /// Reads the set with its template, consistently, and updates the cache; `None`: the set is gone.
    async fn read_set(&self, view: &View, state: &mut SetState) -> Result<Option<Set>, Next> {
        let _guard = self.context.busy.begin_work(&self.context.queue, &self.key.namespace);
        match self.context.clients.read.get::<PodSet, Whole>(self.key).await {
            Ok(read) => {
                let read = read.map(|Whole(read)| read);
                self.context.set_answered(&view.set, read.clone().map(Set::trimmed));
                state.met_foreign_pod = false;
                Ok(read)
            }
            Err(error) => {
                let (wait, is_news) = state.retry.read_failures.note(&error, READ_RETRY);
                if is_news {
                    warn!(set = %self.key, error, "cannot read a PodSet before creating its pods; trying again");
                }
                spans::failed(&error);
                let env = &self.context.env;
                Err(Next::Retry(env.now() + env.jittered(wait, 0.1)))
            }
        }
    }

    /// The status that the set should have.
    fn status(&self, view: &View, plan: &Plan, state: &SetState) -> PodSetStatus {
        (self.context.rules.status)(view, plan, state, self.context.env.clock.wall())
    }

    /// The latest time of this report if it can wait because the operator works on pods of other sets in the namespace; `None`: it cannot.
    /// Only the result of finished work can wait: a failure and each stage of a rollout are reported at once. When the namespace has no more
    /// work in flight, the set is queued.
    fn report_can_wait(&self, view: &View, after: &Plan, new: &PodSetStatus, state: &SetState) -> Option<Timestamp> {
        let Context { env, busy, stop, .. } = self.context;
        let is_failing = after.hold != Hold::Nothing
            || !after.rejected.is_empty()
            || !after.overdue.is_empty()
            || state.reports.rejected_create.is_some()
            || state.preparation.failure(&view.set).is_some();
        // The plan and the next leader read the current revision in the status. A rollback does not change it.
        let stored = &view.set.status;
        let is_new_stage = stored.current_revision.is_some() && stored.current_revision != new.current_revision
            || conditions::rollout_reason(stored) != conditions::rollout_reason(new);
        if is_failing || is_new_stage || after.has_work() || stop.is_cancelled() || conditions::is_same(stored, new) {
            return None;
        }
        let until = state.reports.silent_since? + LONGEST_DELAY;
        (env.now() < until && busy.is_busy(&self.key.namespace)).then_some(until)
    }

    /// Handles a set when there is no memory for its template: no pod is created. If nothing else is left to do, reports and ends the pass,
    /// because the worker has other sets to work on.
    async fn without_room(&self, view: View, plan: Plan, state: &mut SetState) -> Result<Executable, Next> {
        let others = Plan { create: Vec::new(), prepare: None, ..plan.clone() };
        if others.has_work() {
            return Ok((view, others, None));
        }
        let env = &self.context.env;
        let new = self.status(&view, &plan, state);
        let reported = report::write_if_due(self.context, &view, &plan, new, state).await.unwrap_or_else(Some);
        let again = env.now() + env.jittered(ROOM_RETRY, 0.5);
        Err(Next::At(reported.map_or(again, |at| at.min(again))))
    }

    /// Carries out the plan and plans again. Returns the set and the plan as they stand then, and whether something failed.
    async fn act(&self, (view, plan, room): Executable, state: &mut SetState) -> Result<(View, Plan, bool), Next> {
        let _guard = self.context.busy.begin_work(&self.context.queue, &self.key.namespace);
        let began = self.context.env.now();
        let done = act::act(self.context, &view, &plan, state).await;
        let (has_failed, is_rejected) = (done.has_failed, done.rejected_delete.is_some());
        report::learn(self.context, &view.set, &plan, done, state);
        // The template is no longer needed.
        drop((view, room));
        let (view, after) = self.plan(state)?;
        let since = *state.reports.silent_since.get_or_insert(began);
        let is_quick = self.context.env.now().duration_since(since) < LONGEST_DELAY;
        // If a delete was rejected, try other pods before reporting.
        let tries_others = is_rejected && after.tries_more_deletes(state);
        // A new leader prepares the template again before it knows whether it is invalid. Until then, the status of this spec stays.
        let prepares_more = after.prepare.is_some() && view.set.is_observed();
        // No status is reported while the namespace must be read: the set may have begun to wait for terminations in the meantime.
        if view.is_unread || ((tries_others || prepares_more) && is_quick) {
            report::settle(&after, state);
            return Err(Next::At(self.context.env.now()));
        }
        Ok((view, after, has_failed || (is_rejected && !tries_others)))
    }
}

/// The plan, with the template that was read if the cache does not keep it.
fn executable(view: View, plan: Plan, known: Option<ReadSet>) -> Executable {
    match known {
        Some(ReadSet { set: Some(read), room, .. }) if act::bytes_to_read(&view.set, &plan).is_some() => {
            let set = Arc::new(Set { wanted: read.wanted, ..Set::clone(&view.set) });
            (View { set, ..view }, plan, room)
        }
        _ => (view, plan, None),
    }
}

/// Records the plan in a span of its own. A plan without work and without a hold gets none, because a set whose pods are starting is
/// planned many times.
fn record_plan(plan: &Plan) {
    let Plan { count: Count { wanted, live, .. }, create, delete, look, relabel, hold, .. } = plan;
    if Span::current().is_none() || (!plan.has_work() && *hold == Hold::Nothing) {
        return;
    }
    drop(info_span!(
        target: spans::TARGET,
        "plan",
        plan.wanted = spans::count(*wanted),
        plan.live = spans::count(*live),
        plan.create = spans::count(create.len()),
        plan.delete = spans::count(delete.len()),
        plan.look = spans::count(look.len()),
        plan.relabel = spans::count(relabel.len()),
        plan.hold = (*hold != Hold::Nothing).then(|| field::debug(hold)),
    ));
}

#[cfg(test)]
mod tests;
