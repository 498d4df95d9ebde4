//! The metrics of a leader after a few reconciles.

use leadership::{Leadership, env::Env};
use operator_kit::telemetry::metrics::{Format, Metrics, Outcome};
use podset_operator::podset::{
    fleet_metrics::{self, SetFigures},
    others::Others,
};

/// All metrics, as text.
pub fn exposes(format: Format) -> String {
    let metrics = Metrics::new(Env::system());
    metrics.leader("podset-operator", Leadership::always(Env::system()));
    metrics.requests().expect_host("10.0.0.1:443");
    let figures =
        SetFigures { by_reason: vec![("AllPodsReady", 1), ("ProgressDeadlineExceeded", 1)], ..SetFigures::default() };
    fleet_metrics::register(&metrics, move || Some(figures.clone()));
    Others::new("here".to_owned(), &metrics);
    for name in ["podset", "mycustomresource"] {
        metrics.controller(name).reconciling().ended(Outcome::SUCCESS, None);
    }
    metrics.text(format).expect("the metrics are text")
}
