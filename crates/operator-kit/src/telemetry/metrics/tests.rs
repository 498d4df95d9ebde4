use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::SignedDuration;
use leadership::LeaderState;

use super::*;

/// The metrics of a process with one controller right after the start.
fn idle() -> Metrics {
    let env = leadership::env::testing::virtual_env();
    let metrics = Metrics::new(env.clone());
    metrics.controller("podset");
    metrics.leader("podset-operator", LeaderState::vacant(env).leadership());
    metrics.requests().expect_host("10.0.0.1:443");
    metrics
}

/// The samples of a text: the value of each name with labels.
fn series(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    samples.map(|line| read(line).unwrap_or_else(|| panic!("not a sample: {line}"))).collect()
}

fn value(metrics: &Metrics, series: &str) -> f64 {
    let all = self::series(&metrics.text(Format::OpenMetrics).unwrap());
    *all.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", all.keys()))
}

#[test]
fn dashboards_find_every_series_from_the_start() {
    let metrics = idle();
    let all = series(&metrics.text(Format::OpenMetrics).unwrap());
    let work = r#"name="podset",controller="podset""#;
    for expected in [
        r#"controller_runtime_reconcile_total{controller="podset",result="success"}"#.to_owned(),
        r#"controller_runtime_reconcile_total{controller="podset",result="error"}"#.to_owned(),
        r#"controller_runtime_reconcile_total{controller="podset",result="requeue"}"#.to_owned(),
        r#"controller_runtime_reconcile_total{controller="podset",result="requeue_after"}"#.to_owned(),
        r#"controller_runtime_reconcile_errors_total{controller="podset"}"#.to_owned(),
        r#"controller_runtime_reconcile_time_seconds_bucket{le="0.005",controller="podset"}"#.to_owned(),
        r#"controller_runtime_reconcile_time_seconds_bucket{le="60.0",controller="podset"}"#.to_owned(),
        r#"controller_runtime_reconcile_time_seconds_count{controller="podset"}"#.to_owned(),
        r#"controller_runtime_max_concurrent_reconciles{controller="podset"}"#.to_owned(),
        r#"controller_runtime_active_workers{controller="podset"}"#.to_owned(),
        format!(r#"workqueue_depth{{{work},priority="0"}}"#),
        format!("workqueue_adds_total{{{work}}}"),
        format!("workqueue_retries_total{{{work}}}"),
        format!(r#"workqueue_queue_duration_seconds_bucket{{le="1e-8",{work}}}"#),
        format!(r#"workqueue_queue_duration_seconds_bucket{{le="1000.0",{work}}}"#),
        format!(r#"workqueue_queue_duration_seconds_bucket{{le="+Inf",{work}}}"#),
        format!("workqueue_work_duration_seconds_sum{{{work}}}"),
        format!("workqueue_unfinished_work_seconds{{{work}}}"),
        format!("workqueue_longest_running_processor_seconds{{{work}}}"),
        r#"leader_election_master_status{name="podset-operator"}"#.to_owned(),
        r#"rest_client_requests_total{code="200",method="PATCH",host="10.0.0.1:443"}"#.to_owned(),
    ] {
        assert_eq!(all.get(&expected), Some(&0.0), "{expected}");
    }
    for expected in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"] {
        assert!(all.contains_key(expected), "{expected}");
    }
}

#[test]
fn the_text_is_open_metrics() {
    let metrics = idle();
    let text = metrics.text(Format::OpenMetrics).unwrap();
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    let mut families = BTreeSet::new();
    let mut current = (String::new(), String::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(description) = line.strip_prefix("# TYPE ") {
            let (name, kind) = description.split_once(' ').unwrap();
            current = (name.to_owned(), kind.to_owned());
            assert!(families.insert(name.to_owned()), "{name} is described twice");
        } else if !line.starts_with("# HELP ") {
            let name = &line[..line.find(['{', ' ']).unwrap()];
            let suffixes: &[&str] = match current.1.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_sum", "_count", "_bucket"],
                kind => panic!("{kind}"),
            };
            assert!(name.strip_prefix(&current.0).is_some_and(|suffix| suffixes.contains(&suffix)), "{line}");
        }
    }
    assert_eq!(families.len(), 20, "{families:#?}");
}

#[test]
fn requests_are_counted_by_code_method_and_host() {
    let metrics = idle();
    let requests = metrics.requests();
    for code in [Some(200), Some(200), Some(404), None] {
        requests.sent(&Method::GET, "10.0.0.1:443", code);
    }
    for (code, expected) in [("200", 2.0), ("404", 1.0), ("<error>", 1.0)] {
        let series = format!(r#"rest_client_requests_total{{code="{code}",method="GET",host="10.0.0.1:443"}}"#);
        assert_eq!(value(&metrics, &series), expected, "{code}");
    }
}

#[test]
fn the_leader_metric_is_one_for_a_leader() {
    let env = leadership::env::testing::virtual_env();
    let (metrics, mut leader_state) = (Metrics::new(env.clone()), LeaderState::vacant(env));
    metrics.leader("podset-operator", leader_state.leadership());
    let shown = || value(&metrics, r#"leader_election_master_status{name="podset-operator"}"#);
    assert_eq!(shown(), 0.0);
    leader_state.begin(None);
    assert_eq!(shown(), 1.0);
    leader_state.resign();
    assert_eq!(shown(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_timed_and_counted_by_how_they_end() {
    let metrics = Metrics::new(leadership::env::testing::virtual_env());
    let controller = metrics.controller("podset");
    controller.set_max_concurrent(64);
    for (outcome, label) in [
        (Outcome::SUCCESS, "success"),
        (Outcome::ERROR, "error"),
        (Outcome::REQUEUE, "requeue"),
        (Outcome::REQUEUE_AFTER, "requeue_after"),
    ] {
        let reconciling = controller.reconciling();
        assert_eq!(value(&metrics, r#"controller_runtime_active_workers{controller="podset"}"#), 1.0);
        tokio::time::advance(Duration::from_secs(2)).await;
        reconciling.ended(outcome, None);
        let series = format!(r#"controller_runtime_reconcile_total{{controller="podset",result="{label}"}}"#);
        assert_eq!(value(&metrics, &series), 1.0, "{label}");
    }
    for (series, expected) in [
        (r#"controller_runtime_active_workers{controller="podset"}"#, 0.0),
        (r#"controller_runtime_max_concurrent_reconciles{controller="podset"}"#, 64.0),
        (r#"controller_runtime_reconcile_errors_total{controller="podset"}"#, 1.0),
        (r#"controller_runtime_reconcile_time_seconds_bucket{le="1.75",controller="podset"}"#, 0.0),
        (r#"controller_runtime_reconcile_time_seconds_bucket{le="2.0",controller="podset"}"#, 4.0),
        (r#"controller_runtime_reconcile_time_seconds_sum{controller="podset"}"#, 8.0),
    ] {
        assert_eq!(value(&metrics, series), expected, "{series}");
    }
}

#[test]
fn unfinished_work_is_shown() {
    let env = leadership::env::testing::virtual_env();
    let metrics = Metrics::new(env.clone());
    let queue = metrics.controller("podset").queue;
    let work = |name: &str| format!(r#"workqueue_{name}_seconds{{name="podset",controller="podset"}}"#);
    let (hour, now) = (SignedDuration::from_hours(1), env.now());
    for ago in [hour, hour, hour * 2] {
        queue.added();
        queue.taken(now - ago, SignedDuration::ZERO);
    }
    // The clock goes on during this test.
    let is_about = |series: String, hours: f64| (value(&metrics, &series) / 3600.0 - hours).abs() < 0.01;
    assert!(is_about(work("unfinished_work"), 4.0) && is_about(work("longest_running_processor"), 2.0));
    queue.done(now - hour * 2, now);
    assert!(is_about(work("unfinished_work"), 2.0) && is_about(work("longest_running_processor"), 1.0));
    queue.done(now - hour, now);
    queue.done(now - hour, now);
    assert_eq!(value(&metrics, &work("unfinished_work")), 0.0);
}
