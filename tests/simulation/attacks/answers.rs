//! A9, and other responses to a create: webhooks that change pods, rejections, quotas, namespaces that terminate.

use std::collections::BTreeSet;

use operator_kit::telemetry::metrics::Format::OpenMetrics;

use super::*;

/// This many pods are certainly too many for a set of three.
const MANY: usize = 10;

/// A9: for a minute, a webhook changes every pod like this. Also returns the largest number of pods at any time.
async fn a9(rules: Rules, change: fn(&mut Value)) -> (ApiServer, usize) {
    let server = ApiServer::new(1);
    server.change_new_pods(change);
    server.create_podset(NS, "web", 3);
    let _operator = Operator::leader(&server, "a", rules);
    let mut most = 0;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(server.all(&PODS, NS).len());
        if most > MANY {
            return (server, most);
        }
    }
    assert!(server.effects(&Requests::creates("pods")) < 10);
    assert_eq!(server.events(NS, "ScaledUp").len(), 0, "pods that are deleted again are no scale-up");
    server.lift_webhook();
    at_rest(&server, "web", 3).await;
    assert_eq!((server.events(NS, "ScaledUp").len(), server.all(&PODS, NS).len()), (1, 3));
    (server, most)
}

fn remove_owner(pod: &mut Value) {
    pod["metadata"]["ownerReferences"] = json!([]);
}

/// Sets another name each time.
fn rename(pod: &mut Value) {
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    pod["metadata"]["name"] = json!(format!("renamed-{}", DRAWN.fetch_add(1, Ordering::Relaxed)));
}

#[tokio::test(start_paused = true)]
async fn a9_pods_changed_by_a_webhook_are_deleted() {
    for change in [remove_owner as fn(&mut Value), |pod| pod["metadata"]["labels"] = json!({}), rename] {
        let (server, most) = a9(Rules::default(), change).await;
        assert_eq!((most, server.events(NS, "FailedCreate").len()), (1, 1));
    }
    let careless = Rules { differs: |_, _, _, _| None, ..Rules::default() };
    assert!(a9(careless, remove_owner).await.1 > MANY, "the attack must succeed if created pods are not compared");
}

