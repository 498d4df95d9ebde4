//! Metrics of controllers and their queues.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        counter::Counter,
        exemplar::HistogramWithExemplars,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::{lock, telemetry::spans::SpanRef};
use leadership::{Leadership, env::Env};

/// The upper bounds of the buckets for reconcile times, in seconds.
const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

fn seconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64().max(0.0)
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

/// The metrics of all controllers, by name, and of the election.
#[derive(Debug)]
pub(super) struct Work {
    pub env: Env,
    pub controllers: Mutex<BTreeMap<&'static str, ControllerMetrics>>,
    /// The name of the Lease, and whether this process holds it.
    pub leader: OnceLock<(String, Leadership)>,
}

impl Collector for Work {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let controllers = lock(&self.controllers);
        let mut all: Vec<Series> = controllers.iter().flat_map(|(name, metrics)| metrics.series(name)).collect();
        all.sort_by_key(|series| series.name);
        for family in all.chunk_by(|one, next| one.name == next.name) {
            let Series { name, help, metric, .. } = &family[0];
            let mut encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            for Series { labels, metric, .. } in family {
                metric.encode(encoder.encode_family(labels)?)?;
            }
        }
        let Some((lease, leadership)) = self.leader.get() else { return Ok(()) };
        let leads = ConstGauge::new(i64::from(leadership.is_leader()));
        let help = "Whether this process holds the Lease of this name: 1 if it leads, 0 if it stands by.";
        let mut encoder =
            encoder.encode_descriptor("leader_election_master_status", help, None, leads.metric_type())?;
        leads.encode(encoder.encode_family(&[("name", lease.as_str())])?)
    }
}

type Label = (&'static str, &'static str);

/// One series of a metric.
struct Series {
    name: &'static str,
    help: &'static str,
    labels: Vec<Label>,
    metric: Box<dyn EncodeMetric>,
}

impl Series {
    fn new(name: &'static str, help: &'static str, labels: &[Label], metric: impl EncodeMetric + 'static) -> Self {
        Series { name, help, labels: labels.to_vec(), metric: Box::new(metric) }
    }
}

/// The metrics of a controller. Clones share them.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    env: Env,
    /// In the order of [`Outcome::ALL`].
    total: [Counter; 4],
    /// The exemplar of each bucket is the latest exported trace of a reconcile in it.
    time: HistogramWithExemplars<[(&'static str, String); 1]>,
    max_concurrent: Gauge,
    active: Gauge,
    /// The metrics of its queue.
    pub queue: QueueMetrics,
}

impl ControllerMetrics {
    pub(super) fn new(env: Env) -> Self {
        let time = HistogramWithExemplars::new(RECONCILE_SECONDS.into_iter());
        let (max_concurrent, active) = (Gauge::default(), Gauge::default());
        let queue = QueueMetrics::new();
        ControllerMetrics { env, total: Default::default(), time, max_concurrent, active, queue }
    }

    fn series(&self, name: &'static str) -> Vec<Series> {
        let controller = ("controller", name);
        let help = "Length of time per reconciliation per controller.";
        let mut all =
            vec![Series::new("controller_runtime_reconcile_time_seconds", help, &[controller], self.time.clone())];
        let help = "Maximum number of concurrent reconciles per controller.";
        let max_concurrent = self.max_concurrent.clone();
        all.push(Series::new("controller_runtime_max_concurrent_reconciles", help, &[controller], max_concurrent));
        let help = "Number of currently used workers per controller.";
        all.push(Series::new("controller_runtime_active_workers", help, &[controller], self.active.clone()));
        for (outcome, total) in Outcome::ALL.iter().zip(&self.total) {
            let help = "Total number of reconciliations per controller.";
            let labels = [controller, ("result", outcome.0)];
            all.push(Series::new("controller_runtime_reconcile", help, &labels, total.clone()));
            if *outcome == Outcome::ERROR {
                let help = "Total number of reconciliation errors per controller.";
                all.push(Series::new("controller_runtime_reconcile_errors", help, &[controller], total.clone()));
            }
        }
        all.extend(self.queue.series(name, self.env.now()));
        all
    }

    /// How many reconciles may run at once.
    pub fn set_max_concurrent(&self, count: usize) {
        self.max_concurrent.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a reconcile as active until the returned value is dropped.
    pub fn reconciling(&self) -> Reconciling<'_> {
        self.active.inc();
        Reconciling { started: self.env.now(), metrics: self }
    }
}

/// A reconcile that is under way.
#[derive(Debug)]
pub struct Reconciling<'a> {
    metrics: &'a ControllerMetrics,
    started: Timestamp,
}

