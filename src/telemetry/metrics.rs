//! What is counted and measured, as text for Prometheus.
//!
//! Names, labels and buckets are those of controller-runtime 0.24 wherever it has the figure, so that dashboards and alerts
//! made for operators in Go work unchanged; what is this operator's own begins with `podset_`. No object's name is ever a
//! label: the number of series does not grow with the cluster. It does no I/O but for reading `/proc`.

mod format;
mod process;
mod sets;
mod work;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use http::Method;
use jiff::SignedDuration;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

pub use format::Format;
use leadership::env::Env;
pub use sets::SetFigures;
use sets::Sets;
pub use work::{ControllerMetrics, Outcome, QueueMetrics, Reconciling};
use work::{Controllers, Queues};

/// Labels in the order in which they are shown.
type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];
/// A gauge that need not be whole.
type Decimal = Gauge<f64, AtomicU64>;

/// All metrics of this process. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    registry: Registry,
    controllers: Controllers,
    queues: Queues,
    /// The queues that there are, by name.
    known: Mutex<BTreeMap<&'static str, QueueMetrics>>,
    requests: Family<Labels<3>, Counter>,
    leader: Family<Labels<1>, Gauge>,
    writes_by_others: Counter,
    sets: Sets,
}

impl Metrics {
    /// Nothing has happened yet. Durations are measured with the clock of `env`.
    pub fn new(env: Env) -> Self {
        let mut registry = Registry::default();
        let controllers = Controllers::registered(&mut registry);
        let queues = Queues::registered(&mut registry);
        let requests = Family::<Labels<3>, Counter>::default();
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        registry.register("rest_client_requests", help, requests.clone());
        let leader = Family::<Labels<1>, Gauge>::default();
        let help = "Whether this process holds the Lease of that name: 1 if it leads, 0 if it stands by";
        registry.register("leader_election_master_status", help, leader.clone());
        let writes_by_others = Counter::default();
        let help = "Number of PodSet statuses written by another installation; above 0, two installations write the same PodSets";
        registry.register("podset_writes_by_other_installations", help, writes_by_others.clone());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("podset_build", "The version of podset-operator", build);
        registry.register_collector(Box::new(process::Process));
        let sets = Sets::default();
        registry.register_collector(Box::new(sets.clone()));
        let known = Mutex::default();
        let shared = Shared { env, registry, controllers, queues, known, requests, leader, writes_by_others, sets };
        Metrics { shared: Arc::new(shared) }
    }

    /// The figures of a controller; its series begin at 0.
    pub fn controller(&self, name: &'static str) -> ControllerMetrics {
        self.shared.controllers.of(name, self.shared.env.clone())
    }

    /// The figures of a controller's queue; its series begin at 0.
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        let mut known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(name).or_insert_with(|| self.shared.queues.of(name)).clone()
    }

    /// The count of requests to the API server.
    pub fn requests(&self) -> Requests {
        Requests { sent: self.shared.requests.clone() }
    }

    /// Whether this process leads by the lease of that name; it begins as no.
    pub fn leader(&self, lease_name: &str) -> Leads {
        let leads = self.shared.leader.get_or_create_owned(&[("name", Cow::Owned(lease_name.to_owned()))]);
        Leads { leads }
    }

    /// Another installation wrote the status of a PodSet.
    pub fn written_by_another(&self) {
        self.shared.writes_by_others.inc();
    }

    /// Whenever the metrics are asked for, `ask` says how all PodSets together stand; nothing of them is shown while it says
    /// nothing.
    pub fn ask_for_sets(&self, ask: impl Fn() -> Option<SetFigures> + Send + Sync + 'static) {
        self.shared.sets.ask(ask);
    }

    /// All metrics, as text in this format.
    ///
    /// # Errors
    ///
    /// When a metric cannot be written as text.
    pub fn text(&self, format: Format) -> Result<String, fmt::Error> {
        let now = self.shared.env.now();
        for queue in self.shared.known.lock().unwrap_or_else(PoisonError::into_inner).values() {
            queue.measure_unfinished(now);
        }
        let mut text = String::new();
        text::encode(&mut text, &self.shared.registry)?;
        Ok(format.of(text))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Counts requests to the API server.
#[derive(Clone, Debug)]
pub struct Requests {
    sent: Family<Labels<3>, Counter>,
}

impl Requests {
    /// Requests will be sent to `host`: the series of those that go well begin at 0.
    pub fn expect_host(&self, host: &str) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            self.counter(&method, host, Cow::Borrowed("200"));
        }
    }

    /// A request was sent to `host`, and answered with `code`; `None`: it was not answered.
    pub fn sent(&self, method: &Method, host: &str, code: Option<u16>) {
        let code = code.map_or(Cow::Borrowed("<error>"), |code| Cow::Owned(code.to_string()));
        self.counter(method, host, code).inc();
    }

    fn counter(&self, method: &Method, host: &str, code: Cow<'static, str>) -> Counter {
        let (method, host) = (Cow::Owned(method.to_string()), Cow::Owned(host.to_owned()));
        self.sent.get_or_create_owned(&[("code", code), ("method", method), ("host", host)])
    }
}

/// Whether this process leads.
#[derive(Clone, Debug)]
pub struct Leads {
    leads: Gauge,
}

impl Leads {
    /// It does, or it does not.
    pub fn set(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }
}

fn seconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64().max(0.0)
}

#[cfg(test)]
mod tests;
