//! The spans of a trace: each reconcile with its decision and its requests, exactly.

use std::{collections::BTreeMap, time::Duration};

use testkit::{
    apiserver::Requests,
    collector::{Mode, Span, tree},
};
use tokio::time::sleep;

use crate::{
    api::TestServer,
    process::{Protocol, begin, until},
};

/// The received spans of reconciles, in order.
fn reconciles(spans: &[Span]) -> Vec<Span> {
    spans.iter().filter(|span| span.name == "podset reconcile").cloned().collect()
}

/// The reconcile that created or deleted pods for this generation.
fn scaling(spans: &[Span], generation: u64) -> Option<Span> {
    let is_it = |span: &Span| {
        let did = |key| !matches!(span.get(key), "" | "0");
        span.get("object.generation") == generation.to_string() && (did("pods.created") || did("pods.deleted"))
    };
    reconciles(spans).into_iter().find(is_it)
}

/// Waits until the API server receives no more requests.
async fn rest(api: &TestServer) {
    let mut mark = usize::MAX;
    while mark != api.mark() {
        mark = api.mark();
        sleep(Duration::from_millis(300)).await;
    }
}

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn both_protocols_export_the_complete_trace_of_a_scale_up() {
    for protocol in Protocol::ALL {
        let more = [("POD_NAMESPACE", "system"), ("OTEL_RESOURCE_ATTRIBUTES", "team=a%2Cb")];
        let (api, collector, _operator) = begin(protocol, Mode::Good, &more).await;
        api.scale(2);
        until("a ready set", || api.is_ready(1)).await;
        until("its spans", || scaling(&collector.spans(), 1).is_some()).await;
        let spans = collector.spans();
        let reconcile = scaling(&spans, 1).unwrap();
        assert_resource_attributes(&reconcile, protocol);
        assert_outcome(&reconcile, &api);
        let text = tree(&spans, &reconcile.trace);
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(": ").unwrap().1).collect();
        // The status patch follows here, or in a later reconcile if the pods became ready early.
        let first = ["podset reconcile", "plan", "list podsets", "list pods", "plan", "create pods", "create pods"];
        assert_eq!(lines[..7], first, "{text}");
        assert_requests(&spans, &reconcile, &api);
    }
}

