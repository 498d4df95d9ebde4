//! Runs a controller: its watches always, its reconciles while this process leads.

use std::{future::Future, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use jiff::{SignedDuration, Timestamp};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, field::Empty, info, info_span, warn};

use super::{
    object_key::ObjectKey,
    queue::{self, Queue, Trigger},
};
use crate::{
    health::{Health, Pulse},
    listwatch::synced::Synced,
    telemetry::{
        metrics::{ControllerMetrics, Metrics, Outcome},
        spans::{self, SpanRef},
    },
};
use leadership::{Leadership, Term, env::Env};

/// The resync period: an object is reconciled about this often even if nothing happens. A resync lists nothing again.
const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// How long running reconciles, and their work in the background, may take to finish when the process ends.
const DRAIN: Duration = Duration::from_secs(20);

/// A worker counts as stuck when it has not been polled for this time. A poll itself takes almost no time.
const WORKER_LIMIT: SignedDuration = SignedDuration::from_secs(60);

/// A controller; [`run`] runs it.
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Tasks that run as long as the process, above all the watches that feed its caches.
    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>>;

    /// Which watches have listed. An object is reconciled only once all watches of its scope have.
    fn synced(&self) -> &Synced;

    /// Its queue, which opens when a term begins. A watch must add a key only after [`Controller::keys`] returns it.
    fn queue(&self) -> &Queue;

    /// The known objects.
    fn keys(&self) -> Vec<ObjectKey>;

    /// A term of leadership begins: forget outdated state. No reconcile is running.
    fn begin_term(&self) {}

    /// Ends what reconciles began, and waits for their background work. No reconcile is running. It must wait for writes in flight, because
    /// the Lease is not released while one may still take effect.
    fn finish(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Brings one object closer to its spec.
    fn reconcile(&self, key: &ObjectKey, trigger: Trigger) -> impl Future<Output = Next> + Send;
}

/// When to reconcile an object again if nothing happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// At the next resync: nothing is left to do.
    Resync,
    /// At this time.
    At(Timestamp),
    /// At this time, or when [`Queue::add_reports`] is called, because the report waits. Other objects of the namespace come later.
    Report(Timestamp),
    /// At this time, because something failed.
    Retry(Timestamp),
    /// Never: the object is gone, or the process ends.
    Never,
}

impl Next {
    /// The outcome of a reconcile that returned this at `now`, and when and why the object is queued again.
    fn outcome(self, now: Timestamp, resync: Timestamp) -> (Outcome, Option<(Timestamp, Trigger)>) {
        match self {
            Next::Resync => (Outcome::SUCCESS, Some((resync, queue::RESYNC))),
            Next::At(when) if when <= now => (Outcome::REQUEUE, Some((when, queue::ALARM))),
            Next::At(when) => (Outcome::REQUEUE_AFTER, Some((when.min(resync), queue::ALARM))),
            Next::Report(when) => (Outcome::REQUEUE_AFTER, Some((when, queue::REPORT))),
            Next::Retry(when) => (Outcome::ERROR, Some((when.min(resync), queue::RETRY))),
            Next::Never => (Outcome::SUCCESS, None),
        }
    }
}

/// What the controllers of a process share.
#[derive(Clone)]
pub struct Context {
    /// Time and randomness.
    pub env: Env,
    /// Whether the process may write.
    pub leadership: Leadership,
    /// The metrics.
    pub metrics: Metrics,
    /// The health checks, to which each controller adds its own.
    pub health: Health,
    /// The most objects that each controller reconciles at once.
    pub max_concurrent: usize,
    /// Ends all controllers when it is cancelled.
    pub stop: CancellationToken,
}

/// Runs a controller until `stop`: its background always, its reconciles while this process leads. It registers the health checks before it
/// returns. The returned future ends when the reconciles, and the work that they began in the background, have ended: at most 20 s after
/// `stop`. Then the watches end, too.
///
/// # Panics
///
/// The future panics when a reconcile or a background task panics, because half a controller must not go on.
pub fn run<C: Controller>(controller: Arc<C>, context: Context) -> impl Future<Output = ()> + Send {
    let name = controller.name();
    let synced = controller.synced().clone();
    context.health.ready_when(format!("{name}-caches"), move || synced.verdict());
    let pulse = Pulse::new(&context.health, format!("{name}-worker"), WORKER_LIMIT);
    let metrics = context.metrics.controller(name);
    metrics.set_max_concurrent(context.max_concurrent);
    let worker = Arc::new(Worker { controller, context, metrics });
    async move {
        let mut background: JoinSet<()> = worker.controller.clone().background().into_iter().collect();
        tokio::select! {
            biased;
            () = pulse.during(worker.run()) => {}
            // If a background task panics, the controller ends. If it just ends, the controller goes on.
            () = drain(&mut background).then(|()| std::future::pending()) => {}
        }
    }
}

