//! The alerts, the dashboard and kubebuilder's dashboards use only metrics and labels that the operator exposes, and
//! every `podset_` metric is used in a query.

mod exposed;
mod kubebuilder;
mod leader;
mod manifests;
mod promql;

use std::collections::{BTreeMap, BTreeSet};

use exposed::Exposed;
use manifests::{alerts, dashboard, read};
use promql::uses;
use serde_json::Value;

/// Labels that Prometheus adds to every series of a target of the ServiceMonitor.
const TARGET_LABELS: [&str; 7] = ["job", "namespace", "pod", "instance", "service", "endpoint", "container"];

/// Every query of the alerts and the dashboard, with its place.
fn queries() -> Vec<(String, String)> {
    let mut queries: Vec<_> = alerts().into_iter().map(|alert| (format!("alert {}", alert.name), alert.expr)).collect();
    queries.extend(dashboard_queries().into_iter().map(|query| (format!("panel {}", query.panel), query.expr)));
    queries
}

/// A query of the dashboard.
struct Query {
    panel: String,
    expr: String,
    legend: String,
}

fn dashboard_queries() -> Vec<Query> {
    let dashboard = dashboard();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let (expr, legend) = (text(&target["expr"]), text(&target["legendFormat"]));
            queries.push(Query { panel: text(&panel["title"]), expr, legend });
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().expect("annotations") {
        let (expr, legend) = (text(&annotation["expr"]), text(&annotation["titleFormat"]));
        queries.push(Query { panel: text(&annotation["name"]), expr, legend });
    }
    queries
}

/// The mistakes in a query.
fn mistakes(expr: &str, exposed: &Exposed) -> Vec<String> {
    let uses = match uses(expr) {
        Ok(uses) if uses.metrics.is_empty() => return vec!["uses no metric".to_owned()],
        Ok(uses) => uses,
        Err(error) => return vec![error],
    };
    let mut mistakes = Vec::new();
    let mut known: BTreeSet<&str> = TARGET_LABELS.into();
    for (metric, selects) in &uses.metrics {
        let Some(labels) = exposed.labels(metric) else {
            mistakes.push(format!("there is no metric {metric}"));
            continue;
        };
        known.extend(labels.iter().map(String::as_str));
        let is_there = |label: &&String| labels.contains(*label) || TARGET_LABELS.contains(&label.as_str());
        mistakes.extend(
            selects.iter().filter(|label| !is_there(label)).map(|label| format!("{metric} has no label {label}")),
        );
    }
    let grouping = uses.grouping.iter().filter(|label| !known.contains(label.as_str()));
    mistakes.extend(grouping.map(|label| format!("no metric here has the label {label}")));
    mistakes
}

#[test]
fn every_query_uses_existing_metrics_and_labels() {
    let exposed = Exposed::by_a_leader();
    let queries = queries();
    assert!(queries.len() > 30, "only {} queries were found", queries.len());
    for (place, expr) in queries {
        assert_eq!(mistakes(&expr, &exposed), Vec::<String>::new(), "{place}: {expr}");
    }
}

#[test]
fn unknown_metrics_and_labels_are_detected() {
    let exposed = Exposed::by_a_leader();
    for (expr, mistake) in [
        ("podset_typo", "there is no metric podset_typo"),
        (r#"podset_sets{state="x"}"#, "podset_sets has no label state"),
        ("sum by (state) (podset_sets)", "no metric here has the label state"),
        ("vector(1)", "uses no metric"),
        ("rate(controller_runtime_reconcile[5m])", "there is no metric controller_runtime_reconcile"),
    ] {
        assert_eq!(mistakes(expr, &exposed), [mistake], "{expr}");
    }
}

#[test]
fn every_podset_metric_is_used_in_a_query() {
    let used: BTreeSet<String> = queries()
        .iter()
        .flat_map(|(_, expr)| uses(expr).map(|uses| uses.metrics).unwrap_or_default())
        .map(|(metric, _)| metric)
        .collect();
    let unused: Vec<_> = Exposed::by_a_leader()
        .0
        .into_keys()
        .filter(|metric| metric.starts_with("podset_") && !used.contains(metric))
        .collect();
    assert_eq!(unused, Vec::<String>::new());
}

/// A legend can name only labels that remain in the result of the query.
#[test]
fn legends_name_labels_that_the_query_keeps() {
    for Query { panel, expr, legend } in dashboard_queries() {
        let named: Vec<&str> = legend.split("{{").skip(1).filter_map(|part| part.split("}}").next()).collect();
        let uses = uses(&expr).expect("another test checks this");
        for label in named {
            let is_kept = uses.grouping.contains(label) || !expr.contains(" by ") && TARGET_LABELS.contains(&label);
            assert!(is_kept, "{panel}: the legend names {label}, which {expr} does not keep");
        }
    }
}

/// A selector for an unknown reason would silently match nothing.
#[test]
fn queries_select_only_existing_reasons() {
    let reasons: BTreeMap<_, _> = podset_operator::podset::status::REASONS.map(|reason| (reason, ())).into();
    for (place, expr) in queries() {
        for part in expr.split("reason").skip(1) {
            let value = part.trim_start_matches(['=', '!']).strip_prefix('"').and_then(|part| part.split('"').next());
            assert!(value.is_none_or(|value| reasons.contains_key(value)), "{place}: {expr}");
        }
    }
}

#[test]
fn no_metric_has_a_label_of_the_target() {
    for (metric, labels) in Exposed::by_a_leader().0 {
        let hidden: Vec<_> = labels.iter().filter(|label| TARGET_LABELS.contains(&label.as_str())).collect();
        assert!(hidden.is_empty(), "{metric} has {hidden:?}, which Prometheus would rename to exported_…");
    }
}

/// The docs tell on-call engineers what to do.
#[test]
fn the_docs_name_every_alert_and_severities_are_valid() {
    let docs = read("docs/observability.md");
    for alert in alerts() {
        assert!(docs.contains(&format!("`{}`", alert.name)), "docs/observability.md does not name {}", alert.name);
        assert!(["critical", "warning"].contains(&alert.severity.as_str()), "{} is {:?}", alert.name, alert.severity);
    }
}

#[test]
fn queries_in_the_docs_use_existing_metrics_and_labels() {
    let exposed = Exposed::by_a_leader();
    let docs = read("docs/observability.md");
    let blocks: Vec<&str> = docs.split("```promql\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert!(blocks.len() > 2, "only {} blocks of queries were found", blocks.len());
    let lines = blocks.iter().flat_map(|block| block.lines()).map(|line| line.split(" #").next().unwrap_or_default());
    for expr in lines.filter(|line| !line.trim().is_empty()) {
        assert_eq!(mistakes(expr, &exposed), Vec::<String>::new(), "{expr}");
    }
}
