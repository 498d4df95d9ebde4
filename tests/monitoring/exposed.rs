//! The metrics of the operator, parsed from the text that Prometheus scrapes.

use std::collections::{BTreeMap, BTreeSet};

use operator_kit::telemetry::metrics::Format;

use crate::leader;

/// The metrics, each with the labels of its series.
pub struct Exposed(pub BTreeMap<String, BTreeSet<String>>);

impl Exposed {
    /// The metrics of a leader after a few reconciles.
    pub fn by_a_leader() -> Self {
        let mut exposed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for line in leader::exposes(Format::OpenMetrics).lines().filter(|line| !line.starts_with('#')) {
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