impl Reconciling<'_> {
    /// Counts and times the reconcile; `span` was its span.
    pub fn ended(self, outcome: Outcome, span: Option<SpanRef>) {
        let ControllerMetrics { env, total, time, .. } = self.metrics;
        for (_, count) in Outcome::ALL.iter().zip(total).filter(|(counted, _)| **counted == outcome) {
            count.inc();
        }
        let exemplar = span.and_then(|span| span.exported_trace()).map(|trace| [("trace_id", trace)]);
        time.observe(seconds(env.now().duration_since(self.started)), exemplar, None);
    }
}

impl Drop for Reconciling<'_> {
    fn drop(&mut self) {
        self.metrics.active.dec();
    }
}

/// The metrics of a queue. Clones share them.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    queued: Histogram,
    worked: Histogram,
    retries: Counter,
    /// When each key in progress was handed out.
    working: Arc<Mutex<Vec<Timestamp>>>,
}

impl QueueMetrics {
    fn new() -> Self {
        // From 10 ns to 1000 s.
        let times = || Histogram::new(exponential_buckets(10e-9, 10.0, 12));
        QueueMetrics {
            depth: Gauge::default(),
            adds: Counter::default(),
            queued: times(),
            worked: times(),
            retries: Counter::default(),
            working: Arc::default(),
        }
    }

    fn series(&self, name: &'static str, now: Timestamp) -> Vec<Series> {
        let [queue, controller] = [("name", name), ("controller", name)];
        let labels = [queue, controller];
        let help = "Current depth of workqueue by workqueue and priority.";
        // controller-runtime's metric has this label. Here it is always 0, because the depth is not split by lane.
        let with_priority = [queue, controller, ("priority", "0")];
        let mut all = vec![Series::new("workqueue_depth", help, &with_priority, self.depth.clone())];
        let help = "Total number of adds handled by workqueue.";
        all.push(Series::new("workqueue_adds", help, &labels, self.adds.clone()));
        let help = "How long in seconds an item stays in workqueue before being requested.";
        all.push(Series::new("workqueue_queue_duration_seconds", help, &labels, self.queued.clone()));
        let help = "How long in seconds processing an item from workqueue takes.";
        all.push(Series::new("workqueue_work_duration_seconds", help, &labels, self.worked.clone()));
        let help = "Total number of items added to the workqueue after a delay, because of a failure or because work is due later.";
        all.push(Series::new("workqueue_retries", help, &labels, self.retries.clone()));
        let running: Vec<f64> = lock(&self.working).iter().map(|taken| seconds(now.duration_since(*taken))).collect();
        let unfinished = ConstGauge::new(running.iter().sum::<f64>());
        let help = "How many seconds of work are in progress and not yet observed by work_duration.";
        all.push(Series::new("workqueue_unfinished_work_seconds", help, &labels, unfinished));
        let longest = ConstGauge::new(running.into_iter().fold(0.0, f64::max));
        let help = "How many seconds the longest running processor of the workqueue has been running.";
        all.push(Series::new("workqueue_longest_running_processor_seconds", help, &labels, longest));
        all
    }

    /// A key was queued.
    pub fn added(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    /// A key was handed out at `now`, after it had waited for `queued`.
    pub fn taken(&self, now: Timestamp, queued: SignedDuration) {
        self.depth.dec();
        self.queued.observe(seconds(queued));
        lock(&self.working).push(now);
    }

    /// The work on a key that was handed out at `taken` has ended.
    pub fn done(&self, taken: Timestamp, now: Timestamp) {
        self.worked.observe(seconds(now.duration_since(taken)));
        let mut working = lock(&self.working);
        if let Some(index) = working.iter().position(|time| *time == taken) {
            working.swap_remove(index);
        }
    }

    /// A key will be queued again after a delay.
    pub fn retried(&self) {
        self.retries.inc();
    }
}
