//! Metrics of controllers and their queues.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::AtomicU64},
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
    registry::{Metric, Registry},
};

use crate::{lock, telemetry::spans::SpanRef};
use leadership::env::Env;

/// The upper bounds of the buckets for reconcile times, in seconds.
const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The queue has no priorities. controller-runtime has this label.
const PRIORITY: &str = "0";

pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];
type Decimal = Gauge<f64, AtomicU64>;
type QueueHistograms = Family<Labels<2>, Histogram, fn() -> Histogram>;
/// The exemplar of each bucket is the latest exported trace of a reconcile in it.
type ReconcileTimes = HistogramWithExemplars<[(&'static str, String); 1]>;
type ReconcileHistograms = Family<Labels<1>, ReconcileTimes, fn() -> ReconcileTimes>;

fn seconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64().max(0.0)
}

fn reconcile_times() -> ReconcileHistograms {
    Family::new_with_constructor(|| HistogramWithExemplars::new(RECONCILE_SECONDS.into_iter()))
}

/// From 10 ns to 1000 s.
fn queue_times() -> QueueHistograms {
    Family::new_with_constructor(|| Histogram::new(exponential_buckets(10e-9, 10.0, 12)))
}

pub(super) fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// The result of a reconcile, named as in controller-runtime.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome(pub(crate) &'static str);

impl Outcome {
    /// Nothing is left to do.
    pub const SUCCESS: Outcome = Outcome("success");
    /// Something failed and will be retried.
    pub const ERROR: Outcome = Outcome("error");
    /// There is more to do now.
    pub const REQUEUE: Outcome = Outcome("requeue");
    /// There is more to do later.
    pub const REQUEUE_AFTER: Outcome = Outcome("requeue_after");

    const ALL: [Outcome; 4] = [Outcome::SUCCESS, Outcome::ERROR, Outcome::REQUEUE, Outcome::REQUEUE_AFTER];
}

#[derive(Clone)]
pub(super) struct Controllers {
    total: Family<Labels<2>, Counter>,
    errors: Family<Labels<1>, Counter>,
    time: ReconcileHistograms,
    max_concurrent: Family<Labels<1>, Gauge>,
    active: Family<Labels<1>, Gauge>,
}

impl Controllers {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let help = "Total number of reconciliations per controller";
        let total = registered(registry, "controller_runtime_reconcile", help, Family::default());
        let help = "Total number of reconciliation errors per controller";
        let errors = registered(registry, "controller_runtime_reconcile_errors", help, Family::default());
        let help = "Length of time per reconciliation per controller";
        let time = registered(registry, "controller_runtime_reconcile_time_seconds", help, reconcile_times());
        let help = "Maximum number of concurrent reconciles per controller";
        let max_concurrent =
            registered(registry, "controller_runtime_max_concurrent_reconciles", help, Family::default());
        let help = "Number of currently used workers per controller";
        let active = registered(registry, "controller_runtime_active_workers", help, Family::default());
        Controllers { total, errors, time, max_concurrent, active }
    }

    pub(super) fn controller(&self, name: &'static str, env: Env) -> ControllerMetrics {
        let controller = ("controller", Cow::Borrowed(name));
        let counter = |Outcome(name)| {
            let labels = [controller.clone(), ("result", Cow::Borrowed(name))];
            self.total.get_or_create_owned(&labels)
        };
        let labels = [controller.clone()];
        ControllerMetrics {
            env,
            total: Outcome::ALL.map(counter),
            errors: self.errors.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            max_concurrent: self.max_concurrent.get_or_create_owned(&labels),
            active: self.active.get_or_create_owned(&labels),
        }
    }
}

/// The metrics of a controller. Clones share them.
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

    /// Counts a reconcile as active until the returned value is dropped.
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
    pub fn ended(self, outcome: Outcome, span: Option<SpanRef>) {
        let ControllerMetrics { env, total, errors, time, .. } = &self.metrics;
        for (_, count) in Outcome::ALL.iter().zip(total).filter(|(counted, _)| **counted == outcome) {
            count.inc();
        }
        if outcome == Outcome::ERROR {
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

#[derive(Clone)]
pub(super) struct Queues {
    depth: Family<Labels<3>, Gauge>,
    adds: Family<Labels<2>, Counter>,
    queued: QueueHistograms,
    worked: QueueHistograms,
    unfinished: Family<Labels<2>, Decimal>,
    longest: Family<Labels<2>, Decimal>,
    retries: Family<Labels<2>, Counter>,
}

impl Queues {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let help = "Current depth of workqueue by workqueue and priority";
        let depth = registered(registry, "workqueue_depth", help, Family::default());
        let help = "Total number of adds handled by workqueue";
        let adds = registered(registry, "workqueue_adds", help, Family::default());
        let help = "How long in seconds an item stays in workqueue before being requested";
        let queued = registered(registry, "workqueue_queue_duration_seconds", help, queue_times());
        let help = "How long in seconds processing an item from workqueue takes";
        let worked = registered(registry, "workqueue_work_duration_seconds", help, queue_times());
        let help = "How many seconds of work are in progress and not yet observed by work_duration";
        let unfinished = registered(registry, "workqueue_unfinished_work_seconds", help, Family::default());
        let help = "How many seconds the longest running processor of the workqueue has been running";
        let longest = registered(registry, "workqueue_longest_running_processor_seconds", help, Family::default());
        let help = "Total number of items added to the workqueue after a delay, because of a failure or because work is due later";
        let retries = registered(registry, "workqueue_retries", help, Family::default());
        Queues { depth, adds, queued, worked, unfinished, longest, retries }
    }

    pub(super) fn queue(&self, name: &'static str) -> QueueMetrics {
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

/// The metrics of a queue. Clones share them.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    queued: Histogram,
    worked: Histogram,
    unfinished: Decimal,
    longest: Decimal,
    retries: Counter,
    /// When the keys in progress were handed out, and how many at each time.
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
        *lock(&self.working).entry(now).or_default() += 1;
    }

    /// The work on a key that was handed out at `taken` has ended.
    pub fn done(&self, taken: Timestamp, now: Timestamp) {
        self.worked.observe(seconds(now.duration_since(taken)));
        let mut working = lock(&self.working);
        if let Some(keys) = working.get_mut(&taken) {
            *keys -= 1;
            if *keys == 0 {
                working.remove(&taken);
            }
        }
    }

    /// A key will be queued again after a delay.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// Updates the metrics of the work in progress, which grow with time.
    pub(super) fn measure_unfinished(&self, now: Timestamp) {
        let working = lock(&self.working);
        let running = |taken: &Timestamp| seconds(now.duration_since(*taken));
        self.unfinished.set(working.iter().fold(0.0, |sum, (taken, keys)| sum + running(taken) * f64::from(*keys)));
        self.longest.set(working.keys().next().map_or(0.0, running));
    }
}
