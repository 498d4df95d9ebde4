//! The metrics of a leader after a few reconciles.

use std::sync::{Arc, Mutex};

use leadership::{Leadership, env::Env};
use operator_kit::telemetry::metrics::{Format, Metrics, Outcome};
use podset_operator::podset::{
    fleet_metrics::FleetMetrics,
    observe::{CacheRules, Caches},
    others::Others,
};
use tokio::sync::watch;

/// All metrics, as text.
pub fn exposes(format: Format) -> String {
    let env = Env::system();
    let (metrics, leadership) = (Metrics::new(env.clone()), Leadership::always(env.clone()));
    metrics.leader("podset-operator", leadership.clone());
    metrics.requests().expect_host("10.0.0.1:443");
    let caches = Arc::new(Mutex::new(Caches::new(CacheRules::default())));
    FleetMetrics::new(caches, env, watch::channel(true).1, leadership).register(&metrics);
    Others::new("here".to_owned(), &metrics);
    for name in ["podset", "mycustomresource"] {
        metrics.controller(name).reconciling().ended(Outcome::SUCCESS, None);
    }
    metrics.text(format).expect("the metrics are text")
}
