//! The PodSet controller: keeps N identical pods, and never more than N.
//!
//! The folder is the pipeline, in the order in which data flows: [`observe`] (what is) → [`plan`] (what should happen,
//! pure) → [`act`] (the only writes of pods) → [`report`] (status and events, from what was done; [`recorder`] tells the events). Beside it the rules:
//! [`pod`], [`names`], [`ranking`], [`restart_backoff`], [`rejection`], [`status`], [`events`]; what is remembered between two
//! passes, [`state`] and, of rejected deletes, [`rejected`]; whether another installation writes as well, [`others`]; what a term begins
//! with, [`takeover`]; what is read before pods are created, [`read_first`]; what traces tell, [`trace_link`]; what the metrics show of all
//! sets, [`fleet_metrics`]; and the promise with the rules behind it, [`promise`].

pub mod act;
mod context;
pub mod events;
pub mod fleet_metrics;
pub mod names;
pub mod observe;
pub mod others;
pub mod pace;
pub mod plan;
pub mod pod;
pub mod promise;
pub mod ranking;
mod read_first;
pub mod recorder;
pub mod rejected_deletes;
pub mod rejection;
pub mod report;
pub mod restart_backoff;
pub mod set_state;
pub mod status;
pub mod stored;
pub mod takeover;
#[cfg(test)]
mod testing;
pub mod trace_link;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use tracing::{field, record_all};

pub use self::context::Parts;
use super::{
    Controller, Next, ObjectKey,
    failures::Failures,
    meta::Uid,
    queue::{Queue, Trigger},
};
use crate::{
    listwatch::{self, Change, Scope, synced::Synced},
    telemetry::spans,
};
use context::{Context, NAME};
use fleet_metrics::FleetMetrics;
use names::NamesIn;
use observe::{Pod, Set, View};
use plan::{Count, Hold, Input, Plan, soonest};
use read_first::Ready;
use set_state::SetState;
use takeover::TakeOver;

/// The controller.
pub struct PodSetController {
    context: Context,
    synced: Synced,
    take_over: TakeOver,
}

impl PodSetController {
    /// A controller that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        let synced = Synced::new(parts.scopes.len() * 2);
        let context = Context::new(parts);
        PodSetController { context, synced, take_over: TakeOver::default() }
    }

    /// Counts the sets that this controller knows.
    pub fn figures(&self) -> FleetMetrics {
        FleetMetrics::new(self.context.observed.clone(), self.context.env.clone())
    }

    fn set_changed(&self, scope: &Scope, change: Change<Set>) {
        self.context.change_sets(|cache, effects| *effects = cache.apply(scope, change));
    }

    fn pod_changed(&self, scope: &Scope, change: Change<Pod>) {
        let now = self.context.env.now();
        self.context.change_pods(None, |caches| caches.apply_pods(scope, change, now));
    }

    /// As [`Self::plan`], and tells what was decided, if anything was.
    fn decide(&self, key: &ObjectKey, uid: &Uid, state: &mut SetState) -> Option<(View, Plan)> {
        self.plan(key, uid, state).inspect(|(_, plan)| record_plan(plan))
    }

    /// The set of this name and UID and the plan for it, both of one moment; `None`: it is gone.
    fn plan(&self, key: &ObjectKey, uid: &Uid, state: &mut SetState) -> Option<(View, Plan)> {
        let Context { env, rules, observed, .. } = &self.context;
        let now = env.now();
        let quarantine = rules.cache.quarantine;
        state.expire(now, quarantine, rules.may_forget);
        let caches = observed.lock();
        let set = caches.sets.get(key).filter(|set| set.uid == *uid)?;
        let is_unread = self.take_over.is_unread(&self.context, &set);
        let view = View { pods: caches.pods.of(&caches.owner(&set)), set, is_unread };
        state.finishes.note(&view, now);
        let names = NamesIn { pods: &caches.pods, set: &view.set, name: rules.name, now };
        let plan = plan::plan(&Input { view: &view, state, names: &names, quarantine, now });
        Some((view, plan))
    }

    /// Whether anything would be written for the set.
    fn needs_a_write(&self, view: &View, plan: &Plan, state: &SetState) -> bool {
        let new = (self.context.rules.status)(view, plan, state, self.context.env.clock.wall());
        plan.has_writes() || !stored::is_same(&view.set.status, &new)
    }

    /// One pass of the pipeline: observe, plan, act, and report from what was done.
    async fn pass(&self, key: &ObjectKey, uid: &Uid, state: &mut SetState) -> Next {
        let context = &self.context;
        let Some((view, plan)) = self.decide(key, uid, state) else {
            return Next::Never;
        };
        if view.is_unread && self.needs_a_write(&view, &plan, state) {
            // The read queues it again.
            return if self.take_over.wait(key) { Next::Resync } else { Next::At(context.env.now()) };
        }
        let Ready { view, plan, room } = match self.read_before_creates(view, plan, state).await {
            Ok(ready) => ready,
            Err(next) => return next,
        };
        state.read_failures = Failures::default();
        let (view, after, has_failed) = if plan.has_work() {
            let from = plan.count.live;
            let done = act::act(context, &view, plan, state).await;
            let (has_failed, is_rejected) = (done.has_failed, done.rejected_delete.is_some());
            report::learn(context, &view, done, from, state);
            // The template is needed no more.
            drop((view, room));
            match self.plan(key, uid, state) {
                // Other pods go in the place of one that cannot be deleted, before anything is told.
                Some((_, after)) if is_rejected && after.deletes_others(state) => {
                    report::settle(&after, state);
                    return Next::At(context.env.now());
                }
                Some((view, after)) => (view, after, has_failed || is_rejected),
                None => return Next::Never,
            }
        } else {
            (view, plan, false)
        };
        report::settle(&after, state);
        if view.is_unread && self.needs_a_write(&view, &after, state) {
            return Next::At(context.env.now());
        }
        let reported = report::report(context, &view, &after, state).await;
        let act_again = after.has_work().then(|| context.env.now());
        match soonest(soonest(act_again, reported.again), after.wake) {
            None => Next::Resync,
            // That a namespace goes is no failure.
            Some(when) if (has_failed && after.hold != Hold::Forever) || reported.has_failed => Next::Retry(when),
            Some(when) => Next::At(when),
        }
    }
}

