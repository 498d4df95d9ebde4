//! What is shipped for Prometheus and Grafana fits what the operator exposes: every metric and label that an alert, the
//! dashboard or kubebuilder's dashboards ask for is there, and every figure of the operator's own is shown somewhere.

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

/// Labels that Prometheus gives every series of a target that the ServiceMonitor finds.
const TARGET_LABELS: [&str; 7] = ["job", "namespace", "pod", "instance", "service", "endpoint", "container"];

/// Every query that is shipped, and where it stands.
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

/// What is wrong with a query.
fn faults(expr: &str, exposed: &Exposed) -> Vec<String> {
    let uses = match uses(expr) {
        Ok(uses) if uses.metrics.is_empty() => return vec!["asks for no metric".to_owned()],
        Ok(uses) => uses,
        Err(error) => return vec![error],
    };
    let mut faults = Vec::new();
    let mut known: BTreeSet<&str> = TARGET_LABELS.into();
    for (metric, selects) in &uses.metrics {
        let Some(labels) = exposed.labels(metric) else {
            faults.push(format!("there is no metric {metric}"));
            continue;
        };
        known.extend(labels.iter().map(String::as_str));
        let is_there = |label: &&String| labels.contains(*label) || TARGET_LABELS.contains(&label.as_str());
        faults.extend(
            selects.iter().filter(|label| !is_there(label)).map(|label| format!("{metric} has no label {label}")),
        );
    }
    let grouping = uses.grouping.iter().filter(|label| !known.contains(label.as_str()));
    faults.extend(grouping.map(|label| format!("no metric here has the label {label}")));
    faults
}

#[test]
fn every_query_asks_for_what_is_there() {
    let exposed = Exposed::by_a_leader();
    let queries = queries();
    assert!(queries.len() > 30, "only {} queries were found", queries.len());
    for (place, expr) in queries {
        assert_eq!(faults(&expr, &exposed), Vec::<String>::new(), "{place}: {expr}");
    }
}

#[test]
fn a_query_for_what_is_not_there_is_found_out() {
    let exposed = Exposed::by_a_leader();
    for (expr, fault) in [
        ("podset_typo", "there is no metric podset_typo"),
        (r#"podset_sets{state="x"}"#, "podset_sets has no label state"),
        ("sum by (state) (podset_sets)", "no metric here has the label state"),
        ("vector(1)", "asks for no metric"),
        ("rate(controller_runtime_reconcile[5m])", "there is no metric controller_runtime_reconcile"),
    ] {
        assert_eq!(faults(expr, &exposed), [fault], "{expr}");
    }
}

#[test]
fn every_figure_of_our_own_is_shown() {
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

/// A legend can name what the query leaves of the labels, and nothing else.
#[test]
fn legends_name_labels_that_the_query_keeps() {
    for Query { panel, expr, legend } in dashboard_queries() {
        let named: Vec<&str> = legend.split("{{").skip(1).filter_map(|part| part.split("}}").next()).collect();
        let uses = uses(&expr).expect("read in another test");
        for label in named {
            let is_kept = uses.grouping.contains(label) || !expr.contains(" by ") && TARGET_LABELS.contains(&label);
            assert!(is_kept, "{panel}: the legend names {label}, which {expr} does not keep");
        }
    }
}

/// A selector for a value that never comes would find nothing, silently.
#[test]
fn reasons_that_queries_name_are_reasons_that_there_are() {
    let reasons: BTreeMap<_, _> = podset_operator::podset::status::REASONS.map(|reason| (reason, ())).into();
    for (place, expr) in queries() {
        for part in expr.split("reason").skip(1) {
            let value = part.trim_start_matches(['=', '!']).strip_prefix('"').and_then(|part| part.split('"').next());
            assert!(value.is_none_or(|value| reasons.contains_key(value)), "{place}: {expr}");
        }
    }
}

#[test]
fn targets_hide_no_label_of_the_operators() {
    for (metric, labels) in Exposed::by_a_leader().0 {
        let hidden: Vec<_> = labels.iter().filter(|label| TARGET_LABELS.contains(&label.as_str())).collect();
        assert!(hidden.is_empty(), "{metric} has {hidden:?}, which Prometheus would call exported_…");
    }
}

/// Whoever is called at night finds what to do.
#[test]
fn every_alert_has_its_place_in_the_docs() {
    let docs = read("docs/observability.md");
    for alert in alerts() {
        assert!(docs.contains(&format!("`{}`", alert.name)), "docs/observability.md says nothing of {}", alert.name);
        assert!(["critical", "warning"].contains(&alert.severity.as_str()), "{} is {:?}", alert.name, alert.severity);
    }
}

/// The queries in the documentation are as good as those of the dashboard.
#[test]
fn queries_in_the_docs_ask_for_what_is_there() {
    let exposed = Exposed::by_a_leader();
    let docs = read("docs/observability.md");
    let blocks: Vec<&str> = docs.split("```promql\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert!(blocks.len() > 2, "only {} blocks of queries were found", blocks.len());
    let lines = blocks.iter().flat_map(|block| block.lines()).map(|line| line.split(" #").next().unwrap_or_default());
    for expr in lines.filter(|line| !line.trim().is_empty()) {
        assert_eq!(faults(expr, &exposed), Vec::<String>::new(), "{expr}");
    }
}
