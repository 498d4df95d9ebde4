//! What a trace tells: each reconcile with its decision and its requests, exactly.

use std::{collections::BTreeMap, time::Duration};

use testkit::collector::{Manner, Span, tree};
use tokio::time::sleep;

use crate::{
    api::ApiServer,
    process::{Protocol, begin, until},
};

/// The reconciles that have come, in order.
fn reconciles(spans: &[Span]) -> Vec<Span> {
    spans.iter().filter(|span| span.name == "podset reconcile").cloned().collect()
}

/// The one that made the pods of this generation.
fn scaling(spans: &[Span], generation: u64) -> Option<Span> {
    let is_it = |span: &Span| {
        let did = |key| !matches!(span.get(key), "" | "0");
        span.get("object.generation") == generation.to_string() && (did("pods.created") || did("pods.deleted"))
    };
    reconciles(spans).into_iter().find(is_it)
}

/// Waits until nothing is asked of the API server any more.
async fn rest(api: &ApiServer) {
    let mut came = usize::MAX;
    while came != api.came().len() {
        came = api.came().len();
        sleep(Duration::from_millis(300)).await;
    }
}

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_scale_up_is_told_whole_by_both_protocols() {
    for protocol in Protocol::ALL {
        let more = [("POD_NAMESPACE", "system"), ("OTEL_RESOURCE_ATTRIBUTES", "team=a%2Cb")];
        let (api, collector, _operator) = begin(protocol, Manner::Good, &more).await;
        api.scale(2);
        until("a ready set", || api.is_ready(1)).await;
        until("its spans", || scaling(&collector.spans(), 1).is_some()).await;
        let spans = collector.spans();
        let reconcile = scaling(&spans, 1).unwrap();
        tells_who_it_is(&reconcile, protocol);
        tells_what_it_did(&reconcile, &api);
        let text = tree(&spans, &reconcile.trace);
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(": ").unwrap().1).collect();
        // The status is written at once, or by a later reconcile if the pods were ready before it was looked at.
        assert_eq!(lines[..4], ["podset reconcile", "plan", "create pods", "create pods"], "{text}");
        tells_its_requests(&spans, &reconcile, &api);
    }
}

