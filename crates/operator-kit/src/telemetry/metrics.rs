//! Metrics, as text for Prometheus.
//!
//! Names, labels and buckets follow controller-runtime 0.24, so that dashboards and alerts for Go operators work unchanged. Controllers
//! register further metrics. No label holds the name of an object, so the number of series does not grow with the cluster. The only I/O
//! reads `/proc`.

mod format;
mod process;
mod work;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use http::Method;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, text},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

use crate::lock;
pub use format::Format;
use leadership::{Leadership, env::Env};
pub use work::{ControllerMetrics, Outcome, QueueMetrics, Reconciling};
use work::{Controllers, Labels, Queues, registered};

/// All metrics of this process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    env: Env,
    registry: Arc<Mutex<Registry>>,
    controllers: Controllers,
    queues: Queues,
    known: Arc<Mutex<BTreeMap<&'static str, QueueMetrics>>>,
    requests: Family<Labels<3>, Counter>,
}

impl Metrics {
    /// Metrics that are all 0. The clock of `env` measures durations.
    pub fn new(env: Env) -> Self {
        let mut registry = Registry::default();
        let controllers = Controllers::registered(&mut registry);
        let queues = Queues::registered(&mut registry);
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        let requests = registered(&mut registry, "rest_client_requests", help, Family::default());
        registry.register_collector(Box::new(process::Process));
        let (registry, known) = (Arc::new(Mutex::new(registry)), Arc::default());
        Metrics { env, registry, controllers, queues, known, requests }
    }

    /// Registers further metrics.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut lock(&self.registry))
    }

    /// Metrics of a controller; its series start at 0.
    pub fn controller(&self, name: &'static str) -> ControllerMetrics {
        self.controllers.controller(name, self.env.clone())
    }

    /// Metrics of a controller's queue; its series start at 0.
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        let mut known = lock(&self.known);
        known.entry(name).or_insert_with(|| self.queues.queue(name)).clone()
    }

    /// The count of requests to the API server.
    pub fn requests(&self) -> Requests {
        Requests { sent: self.requests.clone() }
    }

    /// Registers the gauge that shows whether this process holds the Lease of this name.
    pub fn leader(&self, lease_name: &str, leadership: Leadership) {
        let help = "Whether this process holds the Lease of this name: 1 if it leads, 0 if it stands by";
        let label = (Cow::Borrowed("name"), Cow::Owned(lease_name.to_owned()));
        self.register(|registry| {
            let registry = registry.sub_registry_with_label(label);
            registry.register("leader_election_master_status", help, Leads(leadership));
        });
    }

    /// All metrics, as text in this format.
    pub fn text(&self, format: Format) -> Result<String, fmt::Error> {
        let now = self.env.now();
        for queue in lock(&self.known).values() {
            queue.measure_unfinished(now);
        }
        let mut text = String::new();
        text::encode(&mut text, &lock(&self.registry))?;
        Ok(format.convert(text))
    }
}

/// A gauge that is 1 while this process leads. Each scrape asks.
#[derive(Debug)]
struct Leads(Leadership);

impl EncodeMetric for Leads {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        ConstGauge::new(i64::from(self.0.is_leader())).encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// Counts requests to the API server.
#[derive(Clone, Debug)]
pub struct Requests {
    sent: Family<Labels<3>, Counter>,
}

impl Requests {
    /// Starts the series of successful requests to `host` at 0.
    pub fn expect_host(&self, host: &str) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            self.counter(&method, host, Cow::Borrowed("200"));
        }
    }

    /// Counts a request to `host` that was answered with `code`; `None`: it got no answer.
    pub fn sent(&self, method: &Method, host: &str, code: Option<u16>) {
        let code = code.map_or(Cow::Borrowed("<error>"), |code| Cow::Owned(code.to_string()));
        self.counter(method, host, code).inc();
    }

    fn counter(&self, method: &Method, host: &str, code: Cow<'static, str>) -> Counter {
        let (method, host) = (Cow::Owned(method.to_string()), Cow::Owned(host.to_owned()));
        self.sent.get_or_create_owned(&[("code", code), ("method", method), ("host", host)])
    }
}

#[cfg(test)]
mod tests;
