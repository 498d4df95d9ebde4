//! A collector that is slow, absent or broken, and settings that are wrong: the operator works as if there were none.

use std::time::Duration;

use serde_json::Value;
use testkit::collector::Manner;

use crate::{
    api::ApiServer,
    process::{Operator, Protocol, begin, collector, until, with},
};

/// How long a scale-up may take here: without traces it takes some hundredths of a second.
const AT_ONCE: Duration = Duration::from_secs(2);

/// How long the end may take: 3 seconds for the last spans, and what a busy machine adds.
const END: Duration = Duration::from_secs(5);

/// Scales up and down again and again, then ends it: how long the slowest took, and the end.
async fn work(api: &ApiServer, operator: &mut Operator) -> (Duration, Duration) {
    operator.works(api).await;
    let mut slowest = Duration::ZERO;
    for (generation, replicas) in (1..=10).zip([10, 1].into_iter().cycle()) {
        api.scale(replicas);
        slowest = slowest.max(until("the pods", || api.pods() == replicas as usize).await);
        until("the status", || api.is_ready(generation)).await;
    }
    (slowest, operator.end().await)
}

#[tokio::test]
async fn a_collector_that_never_answers_is_not_felt() {
    for protocol in Protocol::ALL {
        // A queue of a few spans is full at once.
        let (api, collector, mut operator) = begin(protocol, Manner::Silent, &[("OTEL_BSP_MAX_QUEUE_SIZE", "8")]).await;
        let (slowest, end) = work(&api, &mut operator).await;
        assert!(slowest < AT_ONCE, "{protocol:?}: {slowest:?}");
        assert!(end < END, "{protocol:?}: {end:?}");
        assert!(!collector.requests().is_empty(), "it was asked");
        assert_eq!(operator.said("the last traces were not sent").len(), 1, "{:?}", operator.log());
    }
}

#[tokio::test]
async fn a_collector_that_is_away_is_not_felt_and_is_said_once() {
    for protocol in Protocol::ALL {
        let (api, collector) = (ApiServer::start().await, collector(Manner::Good).await);
        let variables = protocol.to(&collector);
        drop(collector);
        let mut operator = Operator::start(&api, &with(&variables, &[]));
        let (slowest, end) = work(&api, &mut operator).await;
        assert!(slowest < AT_ONCE && end < END, "{protocol:?}: {slowest:?}, {end:?}");
        assert_eq!(operator.said("traces cannot be sent").len(), 1, "{:?}", operator.log());
    }
}

#[tokio::test]
async fn a_collector_that_fails_is_not_felt_and_is_said_once() {
    for protocol in Protocol::ALL {
        let (api, collector, mut operator) = begin(protocol, Manner::Failing, &[]).await;
        let (slowest, end) = work(&api, &mut operator).await;
        assert!(slowest < AT_ONCE && end < END, "{protocol:?}: {slowest:?}, {end:?}");
        assert!(!collector.requests().is_empty(), "it was asked");
        assert_eq!(operator.said("traces cannot be sent").len(), 1, "{:?}", operator.log());
    }
}

#[tokio::test]
async fn nothing_is_traced_unless_it_is_asked_for() {
    let api = ApiServer::start().await;
    let mut operator = Operator::start(&api, &[]);
    let (_, end) = work(&api, &mut operator).await;
    assert!(end < Duration::from_secs(1), "{end:?}");
    assert!(api.came().iter().all(|came| came.traceparent.is_none()));
    assert!(operator.log().iter().all(|line| line.get("TraceId").is_none()));
}

#[tokio::test]
async fn a_wrong_protocol_of_traces_does_not_give_way_to_that_of_all() {
    let more = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")];
    let (api, collector, mut operator) = begin(Protocol::Http, Manner::Good, &more).await;
    work(&api, &mut operator).await;
    assert!(!collector.requests().is_empty(), "{:?}", operator.log());
    assert!(collector.requests().iter().all(|(path, _)| path == "/v1/traces"), "by HTTP, as the warning says");
}

#[tokio::test]
async fn a_wrong_value_is_said_and_is_no_reason_to_end() {
    let api = ApiServer::start().await;
    let wrong = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_SDK_DISABLED", "perhaps"),
    ];
    let mut operator = Operator::start(&api, &wrong);
    work(&api, &mut operator).await;
    for (name, _) in wrong {
        let said = operator.said(name);
        assert_eq!((said.len(), said[0]["SeverityText"].as_str()), (1, Some("WARN")), "{name}: {said:?}");
    }
}

#[tokio::test]
async fn what_opentelemetry_says_is_logged_when_the_operator_starts_and_not_for_each_failure() {
    for protocol in Protocol::ALL {
        let wrong = [
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ];
        let (api, collector, mut operator) = begin(protocol, Manner::Failing, &wrong).await;
        work(&api, &mut operator).await;
        assert!(!collector.requests().is_empty(), "it was asked");
        let is_opentelemetrys =
            |line: &&Value| line["InstrumentationScope"]["Name"].as_str().unwrap().starts_with("opentelemetry");
        let log = operator.log();
        let said: Vec<&Value> = log.iter().filter(is_opentelemetrys).collect();
        assert_eq!(said.len(), 2, "{protocol:?}: {said:#?}");
        for (name, value) in &wrong[..2] {
            let said = operator.said(name);
            assert_eq!((said.len(), said[0]["SeverityText"].as_str()), (1, Some("WARN")), "{name}: {said:?}");
            assert!(said[0]["Body"].as_str().unwrap().contains(&format!("'{value}'")), "{said:?}");
        }
    }
}