/// Waits until all tasks have ended.
///
/// # Panics
///
/// If one of the tasks panics.
pub async fn drain(running: &mut JoinSet<()>) {
    while let Some(end) = running.join_next().await {
        pass_on_panic(end);
    }
}

/// Goes on with the panic of a task that has ended, if there was one.
///
/// # Panics
///
/// If the task panicked.
pub fn pass_on_panic(end: Result<(), JoinError>) {
    if let Err(Ok(panic)) = end.map_err(JoinError::try_into_panic) {
        std::panic::resume_unwind(panic);
    }
}

/// Takes keys from the queue and reconciles them.
struct Worker<C> {
    controller: Arc<C>,
    context: Context,
    metrics: ControllerMetrics,
}

impl<C: Controller> Worker<C> {
    async fn run(self: &Arc<Self>) {
        let Context { leadership, stop, .. } = &self.context;
        let mut synced = self.controller.synced().subscribe();
        if stop.run_until_cancelled(synced.wait_for(|synced| *synced)).await.is_none() {
            return;
        }
        info!(controller = self.controller.name(), objects = self.controller.keys().len(), "the caches are synced");
        // A process leads for one term at most. After it, this waits for `stop`.
        while let Some(term) = stop.run_until_cancelled(leadership.elected()).await {
            self.serve(term).await;
        }
    }

    /// Works for one term, and then finishes the work that has begun.
    async fn serve(self: &Arc<Self>, term: Term) {
        self.controller.begin_term();
        // Open before `work` lists the keys, so that an object that a watch adds in between is not lost.
        self.controller.queue().open(self.context.max_concurrent);
        let mut running = JoinSet::new();
        self.work(term, &mut running).await;
        // If only the term ends, not the process, running reconciles have no time limit, so that what they have learned is kept. The writer
        // rejects all their writes, because a process leads only once.
        let overtime = async {
            self.context.stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        let ending = async {
            drain(&mut running).await;
            self.controller.finish().await;
        };
        tokio::select! {
            biased;
            () = ending => return,
            () = overtime => {}
        }
        warn!(
            controller = self.controller.name(),
            reconciles = running.len(),
            "gave up waiting for running reconciles"
        );
    }

    async fn work(self: &Arc<Self>, term: Term, running: &mut JoinSet<()>) {
        let Context { leadership, stop, .. } = &self.context;
        let (queue, synced) = (self.controller.queue(), self.controller.synced());
        let mut listed = synced.subscribe();
        // All known keys are queued at first, and when a further scope has listed.
        listed.mark_changed();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = leadership.lost(term) => return,
                Some(end) = running.join_next() => pass_on_panic(end),
                Ok(()) = listed.changed() => {
                    for key in self.controller.keys() {
                        queue.add(key, queue::TERM);
                    }
                }
                (key, trigger) = queue.next() => {
                    if !synced.covers(&key) {
                        // The key is queued again when its scope has listed completely.
                        queue.done(&key, None);
                        continue;
                    }
                    running.spawn(self.clone().reconcile(key, trigger));
                }
            }
        }
    }

    async fn reconcile(self: Arc<Self>, key: ObjectKey, trigger: Trigger) {
        let Worker { controller, context: Context { env, .. }, metrics } = &*self;
        let span = span(controller.name(), &key, trigger);
        let reconciling = metrics.reconciling();
        let next = async {
            debug!(controller = controller.name(), object = %key, trigger, "reconciling");
            controller.reconcile(&key, trigger).await
        };
        let next = next.instrument(span.clone()).await;
        let now = env.now();
        let (outcome, wake) = next.outcome(now, now + env.jittered(RESYNC, 0.2));
        span.in_scope(|| {
            spans::record("outcome", outcome.0);
            if outcome == Outcome::ERROR {
                // The SDK keeps the status that sorts last, so an empty description does not replace an earlier one.
                spans::failed("");
            }
        });
        reconciling.ended(outcome, SpanRef::new(&span));
        controller.queue().done(&key, wake);
    }
}

/// The span of one reconcile. A resync has none, because nothing has happened.
fn span(controller: &'static str, key: &ObjectKey, trigger: Trigger) -> Span {
    if trigger == queue::RESYNC {
        return Span::none();
    }
    info_span!(
        target: spans::TARGET,
        "reconcile",
        otel.name = %format_args!("{controller} reconcile"),
        controller,
        trigger,
        object.namespace = &*key.namespace,
        object.name = &*key.name,
        object.generation = Empty,
        outcome = Empty,
        pods.created = Empty,
        pods.deleted = Empty,
    )
}

#[cfg(test)]
mod tests;
