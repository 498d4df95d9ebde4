//! Metrics of controllers and their queues.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    metrics::{
        counter::Counter,
        exemplar::HistogramWithExemplars,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::telemetry::spans::Place;
use leadership::env::Env;

/// Upper bounds of the times of reconciles, in seconds.
const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// All controllers have one queue, in which every key is equally urgent.
const PRIORITY: &str = "0";

/// Labels in the order in which they are shown.
pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];
/// A gauge that need not be whole.
type Decimal = Gauge<f64, AtomicU64>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;
/// Each bucket has the trace of the last reconcile that fell into it, if that was exported.
type ReconcileTimes = HistogramWithExemplars<[(&'static str, String); 1]>;

fn seconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64().max(0.0)
}

fn reconcile_times() -> ReconcileTimes {
    HistogramWithExemplars::new(RECONCILE_SECONDS.into_iter())
}

/// Ten nanoseconds to a thousand seconds.
fn queue_times() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 12))
}

/// The result of a reconcile, as in controller-runtime.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Nothing is left to do.
    Success,
    /// Something failed and is tried again.
    Error,
    /// There is more to do at once.
    Requeue,
    /// There is more to do later.
    RequeueAfter,
}

impl Outcome {
    const ALL: [Outcome; 4] = [Outcome::Success, Outcome::Error, Outcome::Requeue, Outcome::RequeueAfter];

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Error => "error",
            Outcome::Requeue => "requeue",
            Outcome::RequeueAfter => "requeue_after",
        }
    }
}

/// The families of controllers.
pub(super) struct Controllers {
    total: Family<Labels<2>, Counter>,
    errors: Family<Labels<1>, Counter>,
    time: Family<Labels<1>, ReconcileTimes, fn() -> ReconcileTimes>,
    max_concurrent: Family<Labels<1>, Gauge>,
    active: Family<Labels<1>, Gauge>,
}

impl Controllers {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let controllers = Controllers {
            total: Family::default(),
            errors: Family::default(),
            time: Family::new_with_constructor(reconcile_times),
            max_concurrent: Family::default(),
            active: Family::default(),
        };
        let Controllers { total, errors, time, max_concurrent, active } = &controllers;
        let help = "Total number of reconciliations per controller";
        registry.register("controller_runtime_reconcile", help, total.clone());
        let help = "Total number of reconciliation errors per controller";
        registry.register("controller_runtime_reconcile_errors", help, errors.clone());
        let help = "Length of time per reconciliation per controller";
        registry.register("controller_runtime_reconcile_time_seconds", help, time.clone());
        let help = "Maximum number of concurrent reconciles per controller";
        registry.register("controller_runtime_max_concurrent_reconciles", help, max_concurrent.clone());
        let help = "Number of currently used workers per controller";
        registry.register("controller_runtime_active_workers", help, active.clone());
        controllers
    }

    pub(super) fn of(&self, name: &'static str, env: Env) -> ControllerMetrics {
        let controller = ("controller", Cow::Borrowed(name));
        let of_outcome = |outcome: Outcome| {
            let labels = [controller.clone(), ("result", Cow::Borrowed(outcome.label()))];
            self.total.get_or_create_owned(&labels)
        };
        let labels = [controller.clone()];
        ControllerMetrics {
            env,
            total: Outcome::ALL.map(of_outcome),
            errors: self.errors.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            max_concurrent: self.max_concurrent.get_or_create_owned(&labels),
            active: self.active.get_or_create_owned(&labels),
        }
    }
}

/// The figures of a controller. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    env: Env,
    /// In the order of [`Outcome::ALL`].
    total: [Counter; 4],
    errors: Counter,
    time: ReconcileTimes,
    max_concurrent: Gauge,
    active: Gauge,
}

