//! The PodSet controller: keeps N identical pods, and never more than N.
//!
//! The folder is the pipeline, in the order in which data flows: [`observe`] (what is) → [`plan`] (what should happen,
//! pure) → [`act`] (the only writes of pods) → [`report`] (status and events, from what was done; [`recorder`] tells the events). Beside it the rules:
//! [`pod`], [`names`], [`ranking`], [`restart_backoff`], [`rejection`], [`status`], [`events`]; what is remembered between two
//! passes, [`state`] and, of rejected deletes, [`rejected`]; whether another installation writes as well, [`others`]; what a term begins
//! with, [`takeover`]; what is read before pods are created, [`read_first`]; what traces tell, [`trace_link`]; what the metrics show of all
//! sets, [`fleet_metrics`]; and the promise with the rules behind it, [`promise`].

pub mod act;
pub mod events;
pub mod fleet_metrics;
pub mod names;
pub mod observe;
pub mod others;
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
pub mod takeover;
#[cfg(test)]
mod testing;
pub mod trace_link;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod as PodResource;
use serde_json::Value;

use super::{
    Controller, Next, ObjectKey,
    failures::Failures,
    meta::Uid,
    queue::{self, Queue, Trigger},
    requests,
};
use crate::{
    api::{self, PodSet},
    client::{Clients, FairBudget},
    listwatch::{self, Change, Scope, Source, synced::Synced},
    telemetry::metrics::Metrics,
};
use fleet_metrics::FleetMetrics;
use leadership::env::Env;
use observe::{Caches, Effects, News, Observed, Pod, Pods, Set, Sets, View};
use others::Others;
use plan::{Hold, NamesIn, Plan, soonest};
use promise::Rules;
use read_first::Ready;
use recorder::Recorder;
use set_state::SetState;
use takeover::TakeOver;

/// The controller's name.
const NAME: &str = "podset";

/// What an operator is made of; a test makes its own.
#[derive(Clone)]
pub struct Parts {
    /// Time and chance.
    pub env: Env,
    /// The API server.
    pub clients: Clients,
    /// The rules behind the promise.
    pub rules: Rules,
    /// The namespaces to watch; `[None]` is all of them.
    pub scopes: Vec<Scope>,
    /// The image of the default pod.
    pub default_image: String,
    /// The process, as events name it.
    pub instance: String,
    /// Where is counted what happens.
    pub metrics: Metrics,
    /// Names the installation in the statuses that it writes: namespace and name of its Lease.
    pub installation: String,
}

/// What every stage of the pipeline can reach.
pub struct Context {
    env: Env,
    clients: Clients,
    rules: Rules,
    scopes: Vec<Scope>,
    default_spec: Value,
    recorder: Recorder,
    others: Others,
    observed: Arc<Observed>,
    queue: Queue,
    /// What is remembered of each set, while nobody works on it.
    states: Mutex<HashMap<Uid, Box<SetState>>>,
    /// For large templates, and the pods that are created from them.
    templates: FairBudget,
}

impl Context {
    /// Changes the cache of pods while working on `set`, and wakes every other set that this concerns.
    fn pods(&self, set: &Set, change: impl FnOnce(&mut Pods)) {
        self.change_pods(Some(&set.key), |caches| change(&mut caches.pods));
    }

    /// Changes the cache of pods, and wakes every set that this concerns, but for the one that is being worked on.
    fn change_pods(&self, working_on: Option<&ObjectKey>, change: impl FnOnce(&mut Caches)) {
        let touched = {
            let mut caches = self.observed.lock();
            change(&mut caches);
            caches.take_touched(working_on)
        };
        for (key, news) in touched {
            match news {
                News::Urgent | News::Appeared => self.queue.add(key, queue::POD),
                News::CanWait => self.queue.add_paced(key, queue::POD),
            }
        }
    }

    /// Takes in a consistent list of the sets of `scope` that no watch brought.
    fn sets_listed(&self, scope: &Scope, sets: Vec<Set>, version: u64) {
        self.sets(|cache, effects| cache.refresh(scope, sets, version, effects));
    }

    /// Takes in a consistent list of all pods of `scope` that no watch brought.
    fn pods_listed(&self, scope: &Scope, pods: Vec<Pod>, version: u64) {
        self.change_pods(None, |caches| caches.pods.verify(scope, pods, version, self.env.now()));
    }

    /// Takes in what a request for this set was answered with; `None`: it is gone.
    fn set_answered(&self, set: &Set, found: Option<Set>) {
        self.sets(|cache, effects| cache.answered(&set.key, &set.uid, found, effects));
    }

