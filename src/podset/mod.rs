//! The PodSet controller: keeps N identical pods, and never more than N.
//!
//! [`pass`] reconciles one set. It is a pipeline:
//!
//! 1. [`observe`]: the caches of sets and pods.
//! 2. [`plan`]: what should happen. Pure.
//! 3. [`act`]: creates and deletes pods. Nothing else does.
//! 4. [`report`]: writes the status and the events, from what was done.
//!
//! Where to find what:
//!
//! - **N is enforced** in [`count::Count::missing`]: every pod that may live counts (`count` in [`plan`]). [`promise`] states the promise and
//!   lists its rules.
//! - **Leadership is checked** in [`leadership::Leadership::begin_write`] (`crates/leadership/src/write.rs`), for each request, and again just
//!   before its bytes leave (`gate.rs`). Nothing in this folder checks it.
//! - **A new leader reads first**: [`takeover`] lists a namespace before the first write there.
//! - **A set is read before creates** if it may be gone: [`plan::Plan::creates_in_doubt`].
//! - **A status is updated** in [`report::write_if_due`]: [`status`] makes its content, and [`operator_kit::pace`] says when it is written.
//!   Before that, `report_can_wait` in [`pass`] can delay it while the operator works on pods of other sets.
//! - **Pods that keep finishing** are replaced with backoff: [`restart_backoff`].
//! - **The state of a set** between two passes: [`set_state`].

pub mod act;
mod busy;
mod compact_time;
mod conditions;
mod context;
mod count;
mod events;
pub mod fleet_metrics;
pub mod names;
pub mod observe;
pub mod others;
mod pass;
pub mod plan;
mod pod;
pub mod promise;
mod ranking;
mod recorder;
mod rejected_writes;
pub mod rejection;
mod report;
pub mod restart_backoff;
mod revision;
mod set_state;
pub mod status;
mod takeover;
#[cfg(test)]
mod testing;
mod trace_link;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};

pub use self::{context::Parts, set_state::SetState};
use crate::api::condition;
use context::{Context, NAME};
use fleet_metrics::FleetMetrics;
use observe::{Pod, Set};
use operator_kit::{
    ObjectKey,
    listwatch::{self, Change, Scope, synced::Synced},
    lock,
    queue::{Queue, Trigger},
    runner::{self, Controller, Next},
};
use pass::Pass;
use takeover::TakeOver;

/// The controller of PodSets.
pub struct PodSetController {
    context: Context,
    synced: Synced,
    take_over: TakeOver,
}

impl PodSetController {
    /// A controller that has seen nothing yet. Its metrics are registered.
    pub fn new(shared: &runner::Context, parts: Parts) -> Self {
        let (context, synced) = (Context::new(shared, parts), Synced::default());
        let runner::Context { env, leadership, metrics, .. } = shared;
        let observed = context.observed.clone();
        FleetMetrics::new(observed, env.clone(), synced.subscribe(), leadership.clone()).register(metrics);
        PodSetController { context, synced, take_over: TakeOver::default() }
    }

    fn set_changed(&self, scope: &Scope, change: Change<Set>) {
        self.context.change_sets(|cache| cache.apply(scope, change));
    }

    fn pod_changed(&self, scope: &Scope, change: Change<Pod>) {
        let now = self.context.env.now();
        self.context.change_pods(None, |caches| caches.apply_pods(scope, change, now));
    }
}

impl Controller for PodSetController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let mut background = Vec::new();
        let Context { clients, env, .. } = &self.context;
        for scope in &self.context.scopes {
            let sets = self.context.set_source(scope);
            let (controller, watched, listing) = (self.clone(), scope.clone(), self.synced.register(sets.what, scope));
            let sink = move |change| controller.set_changed(&watched, change);
            background.push(listwatch::run(clients.read.clone(), sets, env.clone(), listing, sink).boxed());

            let pods = self.context.pod_source(scope);
            let (controller, watched, listing) = (self.clone(), scope.clone(), self.synced.register(pods.what, scope));
            let sink = move |change| controller.pod_changed(&watched, change);
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
        lock(&self.context.observed).sets.keys()
    }

    fn begin_term(&self) {
        lock(&self.context.observed).pods.begin_term();
        self.take_over.begin();
    }

    async fn finish(&self) {
        // The next leader writes the statuses that wait, but cannot know about the work behind them.
        for key in &self.keys() {
            let Some(set) = lock(&self.context.observed).sets.get(key) else { continue };
            let events =
                lock(&self.context.states).get_mut(&set.uid).map(|state| report::work_events(&mut state.reports));
            self.context.recorder.record(&set, events.unwrap_or_default());
        }
        self.context.recorder.flush().await;
    }

    async fn reconcile(&self, key: &ObjectKey, _: Trigger) -> Next {
        let Some(set) = lock(&self.context.observed).sets.get(key) else { return Next::Never };
        let mut state = lock(&self.context.states).remove(&set.uid).unwrap_or_default();
        state.trace_link.begin(set.generation);
        let pass = Pass { context: &self.context, take_over: &self.take_over, key, uid: &set.uid };
        let next = pass.run(&mut state).await.unwrap_or_else(|next| next);
        let Some(after) = lock(&self.context.observed).sets.get(key).filter(|after| after.uid == set.uid) else {
            return next;
        };
        if conditions::holds(&after.status, condition::READY) {
            state.trace_link.answered(after.status.observed_generation.unwrap_or_default());
        }
        lock(&self.context.states).insert(set.uid.clone(), state);
        next
    }
}