fn tells_who_it_is(span: &Span, protocol: Protocol) {
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

fn tells_what_it_did(span: &Span, api: &ApiServer) {
    let mut said = span.attributes.clone();
    let outcome = said.remove("outcome").unwrap();
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
    assert_eq!(said, expected);
    assert_eq!((&*span.kind, &*span.parent, &span.error), ("internal", "", &None));
    assert_eq!(span.links, [], "it saw the generation first");
    assert_eq!(api.pods(), 2);
}

fn tells_its_requests(spans: &[Span], reconcile: &Span, api: &ApiServer) {
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
    let mut said = create.attributes.clone();
    let full = said.remove("url.full").unwrap();
    assert!(full.starts_with(&format!("http://{}/api/v1/namespaces/shop/pods?", api.address)), "{full}");
    let expected = attributes(&[
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("server.address", host),
        ("server.port", port),
        ("url.path", "/api/v1/namespaces/shop/pods"),
        ("url.template", "/api/v1/namespaces/{namespace}/pods"),
    ]);
    assert_eq!(said, expected);
    assert_eq!((&*create.kind, &create.error), ("client", &None));
    // What the API server was told is where its own spans would go.
    let sent: Vec<String> = api
        .came()
        .into_iter()
        .filter(|came| came.line.ends_with("/pods") && came.line.starts_with("POST"))
        .map(|came| came.traceparent.unwrap())
        .collect();
    let expected: Vec<String> = children
        .iter()
        .filter(|span| span.name == "create pods")
        .map(|span| format!("00-{}-{}-01", span.trace, span.id))
        .collect();
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_users_change_can_be_followed_from_reconcile_to_reconcile() {
    let (api, collector, _operator) = begin(Protocol::Grpc, Manner::Good, &[]).await;
    for (generation, replicas) in [(1, 3), (2, 1)] {
        api.scale(replicas);
        until("a ready set", || api.is_ready(generation)).await;
        // What is still on its way would be what the next reconcile is triggered by.
        rest(&api).await;
    }
    until("its spans", || scaling(&collector.spans(), 2).is_some()).await;
    let spans = collector.spans();
    for generation in ["1", "2"] {
        let of_generation: Vec<Span> =
            reconciles(&spans).into_iter().filter(|span| span.get("object.generation") == generation).collect();
        let first = &of_generation[0];
        assert_eq!((first.get("trigger"), &first.links), ("spec", &Vec::new()), "{generation}");
        // Whoever worked on it points at the first; whoever came when it was answered does not.
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
async fn a_refusal_is_an_error_with_the_servers_words() {
    let (api, collector, _operator) = begin(Protocol::Http, Manner::Good, &[]).await;
    api.refuse_pods();
    api.scale(2);
    let failed = |spans: &[Span]| reconciles(spans).into_iter().find(|span| span.error.is_some());
    until("a failed reconcile", || failed(&collector.spans()).is_some()).await;
    let spans = collector.spans();
    let reconcile = failed(&spans).unwrap();
    assert!(reconcile.error.as_deref().unwrap().contains("exceeded quota: small"), "{reconcile:?}");
    assert_eq!(reconcile.get("outcome"), "error");
    let create = spans.iter().find(|span| span.name == "create pods").unwrap();
    let error = create.error.as_deref().unwrap();
    assert!(error.starts_with("Forbidden: pods \"web-pod") && error.ends_with("exceeded quota: small"), "{error}");
    assert_eq!((create.get("http.response.status_code"), create.get("error.type")), ("403", "403"));
}

#[tokio::test]
async fn what_was_recorded_arrives_before_the_process_ends() {
    for protocol in Protocol::ALL {
        // Nothing leaves by itself within an hour.
        let more = [("OTEL_BSP_SCHEDULE_DELAY", "3600000"), ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b")];
        let (api, collector, mut operator) = begin(protocol, Manner::Good, &more).await;
        api.scale(2);
        until("a ready set", || api.is_ready(1)).await;
        assert_eq!(collector.spans(), []);
        operator.end().await;
        let spans = collector.spans();
        let writes = api.came().iter().filter(|came| came.traceparent.is_some()).count();
        let told = spans.iter().filter(|span| span.kind == "client").count();
        assert_eq!((told, scaling(&spans, 1).is_some()), (writes, true), "{protocol:?}");
        let (path, head) = &collector.requests()[0];
        let expected = match protocol {
            Protocol::Grpc => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Protocol::Http => "/v1/traces",
        };
        assert_eq!((&**path, head["x-team"].to_str().unwrap()), (expected, "a b"));
    }
}

#[tokio::test]
async fn what_led_to_a_failure_arrives_as_well() {
    let more = [("OTEL_BSP_SCHEDULE_DELAY", "3600000"), ("PODSET_OPERATOR_LEADER_ELECT", "true")];
    let (api, collector, mut operator) = begin(Protocol::Grpc, Manner::Good, &more).await;
    until("a leader", || !operator.said("this process leads").is_empty()).await;
    api.scale(2);
    until("a ready set", || api.is_ready(1)).await;
    api.take_lease();
    assert_eq!(operator.ended().await, Some(1), "{:?}", operator.log());
    assert!(scaling(&collector.spans(), 1).is_some());
    // The Lease is renewed at rest too: of that nothing is told.
    let of_lease = |span: &Span| span.name.contains("leases");
    assert!(!collector.spans().iter().any(of_lease));
    assert!(api.came().iter().filter(|came| came.line.contains("/leases")).all(|came| came.traceparent.is_none()));
}

#[tokio::test]
async fn of_what_is_not_sampled_nothing_is_sent_but_the_ids() {
    let (api, collector, mut operator) =
        begin(Protocol::Http, Manner::Good, &[("OTEL_TRACES_SAMPLER", "always_off")]).await;
    api.scale(2);
    until("a ready set", || api.is_ready(1)).await;
    operator.end().await;
    assert_eq!(collector.requests().len(), 0);
    let sent: Vec<String> = api.came().into_iter().filter_map(|came| came.traceparent).collect();
    assert!(!sent.is_empty() && sent.iter().all(|parent| parent.ends_with("-00")), "{sent:?}");
}
