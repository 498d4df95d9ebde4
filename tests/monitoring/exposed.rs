//! What the operator exposes, read from the text that Prometheus gets.

use std::collections::{BTreeMap, BTreeSet};

use leadership::env::Env;
use operator_kit::telemetry::metrics::{Format, Metrics, Outcome};
use podset_operator::podset::{
    fleet_metrics::{self, SetFigures},
    others::Others,
};

/// The metrics, each with the labels that its series have.
pub struct Exposed(pub BTreeMap<String, BTreeSet<String>>);

impl Exposed {
    /// What a leader exposes that has worked a little.
    pub fn by_a_leader() -> Self {
        let metrics = Metrics::new(Env::system());
        metrics.leader("podset-operator").set(1);
        metrics.requests().expect_host("10.0.0.1:443");
        let figures = SetFigures {
            by_reason: vec![("AllPodsReady", 1)],
            rollouts: vec![("stalled", 1)],
            ..SetFigures::default()
        };
        fleet_metrics::register(&metrics, move || Some(figures.clone()));
        Others::new("here".to_owned(), &metrics);
        for name in ["podset", "mycustomresource"] {
            metrics.controller(name).reconciling().ended(Outcome::Success, None);
            metrics.queue(name);
        }
        Exposed::read(&metrics.text(Format::OpenMetrics).expect("the metrics are text"))
    }

    fn read(text: &str) -> Self {
        let mut exposed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let pairs = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
            exposed.entry(name.to_owned()).or_default().extend(pairs.map(|(label, _)| label.to_owned()));
        }
        Exposed(exposed)
    }

    /// The labels of the metric of this name, if there is one.
    pub fn labels(&self, metric: &str) -> Option<&BTreeSet<String>> {
        self.0.get(metric)
    }
}
