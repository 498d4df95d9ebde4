//! What every controller shares: how it runs, what wakes it, when it may work.
//!
//! A further controller is one folder that implements [`Controller`] and one line in [`crate::manager::replica`].

pub mod compact_time;
pub mod failures;
pub mod interner;
pub mod meta;
pub mod mycustomresource;
pub mod pace;
pub mod podset;
pub mod queue;
pub mod requests;
pub mod statuses;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use jiff::{SignedDuration, Timestamp};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, field::Empty, info, info_span, warn};

use crate::{
    env::Env,
    health::{Health, Pulse},
    leader::{Leadership, Term},
    listwatch::{Scope, synced::Synced},
    telemetry::{
        metrics::{ControllerMetrics, Metrics, Outcome},
        spans::{self, Place},
    },
};
use queue::{Queue, Trigger};

/// How often an object is looked at although nothing happened, from the cache alone.
const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// How long the reconciles under way, and what they have left to the background, may take to end when the process shall end.
const DRAIN: Duration = Duration::from_secs(20);

/// A worker whose loop has not turned for so long is stuck: a turn takes no time.
const WORKER_LIMIT: SignedDuration = SignedDuration::from_secs(60);

/// Namespace and name of an object.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether an object of this name lies in the scope.
pub fn in_scope(scope: &Scope, key: &ObjectKey) -> bool {
    scope.as_ref().is_none_or(|namespace| *namespace == key.namespace)
}

/// What a controller brings; [`run`] does the rest.
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// What runs beside the reconciles for as long as the process: above all the watches that feed its caches.
    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>>;

    /// Becomes true once every cache holds a first complete list.
    fn synced(&self) -> &Synced;

    /// The queue in which its watches put what shall be reconciled, after they have made it known to [`Controller::keys`]: it is
    /// opened when a term begins, and takes nothing before.
    fn queue(&self) -> &Queue;

    /// The objects that are known.
    fn keys(&self) -> Vec<ObjectKey>;

    /// A term of leadership begins: what was learnt without leading, or in a former term, may be wrong by now. No reconcile is
    /// under way.
    fn begin_term(&self) {}

    /// Reads, beside the work of a term, what the watches may have missed. It is dropped when the term ends.
    fn catch_up(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Waits until all is done, or given up, that reconciles have left to the background. No reconcile is under way. Writes that have
    /// begun must be waited for: while one may still take effect, the Lease is not given back.
    fn finish(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Brings one object closer to its spec.
    fn reconcile(&self, key: &ObjectKey, trigger: Trigger) -> impl Future<Output = Next> + Send;
}

/// When to look at an object again although nothing happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Not before long: the object is at rest.
    Resync,
    /// At this time.
    At(Timestamp),
    /// At this time, because something failed.
    Retry(Timestamp),
    /// Never: the object is gone.
    Never,
}

impl Next {
    /// How a reconcile that ended at `now` with this is counted.
    fn outcome(self, now: Timestamp) -> Outcome {
        match self {
            Next::Resync | Next::Never => Outcome::Success,
            Next::At(when) if when <= now => Outcome::Requeue,
            Next::At(_) => Outcome::RequeueAfter,
            Next::Retry(_) => Outcome::Error,
        }
    }
}

/// What every controller of a process works with.
#[derive(Clone, Debug)]
pub struct Context {
    /// Time and chance.
    pub env: Env,
    /// Whether the process may write.
    pub leadership: Leadership,
    /// Where is counted and measured what happens.
    pub metrics: Metrics,
    /// Where controllers say whether they are ready and turn.
    pub health: Health,
    /// How many objects a controller reconciles at once.
    pub at_once: usize,
    /// Ends all controllers.
    pub stop: CancellationToken,
}

/// Runs a controller until `stop`: its background always, its reconciles while this process leads. Its checks of health are
/// there when this returns; the future that it returns is done when no reconcile is under way any more, nor what they have left.
///
/// # Panics
///
/// The future panics when a reconcile or something in the background panics: half a controller must not go on.
pub fn run<C: Controller>(controller: Arc<C>, around: Context) -> impl Future<Output = ()> + Send {
    let name = controller.name();
    let synced = controller.synced().clone();
    around.health.ready_when(format!("{name}-caches"), move || synced.verdict());
    let pulse = Pulse::new(&around.health, format!("{name}-worker"), WORKER_LIMIT);
    let metrics = around.metrics.controller(name);
    metrics.set_max_concurrent(around.at_once);
    let worker = Worker { controller, around, pulse, metrics };
    async move {
        let mut background: JoinSet<()> = worker.controller.clone().background().into_iter().collect();
        tokio::select! {
            biased;
            () = worker.run() => {}
            () = first_panic(&mut background) => {}
        }
    }
}

