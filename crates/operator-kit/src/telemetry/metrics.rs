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
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use http::Method;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::lock;
pub use format::Format;
use leadership::{Leadership, env::Env};
use work::Work;
pub use work::{ControllerMetrics, Outcome, QueueMetrics, Reconciling};

/// All metrics of this process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    work: Arc<Work>,
    requests: Requests,
}

impl Metrics {
    /// Metrics that are all 0. The clock of `env` measures durations.
    pub fn new(env: Env) -> Self {
        let (mut registry, requests) = (Registry::default(), Requests::default());
        let work = Arc::new(Work { env, controllers: Mutex::default(), leader: OnceLock::new() });
        registry.register_collector(Box::new(work.clone()));
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        registry.register("rest_client_requests", help, requests.sent.clone());
        registry.register_collector(Box::new(process::Process));
        Metrics { registry: Arc::new(Mutex::new(registry)), work, requests }
    }

    /// Registers further metrics.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut lock(&self.registry))
    }

    /// Metrics of a controller and its queue; their series start at 0.
    pub fn controller(&self, name: &'static str) -> ControllerMetrics {
        let new = || ControllerMetrics::new(self.work.env.clone());
        lock(&self.work.controllers).entry(name).or_insert_with(new).clone()
    }

    /// The count of requests to the API server.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Adds the gauge that shows whether this process holds the Lease of this name.
    pub fn leader(&self, lease_name: &str, leadership: Leadership) {
        self.work.leader.get_or_init(|| (lease_name.to_owned(), leadership));
    }

    /// All metrics, as text in this format.
    pub fn text(&self, format: Format) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &lock(&self.registry))?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Classic => format::classic(&text),
        })
    }
}

/// Counts requests to the API server.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    sent: Family<[(&'static str, Cow<'static, str>); 3], Counter>,
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
