//! Trace IDs in the log and in the exemplars of metrics, and secrets in the log.

use testkit::collector::Mode;

use crate::{
    api::TestServer,
    process::{Operator, Protocol, SECRET, begin, collector, until, with},
};

#[tokio::test]
async fn log_lines_and_exemplars_name_the_trace() {
    let (api, collector, operator) = begin(Protocol::Grpc, Mode::Good, &[]).await;
    api.scale(2);
    until("a ready set", || api.is_ready(1)).await;
    until("its spans", || collector.spans().iter().any(|span| span.get("pods.created") == "2")).await;

    let logged = operator.logged("scaled");
    let [line] = &logged[..] else { panic!("one line for one decision: {logged:?}") };
    let spans = collector.spans();
    let span = spans.iter().find(|span| span.get("pods.created") == "2").unwrap();
    assert_eq!(
        (&line["TraceId"], &line["SpanId"], &line["TraceFlags"]),
        (&span.trace.clone().into(), &span.id.clone().into(), &1.into())
    );
    assert_eq!((&line["SeverityText"], &line["SeverityNumber"]), (&"INFO".into(), &9.into()));
    assert_eq!((&line["Body"], &line["Attributes"]["created"]), (&"scaled".into(), &2.into()));
    assert_eq!(line["InstrumentationScope"]["Name"], "podset_operator::podset::report");
    assert_eq!(line["Resource"]["service.instance.id"], *span.resource["service.instance.id"]);
    assert!(line["Timestamp"].as_str().unwrap().ends_with('Z'));
    assert!(operator.logged("starting podset-operator")[0].get("TraceId").is_none(), "it belongs to no trace");

    let metrics = operator.metrics().await;
    let exemplars: Vec<&str> =
        metrics.lines().filter_map(|line| line.split_once("# {trace_id=\"")).map(|(_, rest)| &rest[..32]).collect();
    assert!(!exemplars.is_empty(), "{metrics}");
    for trace in exemplars {
        until("the span of an exemplar", || collector.spans().iter().any(|span| span.trace == trace)).await;
    }
}

#[tokio::test]
async fn no_log_line_has_a_secret_at_any_level() {
    for protocol in Protocol::ALL {
        let (api, collector) = (TestServer::start().await, collector(Mode::Good).await);
        let variables = protocol.to(&collector);
        let header = format!("authorization=Bearer%20{SECRET}");
        let more = [("OTEL_EXPORTER_OTLP_HEADERS", header.as_str()), ("PODSET_OPERATOR_LOG_LEVEL", "trace")];
        let mut operator = Operator::start(&api, &with(&variables, &more));
        operator.works(&api).await;
        api.scale(2);
        until("a ready set", || api.is_ready(1)).await;
        operator.shut_down().await;
        let sent = &collector.requests()[0].1["authorization"];
        assert_eq!(sent.to_str().unwrap(), format!("Bearer {SECRET}"));
        let lines: Vec<String> = operator.log().iter().map(ToString::to_string).collect();
        assert!(lines.len() > 100, "only {} lines", lines.len());
        let leaks: Vec<&String> = lines.iter().filter(|line| line.contains(SECRET)).collect();
        assert!(leaks.is_empty(), "{protocol:?}: {leaks:?}");
    }
}