/// The response is lost, the watch does not show the pod, and a webhook would give the repeated create another name.
#[tokio::test(start_paused = true)]
async fn an_unanswered_create_makes_no_second_pod_despite_webhooks() {
    let (server, _operator) = server_and_leader();
    server.change_new_pods(|pod| _ = pod["metadata"]["labels"].as_object_mut().unwrap().remove(LABEL));
    server.fault(Requests::creates("pods").first(1), Fault::ExecuteThenCut);
    server.create_podset(NS, "web", 1);
    server.wait_until(|s| s.all(&PODS, NS).len() == 1, seconds(5)).await;
    server.change_new_pods(|pod| pod["metadata"]["name"] = json!("renamed"));
    at_rest(&server, "web", 1).await;
    assert_eq!(server.effects(&Requests::creates("pods")), 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_stray_of_a_deleted_set_takes_few_requests() {
    let (server, _operator) = server_and_leader();
    terminate_slowly(&server, 30);
    server.change_new_pods(|pod| pod["metadata"]["ownerReferences"] = json!([]));
    server.create_podset(NS, "web", 1);
    server.wait_until(|s| s.all(&PODS, NS).len() == 1, seconds(5)).await;
    server.delete_podset(NS, "web");
    sleep(60).await;
    assert!(server.count(&Requests::deletes("pods")) < 8);
}

/// Checks that the conditions and one event report the missing pods, the cause and the retry.
fn assert_failed_creates_are_reported(server: &ApiServer) {
    for (kind, expected) in [
        ("Ready", "False/PodsNotReady: "),
        ("Reconciling", "True/Retrying: "),
        ("ReplicaFailure", "True/FailedCreate: "),
    ] {
        assert!(condition(server, kind).starts_with(expected), "{kind}: {}", condition(server, kind));
    }
    assert_eq!(server.events(NS, "FailedCreate").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn creates_beyond_a_quota_are_retried_with_backoff() {
    let (server, _operator) = server_and_leader();
    server.set_quota(NS, 2);
    server.create_podset(NS, "web", 5);
    sleep(60).await;
    assert_eq!(server.live_pods(NS, "web").len(), 2);
    assert_failed_creates_are_reported(&server);
    assert_eq!(server.events(NS, "ScaledUp").len(), 1);
    let rejected = server.count(&Requests::creates("pods")) - 2;
    assert!((5..=8).contains(&rejected), "1 s, 2 s, 4 s, … 30 s: {rejected}");

    let patches = server.count(&Requests::status_patches("podsets"));
    sleep(120).await;
    assert_eq!(server.count(&Requests::status_patches("podsets")), patches, "nothing changed, so no status is written");
    server.lift_quota(NS);
    at_rest(&server, "web", 5).await;
    assert_eq!(condition(&server, "ReplicaFailure"), "");
    let notes: Vec<_> = server.events(NS, "ScaledUp").iter().map(|event| event["note"].clone()).collect();
    assert_eq!(notes, ["Scaled up from 0 to 2", "Scaled up from 2 to 5"]);

    server.set_quota(NS, 4);
    let creates = server.count(&Requests::creates("pods"));
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    sleep(10).await;
    assert_eq!(server.count(&Requests::creates("pods")) - creates, 4, "the backoff starts again: 0, 1, 3, 7 s");
}

/// Each of these creates may have created a pod, and counts as one for a minute, so few names are used. The condition has the message of the
/// API server or, if the connection broke, the operator's own.
#[tokio::test(start_paused = true)]
async fn creates_of_unknown_fate_are_reported_and_retried() {
    let failed = || Fault::Refuse(Status::of_code(500));
    for (replicas, fault, words) in [
        (1, failed(), "injected by the test"),
        (3, failed(), "injected by the test"),
        (3, Fault::Delay(seconds(3_600)), "request did not complete within requested timeout"),
        (6, Fault::CutBefore, "connection closed before message completed"),
    ] {
        let (server, _operator) = server_and_leader();
        let failing = server.fault(Requests::creates("pods"), fault);
        server.create_podset(NS, "web", replicas);
        sleep(60).await;
        let creates = server.requests(&Requests::creates("pods"));
        assert!((5..=8).contains(&creates.len()), "1 s, 2 s, 4 s, … 30 s: {}", creates.len());
        let names: BTreeSet<&str> = creates.iter().map(|create| object::name(&create.request.body)).collect();
        assert!(names.len() <= 3, "{names:?}");
        assert_failed_creates_are_reported(&server);
        assert!(condition(&server, "Ready").contains(words), "{}", condition(&server, "Ready"));
        sleep(60).await;
        failing.remove();
        at_rest(&server, "web", usize::try_from(replicas).unwrap()).await;
        assert_eq!(condition(&server, "ReplicaFailure"), "");
        assert_eq!(["ScaledUp", "PodsReplaced"].map(|reason| server.events(NS, reason).len()), [1, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_creates_fail_holds_up_no_other() {
    for fault in [
        Fault::Refuse(Status::of_code(403)),
        Fault::Refuse(Status::of_code(504)),
        Fault::Delay(seconds(3_600)),
        Fault::CutBefore,
    ] {
        let (server, operator) = with_set(3, Rules::default()).await;
        let pods = server.live_pods(NS, "web");
        operator.end().await;
        server.fault(Requests::creates("pods").named(&pods[0]), fault);
        for pod in &pods {
            server.kill_pod(NS, pod);
        }
        sleep(100).await;
        let _operator = Operator::leader(&server, "b", Rules::default());
        server.wait_until(|s| s.live_pods(NS, "web").len() == 2, seconds(60)).await;
        server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
        sleep(1).await;
        server.wait_until(|s| s.live_pods(NS, "web").len() == 2, seconds(60)).await;
    }
}

/// The first create fails, or a short outage hits several creates in flight.
#[tokio::test(start_paused = true)]
async fn creates_that_fail_once_are_not_reported() {
    for (failing, fault) in [(0..1, Fault::Refuse(Status::of_code(500))), (3..5, Fault::CutBefore)] {
        let (server, _operator) = with_set(3, Rules::default()).await;
        let sent = AtomicU32::new(0);
        let some = Requests::creates("pods").when(move |_| failing.contains(&sent.fetch_add(1, Ordering::Relaxed)));
        let rule = server.fault(some, fault.clone());
        server.scale(NS, "web", 10);
        at_rest(&server, "web", 10).await;
        assert!(rule.hits() > 0 && server.events(NS, "FailedCreate").is_empty(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_gets_few_creates_and_no_events() {
    let (server, former) = server_and_leader();
    terminate_slowly(&server, 600);
    // The namespace controller deletes the set last. It may choose any order.
    server.settings(|settings| settings.collect_after = seconds(600));
    server.create_podset("doomed", "web", 3);
    let templated = json!({ "replicas": 3, "template": rollouts::template("a") });
    server.create(&PODSETS, "doomed", json!({ "metadata": { "name": "other" }, "spec": templated }));
    let sets = ["web", "other"];
    server.wait_until(|s| sets.iter().all(|set| s.live_pods("doomed", set).len() == 3), seconds(60)).await;
    sleep(10).await;
    // A new leader does not know that a template is stored.
    drop(former);
    server.delete_namespace("doomed");
    let sent = || ["pods", "controllerrevisions", "events"].map(|kind| server.count(&Requests::creates(kind)));
    let [pods, revisions, events] = sent();
    for set in sets {
        server.kill_pod("doomed", &server.live_pods("doomed", set)[0]);
    }
    let operator = Operator::leader(&server, "b", Rules::default());
    sleep(300).await;
    let expected = [pods + 6, revisions + 6, events];
    assert_eq!(sent(), expected, "one request of each set after 0, 1, 3, 7, 15 and 31 s, and no events");
    let text = operator.context.metrics.text(OpenMetrics).unwrap();
    let errors = r#"controller_runtime_reconcile_errors_total{controller="podset"} 0"#;
    assert!(text.contains(errors), "no reconcile error is counted: {text}");
    assert!(!text.contains("web") && !text.contains("doomed"), "no label is an object's name: {text}");
}