/// Waits for a task that never ends, unless it panics.
async fn first_panic(tasks: &mut JoinSet<()>) {
    while let Some(end) = tasks.join_next().await {
        pass_on_panic(end);
    }
    std::future::pending().await
}

fn pass_on_panic(end: Result<(), JoinError>) {
    if let Some(panic) = end.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

/// What takes keys from the queue and reconciles them.
struct Worker<C> {
    controller: Arc<C>,
    around: Context,
    pulse: Pulse,
    metrics: ControllerMetrics,
}

impl<C: Controller> Worker<C> {
    async fn run(&self) {
        let Context { leadership, stop, .. } = &self.around;
        let name = self.controller.name();
        let mut synced = self.controller.synced().subscribe();
        let until_synced = async {
            tokio::select! {
                biased;
                synced = synced.wait_for(|synced| *synced) => synced.is_ok(),
                () = stop.cancelled() => false,
            }
        };
        if !self.pulse.during(until_synced).await {
            return;
        }
        info!(controller = name, objects = self.controller.keys().len(), "the caches are synced");
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                term = self.pulse.during(leadership.begun()) => self.serve(term).await,
            }
        }
    }

    /// Works for one term, and ends what it began.
    async fn serve(&self, term: Term) {
        self.controller.begin_term();
        // First opened, then listed: what a watch brings in between is queued, or known by then.
        self.controller.queue().open(self.around.at_once);
        for key in self.controller.keys() {
            self.controller.queue().add(key, queue::TERM);
        }
        let mut running = JoinSet::new();
        tokio::select! {
            biased;
            // Only the work ends a term.
            () = self.controller.catch_up().then(|()| std::future::pending()) => {}
            () = self.work(term, &mut running) => {}
        }
        // What is under way when a term ends without the process goes on to its end: every write of it is refused, for a process
        // leads once, and what it learnt is kept.
        let overtime = async {
            self.around.stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        let ending = async {
            drain(&mut running).await;
            self.controller.finish().await;
        };
        tokio::select! {
            biased;
            () = self.pulse.during(ending) => return,
            () = overtime => {}
        }
        warn!(
            controller = self.controller.name(),
            reconciles = running.len(),
            "gave up waiting for what is under way to end"
        );
    }

    async fn work(&self, term: Term, running: &mut JoinSet<()>) {
        let Context { env, leadership, stop, .. } = &self.around;
        loop {
            self.pulse.beat();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = leadership.ended(term.number) => return,
                Some(end) = running.join_next() => pass_on_panic(end),
                (key, trigger) = self.controller.queue().next() => {
                    let (controller, metrics) = (self.controller.clone(), self.metrics.clone());
                    running.spawn(reconcile(controller, env.clone(), metrics, key, trigger));
                }
                () = self.pulse.rest() => {}
            }
        }
    }
}

/// The span of one reconcile of an object. A resync gets none: nothing has happened, and at rest nothing is recorded.
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

async fn reconcile<C: Controller>(
    controller: Arc<C>,
    env: Env,
    metrics: ControllerMetrics,
    key: ObjectKey,
    trigger: Trigger,
) {
    let span = span(controller.name(), &key, trigger);
    let reconciling = metrics.reconciling();
    let (next, now, outcome) = async {
        debug!(controller = controller.name(), object = %key, trigger, "reconciling");
        let next = controller.reconcile(&key, trigger).await;
        let now = env.now();
        let outcome = next.outcome(now);
        spans::note("outcome", outcome.label());
        if outcome == Outcome::Error {
            // A reason that is known already stays.
            spans::failed("");
        }
        (next, now, outcome)
    }
    .instrument(span.clone())
    .await;
    reconciling.ended(outcome, Place::of(&span));
    let resync = now + env.jittered(RESYNC, 0.2);
    let queue = controller.queue();
    match next {
        Next::Resync => queue.rest(&key, resync),
        Next::Never => queue.done(&key, None),
        Next::At(when) if outcome == Outcome::Requeue => queue.done(&key, Some(when)),
        Next::At(when) => queue.later(&key, when.min(resync)),
        Next::Retry(when) => queue.retry(&key, when.min(resync)),
    }
}

async fn drain(running: &mut JoinSet<()>) {
    while let Some(end) = running.join_next().await {
        pass_on_panic(end);
    }
}

#[cfg(test)]
mod tests;