impl Controller for PodSetController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let controller = self.clone();
        let mut background = vec![async move { controller.context.recorder.run().await }.boxed()];
        for scope in &self.context.scopes {
            let Context { clients, env, .. } = &self.context;
            let sets = self.context.set_source(scope);
            let (controller, of, listing) = (self.clone(), scope.clone(), self.synced.watch(sets.what, scope));
            let sink = move |change| controller.set_changed(&of, change);
            background.push(listwatch::run(clients.read.clone(), sets, env.clone(), listing, sink).boxed());

            let pods = self.context.pod_source(scope);
            let (controller, of, listing) = (self.clone(), scope.clone(), self.synced.watch(pods.what, scope));
            let sink = move |change| controller.pod_changed(&of, change);
            background.push(listwatch::run(clients.read.clone(), pods, env.clone(), listing, sink).boxed());
        }
        background
    }

    fn synced(&self) -> &Synced {
        &self.synced
    }

    fn queue(&self) -> &Queue {
        &self.context.queue
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.context.observed.lock().sets.keys()
    }

    fn begin_term(&self) {
        self.context.observed.lock().pods.begin_term();
        self.take_over.begin();
    }

    async fn catch_up(&self) {
        self.take_over.catch_up(&self.context).await;
    }

    async fn finish(&self) {
        self.context.recorder.told().await;
    }

    async fn reconcile(&self, key: &ObjectKey, _: Trigger) -> Next {
        let Some(set) = self.context.observed.lock().sets.get(key) else { return Next::Never };
        let uid = set.uid.clone();
        let mut state = self.context.take_state(&uid);
        state.trace_link.begin(set.generation);
        let next = self.pass(key, &uid, &mut state).await;
        let caches = self.context.observed.lock();
        let at_its_end = caches.sets.get(key).filter(|set| report::is_at_its_end(&set.status));
        let is_known = caches.sets.contains(&uid);
        drop(caches);
        if let Some(set) = at_its_end {
            state.trace_link.answered(set.status.observed_generation.unwrap_or_default());
        }
        if is_known {
            self.context.keep_state(uid, state);
        }
        next
    }
}

/// Records the plan in a span of its own, unless it is to do nothing and to wait for nothing: a set whose pods are starting is
/// planned again and again.
fn record_plan(plan: &Plan) {
    let Plan { count: Count { wanted, live, .. }, create, delete, look, probe, relabel, hold, .. } = plan;
    if !plan.has_work() && *hold == Hold::Nothing {
        return;
    }
    let span = spans::plan();
    record_all!(
        span,
        plan.wanted = spans::count(*wanted),
        plan.live = spans::count(*live),
        plan.create = spans::count(create.len()),
        plan.delete = spans::count(delete.len()),
        plan.look = spans::count(look.len() + probe.len()),
        plan.relabel = spans::count(relabel.len()),
    );
    if *hold != Hold::Nothing {
        span.record("plan.hold", field::debug(hold));
    }
}