    /// Changes the cache of sets, forgets those that are gone, and wakes those that this concerns.
    fn sets(&self, change: impl FnOnce(&mut Sets, &mut Effects)) {
        let mut effects = Effects::default();
        {
            let mut caches = self.observed.lock();
            change(&mut caches.sets, &mut effects);
            caches.settle(&effects, self.env.now());
        }
        for (_, uid) in &effects.gone {
            self.states().remove(uid);
        }
        for writer in effects.writers {
            self.others.has_written(writer);
        }
        for (key, trigger) in effects.wake {
            self.queue.add(key, trigger);
        }
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Uid, Box<SetState>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The controller.
pub struct PodSetController {
    context: Context,
    synced: Synced,
    take_over: TakeOver,
}

impl PodSetController {
    /// A controller that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        let Parts { env, clients, rules, scopes, default_image, instance, metrics, installation } = parts;
        let synced = Synced::new(scopes.len() * 2);
        let (observed, queue) = (Arc::new(Observed::new(rules)), Queue::new(env.clone(), metrics.queue(NAME)));
        let recorder = Recorder::new(env.clone(), clients.write.clone(), instance);
        let others = Others::new(installation, &metrics);
        let states = Mutex::default();
        let default_spec = pod::default_spec(&default_image);
        let templates = FairBudget::default();
        let context =
            Context { env, clients, rules, scopes, default_spec, recorder, others, observed, queue, states, templates };
        PodSetController { context, synced, take_over: TakeOver::default() }
    }

    /// Counts the sets that this controller knows.
    pub fn figures(&self) -> FleetMetrics {
        FleetMetrics::new(self.context.observed.clone(), self.context.env.clone())
    }

    fn set_changed(&self, scope: &Scope, change: Change<Set>) {
        self.context.sets(|cache, effects| *effects = cache.apply(scope, change));
    }

    fn pod_changed(&self, scope: &Scope, change: Change<Pod>) {
        let now = self.context.env.now();
        self.context.change_pods(None, |caches| caches.apply_pods(scope, change, now));
    }

    /// As [`Self::plan`], and tells what was decided, if anything was.
    fn decide(&self, key: &ObjectKey, uid: &Uid, state: &mut SetState) -> Option<(View, Plan)> {
        self.plan(key, uid, state).inspect(|(_, plan)| trace_link::tell_plan(plan))
    }

    /// The set of this name and UID and the plan for it, both of one moment; `None`: it is gone.
    fn plan(&self, key: &ObjectKey, uid: &Uid, state: &mut SetState) -> Option<(View, Plan)> {
        let Context { env, rules, observed, .. } = &self.context;
        let now = env.now();
        state.expire(now, rules);
        let caches = observed.lock();
        let set = caches.sets.get(key).filter(|set| set.uid == *uid)?;
        let is_unread = self.take_over.is_unread(&self.context, &set);
        let view = View { pods: caches.pods.of(&rules.owner(&key.namespace, uid)), set, is_unread };
        state.finishes.note(&view, now);
        let names = NamesIn { pods: &caches.pods, set: key, now };
        let plan = plan::plan(&view, state, &names, rules, now);
        Some((view, plan))
    }

    /// Whether anything would be written for the set.
    fn needs_a_write(&self, view: &View, plan: &Plan, state: &SetState) -> bool {
        let new = (self.context.rules.status)(view, plan, state, self.context.env.clock.wall());
        plan.has_writes() || !status::is_same(&view.set.status, &new)
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
            let Context { clients, env, rules, .. } = &self.context;
            let sets = set_source(scope, rules);
            let (controller, of, listing) = (self.clone(), scope.clone(), self.synced.watch(sets.what, scope));
            let sink = move |change| controller.set_changed(&of, change);
            background.push(listwatch::run(clients.read.clone(), sets, env.clone(), listing, sink).boxed());

            let pods = pod_source(scope, rules);
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
        let mut state = self.context.states().remove(&uid).unwrap_or_default();
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
            self.context.states().insert(uid, state);
        }
        next
    }
}

/// The watch of PodSets.
fn set_source(scope: &Scope, rules: &Rules) -> Source {
    let path = requests::collection::<PodSet>(scope);
    let what = "podsets.app.example.com";
    Source { what, path, labels: None, metadata_only: false, is_stale: rules.is_stale }
}

/// The watch of the operator's own pods.
fn pod_source(scope: &Scope, rules: &Rules) -> Source {
    let path = requests::collection::<PodResource>(scope);
    let labels = Some(api::WATCHED_PODS);
    Source { what: "pods", path, labels, metadata_only: false, is_stale: rules.is_stale }
}
