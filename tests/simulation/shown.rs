//! The probes and metrics of an instance in various situations.

use operator_kit::telemetry::metrics::Format::OpenMetrics;
use podset_operator::podset::promise::Rules;
use tokio::time::sleep;

use crate::{
    NS,
    apiserver::{ApiServer, Fault, Requests, Status},
    assert_ok,
    operator::Operator,
    ready, seconds, server_and_leader,
};

/// The value of the only series of a metric whose labels contain all these parts.
fn value(operator: &Operator, metric: &str, parts: &[&str]) -> f64 {
    let text = operator.context.metrics.text(OpenMetrics).expect("the metrics can be written");
    let is_it = |line: &&str| line.starts_with(&format!("{metric}{{")) && parts.iter().all(|part| line.contains(part));
    let lines: Vec<_> = text.lines().filter(is_it).collect();
    let [line] = lines[..] else { panic!("not one {metric} with {parts:?}: {lines:?}") };
    line.rsplit_once(' ').expect("a sample has a value").1.parse().expect("a value is a number")
}

#[tokio::test(start_paused = true)]
async fn an_unready_replica_names_what_it_waits_for() {
    let server = ApiServer::new(1);
    server.settings(|settings| {
        settings.unserved.insert("podsets");
    });
    let mut operator = Operator::standby(&server, "a", Rules::default());
    sleep(seconds(60)).await;
    let readiness = operator.context.health.readiness();
    let why = readiness["podset-caches"].clone().unwrap_err();
    assert!(why.contains("podsets.app.example.com") && why.contains("kubectl apply -k config/crd"), "{why}");
    assert_eq!(readiness["mycustomresource-caches"], Ok(()), "its own CRD is there");

    operator.lead();
    sleep(seconds(60)).await;
    server.settings(|settings| settings.unserved.clear());
    sleep(seconds(5)).await;
    assert_eq!(operator.context.health.readiness()["podset-caches"], Ok(()));
    server.create_podset(NS, "web", 2);
    ready(&server, "web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_stay_live_while_the_api_server_is_away() {
    let (server, operator) = server_and_leader();
    server.partition("a");
    for _ in 0..60 {
        sleep(seconds(60)).await;
        assert_ok(&operator.context.health.liveness());
    }
    let why = operator.context.health.readiness()["podset-caches"].clone().unwrap_err();
    assert!(why.contains("cannot watch pods: the API server cannot be reached; see the log"), "{why}");
    server.heal();
    sleep(seconds(60)).await;
    assert_ok(&operator.context.health.readiness());
}

#[tokio::test(start_paused = true)]
async fn successful_and_failed_reconciles_are_counted() {
    let (server, operator) = server_and_leader();
    server.create_podset(NS, "web", 3);
    server.wait_until(|s| s.ready_pods(NS, "web").len() == 3, seconds(60)).await;
    sleep(seconds(60)).await;
    let total = |result: &str| {
        let result = format!(r#"result="{result}""#);
        value(&operator, "controller_runtime_reconcile_total", &[r#"controller="podset""#, &result])
    };
    let of_queue = |metric: &str| value(&operator, metric, &[r#"name="podset""#]);
    let (succeeded, added) = (total("success"), of_queue("workqueue_adds_total"));
    assert!(succeeded >= 1.0 && added >= 1.0);
    assert_eq!(total("error"), 0.0);
    assert_eq!(of_queue("workqueue_depth"), 0.0);

    let rejected = server.fault(Requests::creates("pods"), Fault::Refuse(Status::of_code(403)));
    server.scale(NS, "web", 4);
    sleep(seconds(60)).await;
    let failed = total("error");
    assert!(failed >= 2.0 && of_queue("workqueue_retries_total") >= failed, "{failed}");
    assert_eq!(value(&operator, "controller_runtime_reconcile_errors_total", &[r#"controller="podset""#]), failed);
    rejected.release();
    sleep(seconds(120)).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 4);
    assert_eq!(value(&operator, "controller_runtime_active_workers", &[r#"controller="podset""#]), 0.0);
    let shown = operator.context.metrics.text(OpenMetrics).expect("the metrics can be written");
    assert!(!shown.contains("web"), "no label is an object's name");
}
