//! A silent, unreachable or failing collector, and invalid settings, do not affect the operator.

use std::time::Duration;

use serde_json::Value;
use testkit::{apiserver::Requests, collector::Mode};

use crate::{
    api::TestServer,
    process::{Operator, Protocol, begin, collector, until, with},
};

/// The time limit of a scale-up. Without traces, it takes some hundredths of a second.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The time limit of the shutdown: 3 seconds for the last spans, and slack for a busy machine.
const END: Duration = Duration::from_secs(5);

/// Scales up and down repeatedly, then shuts down. Returns the time of the slowest change, and of the shutdown.
async fn work(api: &TestServer, operator: &mut Operator) -> (Duration, Duration) {
    operator.works(api).await;
    let mut slowest = Duration::ZERO;
    for (generation, replicas) in (1..=10).zip([10, 1].into_iter().cycle()) {
        api.scale(replicas);
        slowest = slowest.max(until("the pods", || api.live_pod_count() == usize::try_from(replicas).unwrap()).await);
        until("the status", || api.is_ready(generation)).await;
    }
    (slowest, operator.shut_down().await)
}

#[tokio::test]
async fn a_silent_collector_does_not_slow_the_operator() {
    for protocol in Protocol::ALL {
        // A queue for so few spans is full at once.
        let (api, collector, mut operator) = begin(protocol, Mode::Silent, &[("OTEL_BSP_MAX_QUEUE_SIZE", "8")]).await;
        let (slowest, end) = work(&api, &mut operator).await;
        assert!(slowest < AT_ONCE, "{protocol:?}: {slowest:?}");
        assert!(end < END, "{protocol:?}: {end:?}");
        assert!(!collector.requests().is_empty(), "the collector received no request");
        assert_eq!(operator.logged("the last traces were not sent").len(), 1, "{:?}", operator.log());
    }
}

#[tokio::test]
async fn an_unreachable_collector_slows_nothing_and_is_logged_once() {
    for protocol in Protocol::ALL {
        let (api, collector) = (TestServer::start().await, collector(Mode::Good).await);
        let variables = protocol.to(&collector);
        drop(collector);
        let mut operator = Operator::start(&api, &with(&variables, &[]));
        let (slowest, end) = work(&api, &mut operator).await;
        assert!(slowest < AT_ONCE && end < END, "{protocol:?}: {slowest:?}, {end:?}");
        assert_eq!(operator.logged("cannot send traces").len(), 1, "{:?}", operator.log());
    }
}

#[tokio::test]
async fn a_failing_collector_slows_nothing_and_is_logged_once() {
    for protocol in Protocol::ALL {
        let (api, collector, mut operator) = begin(protocol, Mode::Failing, &[]).await;
        let (slowest, end) = work(&api, &mut operator).await;
        assert!(slowest < AT_ONCE && end < END, "{protocol:?}: {slowest:?}, {end:?}");
        assert!(!collector.requests().is_empty(), "the collector received no request");
        assert_eq!(operator.logged("cannot send traces").len(), 1, "{:?}", operator.log());
    }
}

#[tokio::test]
async fn traces_are_off_by_default() {
    let api = TestServer::start().await;
    let mut operator = Operator::start(&api, &[]);
    let (_, end) = work(&api, &mut operator).await;
    assert!(end < Duration::from_secs(1), "{end:?}");
    assert!(api.traceparents(&Requests::all()).iter().all(String::is_empty));
    assert!(operator.log().iter().all(|line| line.get("TraceId").is_none()));
}

#[tokio::test]
async fn an_invalid_protocol_for_traces_means_http_and_not_the_general_one() {
    let more = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")];
    let (api, collector, mut operator) = begin(Protocol::Http, Mode::Good, &more).await;
    work(&api, &mut operator).await;
    assert!(!collector.requests().is_empty(), "{:?}", operator.log());
    assert!(collector.requests().iter().all(|(path, _)| path == "/v1/traces"), "HTTP, as the warning says");
}

#[tokio::test]
async fn invalid_values_are_logged_and_do_not_stop_the_process() {
    let api = TestServer::start().await;
    let invalid = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_SDK_DISABLED", "perhaps"),
    ];
    let mut operator = Operator::start(&api, &invalid);
    work(&api, &mut operator).await;
    for (name, _) in invalid {
        let logged = operator.logged(name);
        assert_eq!((logged.len(), logged[0]["SeverityText"].as_str()), (1, Some("WARN")), "{name}: {logged:?}");
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_logged_and_does_not_stop_the_process() {
    for protocol in ["grpc", "http/protobuf"] {
        let api = TestServer::start().await;
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/missing/ca.crt"),
        ];
        let mut operator = Operator::start(&api, &variables);
        work(&api, &mut operator).await;
        let logged = operator.logged("sending no traces");
        assert_eq!((logged.len(), logged[0]["SeverityText"].as_str()), (1, Some("WARN")), "{protocol}: {logged:?}");
    }
}

#[tokio::test]
async fn warnings_of_opentelemetry_are_logged_at_the_start_only() {
    for protocol in Protocol::ALL {
        let wrong = [
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ];
        let (api, collector, mut operator) = begin(protocol, Mode::Failing, &wrong).await;
        work(&api, &mut operator).await;
        assert!(!collector.requests().is_empty(), "the collector received no request");
        let is_of_opentelemetry =
            |line: &&Value| line["InstrumentationScope"]["Name"].as_str().unwrap().starts_with("opentelemetry");
        let log = operator.log();
        let logged: Vec<&Value> = log.iter().filter(is_of_opentelemetry).collect();
        assert_eq!(logged.len(), 2, "{protocol:?}: {logged:#?}");
        for (name, value) in &wrong[..2] {
            let logged = operator.logged(name);
            assert_eq!((logged.len(), logged[0]["SeverityText"].as_str()), (1, Some("WARN")), "{name}: {logged:?}");
            assert!(logged[0]["Body"].as_str().unwrap().contains(&format!("'{value}'")), "{logged:?}");
        }
    }
}