fn assert_resource_attributes(span: &Span, protocol: Protocol) {
    let mut resource = span.resource.clone();
    let id = resource.remove("service.instance.id").unwrap();
    assert!(id.starts_with("operator-1_"), "{id}");
    resource.retain(|key, _| !key.starts_with("telemetry.sdk."));
    let expected = attributes(&[
        ("k8s.namespace.name", "system"),
        ("k8s.pod.name", "operator-1"),
        ("service.name", "podset-operator"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("team", "a,b"),
    ]);
    assert_eq!(resource, expected, "{protocol:?}");
}

fn assert_outcome(span: &Span, api: &TestServer) {
    let mut actual = span.attributes.clone();
    let outcome = actual.remove("outcome").unwrap();
    assert!(["success", "requeue", "requeue_after"].contains(&&*outcome), "{outcome}");
    let expected = attributes(&[
        ("controller", "podset"),
        ("object.generation", "1"),
        ("object.name", "web"),
        ("object.namespace", "shop"),
        ("pods.created", "2"),
        ("pods.deleted", "0"),
        ("trigger", "spec"),
    ]);
    assert_eq!(actual, expected);
    assert_eq!((&*span.kind, &*span.parent, &span.error), ("internal", "", &None));
    assert_eq!(span.links, [], "it is the first reconcile of the generation");
    assert_eq!(api.live_pod_count(), 2);
}

fn assert_requests(spans: &[Span], reconcile: &Span, api: &TestServer) {
    let children: Vec<&Span> = spans.iter().filter(|span| span.parent == reconcile.id).collect();
    let plan = children.iter().find(|span| span.name == "plan").unwrap();
    let expected = attributes(&[
        ("plan.create", "2"),
        ("plan.delete", "0"),
        ("plan.live", "0"),
        ("plan.look", "0"),
        ("plan.relabel", "0"),
        ("plan.wanted", "2"),
    ]);
    assert_eq!(plan.attributes, expected);
    let create = children.iter().find(|span| span.name == "create pods").unwrap();
    let (host, port) = api.address.split_once(':').unwrap();
    let mut actual = create.attributes.clone();
    let full = actual.remove("url.full").unwrap();
    assert!(full.starts_with(&format!("http://{}/api/v1/namespaces/shop/pods?", api.address)), "{full}");
    let expected = attributes(&[
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("server.address", host),
        ("server.port", port),
        ("url.path", "/api/v1/namespaces/shop/pods"),
        ("url.template", "/api/v1/namespaces/{namespace}/pods"),
    ]);
    assert_eq!(actual, expected);
    assert_eq!((&*create.kind, &create.error), ("client", &None));
    // The API server received these spans as the parents of its own.
    let sent = api.traceparents(&Requests::creates("pods"));
    let expected: Vec<String> = children
        .iter()
        .filter(|span| span.name == "create pods")
        .map(|span| format!("00-{}-{}-01", span.trace, span.id))
        .collect();
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn later_reconciles_of_a_generation_link_to_the_first() {
    let (api, collector, _operator) = begin(Protocol::Grpc, Mode::Good, &[]).await;
    for (generation, replicas) in [(1, 3), (2, 1)] {
        api.scale(replicas);
        until("a ready set", || api.is_ready(generation)).await;
        // A late event would trigger the next reconcile instead of the spec.
        rest(&api).await;
    }
    until("its spans", || scaling(&collector.spans(), 2).is_some()).await;
    let spans = collector.spans();
    for generation in ["1", "2"] {
        let of_generation: Vec<Span> =
            reconciles(&spans).into_iter().filter(|span| span.get("object.generation") == generation).collect();
        let first = &of_generation[0];
        assert_eq!((first.get("trigger"), &first.links), ("spec", &Vec::new()), "{generation}");
        // Reconciles that write the status of the generation link to the first one; later ones do not.
        let writes =
            |span: &Span| spans.iter().any(|child| child.parent == span.id && child.name == "patch podsets/status");
        let later: Vec<&Span> = of_generation[1..].iter().filter(|span| writes(span)).collect();
        assert!(generation != "1" || !later.is_empty(), "the pods became ready later");
        for span in later {
            assert_eq!(span.links, [(first.trace.clone(), first.id.clone())], "{generation}");
        }
    }
    let down = scaling(&spans, 2).unwrap();
    assert_eq!((down.get("pods.created"), down.get("pods.deleted")), ("0", "2"));
    let deletes = spans.iter().filter(|span| span.parent == down.id && span.name == "delete pods").count();
    assert_eq!(deletes, 2, "{}", tree(&spans, &down.trace));
}

#[tokio::test]
async fn a_rejected_create_is_an_error_with_the_servers_message() {
    let (api, collector, _operator) = begin(Protocol::Http, Mode::Good, &[]).await;
    api.reject_pods();
    api.scale(2);
    let failed = |spans: &[Span]| reconciles(spans).into_iter().find(|span| span.error.is_some());
    until("a failed reconcile", || failed(&collector.spans()).is_some()).await;
    let spans = collector.spans();
    let reconcile = failed(&spans).unwrap();
    assert!(reconcile.error.as_deref().unwrap().contains("exceeded quota: pods"), "{reconcile:?}");
    assert_eq!(reconcile.get("outcome"), "error");
    let create = spans.iter().find(|span| span.name == "create pods").unwrap();
    let error = create.error.as_deref().unwrap();
    assert!(error.starts_with("Forbidden: pods \"web-pod") && error.contains("exceeded quota: pods"), "{error}");
    assert_eq!((create.get("http.response.status_code"), create.get("error.type")), ("403", "403"));
}

#[tokio::test]
async fn a_shutdown_exports_all_spans() {
    for protocol in Protocol::ALL {
        // Without the shutdown, the operator exports nothing for an hour.
        let more = [("OTEL_BSP_SCHEDULE_DELAY", "3600000"), ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b")];
        let (api, collector, mut operator) = begin(protocol, Mode::Good, &more).await;
        api.scale(2);
        until("a ready set", || api.is_ready(1)).await;
        assert_eq!(collector.spans(), []);
        operator.shut_down().await;
        let spans = collector.spans();
        let writes = api.traceparents(&Requests::all()).iter().filter(|parent| !parent.is_empty()).count();
        let exported = spans.iter().filter(|span| span.kind == "client").count();
        assert_eq!((exported, scaling(&spans, 1).is_some()), (writes, true), "{protocol:?}");
        let (path, head) = &collector.requests()[0];
        let expected = match protocol {
            Protocol::Grpc => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Protocol::Http => "/v1/traces",
        };
        assert_eq!((&**path, head["x-team"].to_str().unwrap()), (expected, "a b"));
    }
}

#[tokio::test]
async fn losing_the_lease_exports_all_spans_and_none_of_the_lease() {
    let more = [("OTEL_BSP_SCHEDULE_DELAY", "3600000"), ("PODSET_OPERATOR_LEADER_ELECT", "true")];
    let (api, collector, mut operator) = begin(Protocol::Grpc, Mode::Good, &more).await;
    until("a leader", || !operator.logged("this process leads").is_empty()).await;
    api.scale(2);
    until("a ready set", || api.is_ready(1)).await;
    api.take_lease();
    assert_eq!(operator.exit_code().await, Some(1), "{:?}", operator.log());
    assert!(scaling(&collector.spans(), 1).is_some());
    // Renewals of the Lease are not traced.
    let of_lease = |span: &Span| span.name.contains("leases");
    assert!(!collector.spans().iter().any(of_lease));
    assert!(api.traceparents(&Requests::all().of("leases")).iter().all(String::is_empty));
}

#[tokio::test]
async fn an_unsampled_trace_sends_only_its_traceparent() {
    let (api, collector, mut operator) =
        begin(Protocol::Http, Mode::Good, &[("OTEL_TRACES_SAMPLER", "always_off")]).await;
    api.scale(2);
    until("a ready set", || api.is_ready(1)).await;
    operator.shut_down().await;
    assert_eq!(collector.requests().len(), 0);
    let mut sent = api.traceparents(&Requests::all());
    sent.retain(|parent| !parent.is_empty());
    assert!(!sent.is_empty() && sent.iter().all(|parent| parent.ends_with("-00")), "{sent:?}");
}