impl ControllerMetrics {
    /// How many reconciles may run at once.
    pub fn set_max_concurrent(&self, count: usize) {
        self.max_concurrent.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A reconcile begins.
    pub fn reconciling(&self) -> Reconciling {
        self.active.inc();
        Reconciling { started: self.env.now(), metrics: self.clone() }
    }
}

/// A reconcile that is under way.
#[derive(Debug)]
pub struct Reconciling {
    metrics: ControllerMetrics,
    started: Timestamp,
}

impl Reconciling {
    /// Counts and times the reconcile; `span` was its span.
    pub fn ended(self, outcome: Outcome, span: Option<Place>) {
        let ControllerMetrics { env, total, errors, time, .. } = &self.metrics;
        for (_, count) in Outcome::ALL.iter().zip(total).filter(|(counted, _)| **counted == outcome) {
            count.inc();
        }
        if outcome == Outcome::Error {
            errors.inc();
        }
        let exemplar = span.and_then(|span| span.exported_trace()).map(|trace| [("trace_id", trace)]);
        time.observe(seconds(env.now().duration_since(self.started)), exemplar, None);
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        self.metrics.active.dec();
    }
}

/// The families of queues.
pub(super) struct Queues {
    depth: Family<Labels<3>, Gauge>,
    adds: Family<Labels<2>, Counter>,
    queued: Histograms<2>,
    worked: Histograms<2>,
    unfinished: Family<Labels<2>, Decimal>,
    longest: Family<Labels<2>, Decimal>,
    retries: Family<Labels<2>, Counter>,
}

impl Queues {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let queues = Queues {
            depth: Family::default(),
            adds: Family::default(),
            queued: Family::new_with_constructor(queue_times),
            worked: Family::new_with_constructor(queue_times),
            unfinished: Family::default(),
            longest: Family::default(),
            retries: Family::default(),
        };
        let Queues { depth, adds, queued, worked, unfinished, longest, retries } = &queues;
        let help = "Current depth of workqueue by workqueue and priority";
        registry.register("workqueue_depth", help, depth.clone());
        registry.register("workqueue_adds", "Total number of adds handled by workqueue", adds.clone());
        let help = "How long in seconds an item stays in workqueue before being requested";
        registry.register("workqueue_queue_duration_seconds", help, queued.clone());
        let help = "How long in seconds processing an item from workqueue takes";
        registry.register("workqueue_work_duration_seconds", help, worked.clone());
        let help = "How many seconds of work are in progress and not yet observed by work_duration";
        registry.register("workqueue_unfinished_work_seconds", help, unfinished.clone());
        let help = "How many seconds the longest running processor of the workqueue has been running";
        registry.register("workqueue_longest_running_processor_seconds", help, longest.clone());
        let help =
            "Total number of items to be added to the workqueue after a delay, because of a failure or for what is due";
        registry.register("workqueue_retries", help, retries.clone());
        queues
    }

    pub(super) fn of(&self, name: &'static str) -> QueueMetrics {
        let labels: Labels<2> = [("name", Cow::Borrowed(name)), ("controller", Cow::Borrowed(name))];
        let [queue, controller] = labels.clone();
        QueueMetrics {
            depth: self.depth.get_or_create_owned(&[queue, controller, ("priority", Cow::Borrowed(PRIORITY))]),
            adds: self.adds.get_or_create_owned(&labels),
            queued: self.queued.get_or_create_owned(&labels),
            worked: self.worked.get_or_create_owned(&labels),
            unfinished: self.unfinished.get_or_create_owned(&labels),
            longest: self.longest.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            working: Arc::default(),
        }
    }
}

/// The figures of a queue. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    queued: Histogram,
    worked: Histogram,
    unfinished: Decimal,
    longest: Decimal,
    retries: Counter,
    /// When the keys that are worked on were handed out, and how many at that moment.
    working: Arc<Mutex<BTreeMap<Timestamp, i32>>>,
}

impl QueueMetrics {
    /// A key was queued.
    pub fn added(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    /// A key was handed out at `now`, after it had waited for `queued`.
    pub fn taken(&self, now: Timestamp, queued: SignedDuration) {
        self.depth.dec();
        self.queued.observe(seconds(queued));
        *self.working().entry(now).or_default() += 1;
    }

    /// The work on a key that was handed out at `taken` has ended.
    pub fn done(&self, taken: Timestamp, now: Timestamp) {
        self.worked.observe(seconds(now.duration_since(taken)));
        let mut working = self.working();
        if let Some(keys) = working.get_mut(&taken) {
            *keys -= 1;
            if *keys == 0 {
                working.remove(&taken);
            }
        }
    }

    /// A key is to be queued again after a while.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// Updates the metrics of the work in progress.
    pub(super) fn measure_unfinished(&self, now: Timestamp) {
        let working = self.working();
        let running = |taken: &Timestamp| seconds(now.duration_since(*taken));
        self.unfinished.set(working.iter().fold(0.0, |sum, (taken, keys)| sum + running(taken) * f64::from(*keys)));
        self.longest.set(working.keys().next().map_or(0.0, running));
    }

    fn working(&self) -> MutexGuard<'_, BTreeMap<Timestamp, i32>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
