//! A9, and what else the API server may say to a create: webhooks that change pods, refusals, quotas, namespaces that go.

use operator_kit::telemetry::metrics::Format::OpenMetrics;
use podset_operator::podset::promise::Rules;
use serde_json::{Value, json};

use super::*;
use crate::apiserver::{Fault, PODS, Requests, Status};

/// Pods of a set of three that are certainly too many.
const MANY: usize = 10;

/// A9: a webhook takes the owner reference off every pod of the set.
async fn a9(rules: Rules) -> (ApiServer, usize) {
    let server = ApiServer::new(1);
    server.set_webhook(|pod| {
        pod["metadata"]["ownerReferences"] = json!([]);
        Ok(())
    });
    server.create_podset(NS, "web", 3);
    let operator = leader(&server, rules);
    let mut most = 0;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(server.all(&PODS, NS).len());
        if most > MANY {
            break;
        }
    }
    server.lift_webhook();
    if most <= MANY {
        at_rest(&server, "web", 3).await;
        operator.end().await;
    } else {
        operator.kill();
    }
    server.check();
    (server, most)
}

#[tokio::test(start_paused = true)]
async fn a9_pods_that_come_back_changed_are_deleted() {
    let (server, most) = a9(Rules::default()).await;
    assert_eq!(most, 1);
    assert_eq!(server.all(&PODS, NS).len(), 3);
    assert_eq!(server.events(NS, "FailedCreate").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a9_succeeds_if_what_comes_back_is_not_looked_at() {
    assert!(a9(Rules { differs: |_, _, _, _| None, ..Rules::default() }).await.1 > MANY);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_takes_the_label_away_makes_no_pods_without_end() {
    let server = ApiServer::new(1);
    server.set_webhook(|pod| {
        pod["metadata"]["labels"] = json!({});
        Ok(())
    });
    server.create_podset(NS, "web", 3);
    let _operator = leader(&server, Rules::default());
    sleep(60).await;
    assert!(server.effects(&Requests::creates("pods")) < 10);
    assert_eq!(server.events(NS, "ScaledUp").len(), 0, "what goes again is no scale");
    assert_eq!(server.events(NS, "FailedCreate").len(), 1);
    server.lift_webhook();
    at_rest(&server, "web", 3).await;
    assert_eq!(server.events(NS, "ScaledUp").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_renames_pods_makes_no_pods_without_end() {
    let server = ApiServer::new(1);
    let drawn = std::sync::atomic::AtomicU32::new(0);
    server.set_webhook(move |pod| {
        let number = drawn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        pod["metadata"]["name"] = json!(format!("renamed-{number}"));
        Ok(())
    });
    server.create_podset(NS, "web", 3);
    let _operator = leader(&server, Rules::default());
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(server.all(&PODS, NS).len() <= 1);
    }
    server.lift_webhook();
    at_rest(&server, "web", 3).await;
}

/// The answer is lost, the watch does not show the pod, and the same create would come back under another name.
#[tokio::test(start_paused = true)]
async fn webhooks_that_hide_and_rename_make_no_second_pod_of_a_create_without_an_answer() {
    let server = ApiServer::new(1);
    server.set_webhook(|pod| {
        pod["metadata"]["labels"].as_object_mut().unwrap().remove("app.kubernetes.io/managed-by");
        Ok(())
    });
    server.fault(Requests::creates("pods").first(1), Fault::ExecuteThenCut);
    server.create_podset(NS, "web", 1);
    let _operator = leader(&server, Rules::default());
    server.wait_until(|s| s.all(&PODS, NS).len() == 1, seconds(5)).await;
    server.set_webhook(|pod| {
        pod["metadata"]["name"] = json!("renamed");
        Ok(())
    });
    at_rest(&server, "web", 1).await;
    assert_eq!(server.effects(&Requests::creates("pods")), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stray_of_a_set_that_is_deleted_is_deleted_without_haste() {
    let server = ApiServer::new(1);
    going_slowly(&server, 30);
    server.set_webhook(|pod| {
        pod["metadata"]["ownerReferences"] = json!([]);
        Ok(())
    });
    server.create_podset(NS, "web", 1);
    let _operator = leader(&server, Rules::default());
    server.wait_until(|s| s.all(&PODS, NS).len() == 1, seconds(5)).await;
    server.delete_podset(NS, "web");
    sleep(60).await;
    assert!(server.count(&Requests::deletes("pods")) < 8);
}

fn condition(server: &ApiServer, kind: &str) -> (Value, Value) {
    let set = server.podset(NS, "web");
    let held = set["status"]["conditions"].as_array().into_iter().flatten().find(|held| held["type"] == kind);
    held.map(|held| (held["status"].clone(), held["reason"].clone())).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_waited_for() {
    let server = ApiServer::new(1);
    server.set_quota(NS, "two", 2);
    server.create_podset(NS, "web", 5);
    let _operator = leader(&server, Rules::default());
    sleep(60).await;
    assert_eq!(server.live_pods(NS, "web").len(), 2);
    assert_eq!(condition(&server, "Ready"), (json!("False"), json!("PodsNotReady")));
    assert_eq!(condition(&server, "Reconciling"), (json!("True"), json!("Retrying")));
    assert_eq!(condition(&server, "ReplicaFailure"), (json!("True"), json!("FailedCreate")));
    assert_eq!(server.events(NS, "FailedCreate").len(), 1);
    assert_eq!(server.events(NS, "ScaledUp").len(), 1);
    let refused = server.count(&Requests::creates("pods")) - 2;
    assert!((5..=8).contains(&refused), "1 s, 2 s, 4 s, … 30 s: {refused}");

    let patches = server.count(&Requests::status_patches("podsets"));
    sleep(120).await;
    assert_eq!(server.count(&Requests::status_patches("podsets")), patches, "nothing new, nothing written");
    server.lift_quota(NS);
    at_rest(&server, "web", 5).await;
    assert_eq!(condition(&server, "ReplicaFailure"), Default::default());

    server.set_quota(NS, "four", 4);
    let creates = server.count(&Requests::creates("pods"));
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    sleep(10).await;
    assert_eq!(server.count(&Requests::creates("pods")) - creates, 4, "after a cure it begins anew: 0, 1, 3, 7 s");
    server.check();
}

/// The API server fails where a webhook does not answer: nobody can say that it made no pod.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_away_is_told_and_waited_for() {
    for replicas in [1, 3] {
        let server = ApiServer::new(1);
        let away = server.fault(Requests::creates("pods"), Fault::Refuse(Status::of_code(500)));
        server.create_podset(NS, "web", replicas);
        let _operator = leader(&server, Rules::default());
        sleep(60).await;
        assert_eq!(condition(&server, "Ready"), (json!("False"), json!("PodsNotReady")));
        assert_eq!(condition(&server, "Reconciling"), (json!("True"), json!("Retrying")));
        assert_eq!(condition(&server, "ReplicaFailure"), (json!("True"), json!("FailedCreate")));
        assert_eq!(server.events(NS, "FailedCreate").len(), 1);
        let tried = server.count(&Requests::creates("pods"));
        assert!((5..=8).contains(&tried), "1 s, 2 s, 4 s, … 30 s: {tried}");
        away.remove();
        let replicas = usize::try_from(replicas).unwrap();
        at_rest(&server, "web", replicas).await;
        assert_eq!(condition(&server, "ReplicaFailure"), Default::default());
    }
}

/// A webhook that never answers is told in the API server's own words, which come before the operator's patience ends; a
/// connection that breaks, in the operator's.
#[tokio::test(start_paused = true)]
async fn creates_of_which_nothing_is_known_are_told_as_well() {
    for (fault, words) in [
        (Fault::HoldExecution, "request did not complete within requested timeout"),
        (Fault::CutBefore, "connection closed before message completed"),
    ] {
        let server = ApiServer::new(1);
        let away = server.fault(Requests::creates("pods"), fault);
        server.create_podset(NS, "web", 3);
        let _operator = leader(&server, Rules::default());
        sleep(120).await;
        assert_eq!(condition(&server, "ReplicaFailure"), (json!("True"), json!("FailedCreate")));
        let ready = server.podset(NS, "web")["status"]["conditions"][0]["message"].as_str().unwrap().to_owned();
        assert!(ready.contains(words), "{ready}");
        assert_eq!(server.events(NS, "FailedCreate").len(), 1);
        away.release();
        self::ready(&server, "web", 3).await;
        assert_eq!(condition(&server, "ReplicaFailure"), Default::default());
        server.check();
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_when_the_webhook_is_back_replace_none() {
    let server = ApiServer::new(1);
    let away = server.fault(Requests::creates("pods").after(2), Fault::Refuse(Status::of_code(500)));
    server.create_podset(NS, "web", 3);
    let _operator = leader(&server, Rules::default());
    sleep(20).await;
    assert_eq!(server.live_pods(NS, "web").len(), 2);
    away.remove();
    ready(&server, "web", 3).await;
    sleep(10).await;
    let notes: Vec<_> = server.events(NS, "ScaledUp").iter().map(|event| event["note"].clone()).collect();
    assert_eq!(notes, ["Scaled up from 0 to 2", "Scaled up from 2 to 3"]);
    assert_eq!(server.events(NS, "PodsReplaced").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_moment_of_the_api_servers_is_not_told() {
    let server = ApiServer::new(1);
    server.fault(Requests::creates("pods").first(1), Fault::Refuse(Status::of_code(500)));
    server.create_podset(NS, "web", 3);
    let _operator = leader(&server, Rules::default());
    at_rest(&server, "web", 3).await;
    assert_eq!(server.events(NS, "FailedCreate").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_can_never_work_is_told_and_its_correction_tried_at_once() {
    let server = ApiServer::new(1);
    let spec = json!({ "replicas": 2, "template": { "spec": { "containers": [] } } });
    server.create(&crate::apiserver::PODSETS, NS, json!({ "metadata": { "name": "web" }, "spec": spec }));
    let _operator = leader(&server, Rules::default());
    sleep(60).await;
    assert_eq!(condition(&server, "Stalled"), (json!("True"), json!("InvalidTemplate")));
    let cure = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    server.patch(&crate::apiserver::PODSETS, NS, "web", cure);
    assert!(becomes_ready(&server, "web", 2, 3).await);
    at_rest(&server, "web", 2).await;
    assert_eq!(condition(&server, "Stalled"), Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_goes_is_left_in_peace() {
    let server = ApiServer::new(1);
    going_slowly(&server, 600);
    // The set goes last, as it may.
    server.settings(|settings| settings.collect_after = seconds(600));
    server.create_podset("doomed", "web", 3);
    let operator = leader(&server, Rules::default());
    server.wait_until(|s| s.ready_pods("doomed", "web").len() == 3, seconds(60)).await;
    sleep(10).await;
    server.delete_namespace("doomed");
    let sent = || ["pods", "events"].map(|kind| server.count(&Requests::creates(kind)));
    let [pods, events] = sent();
    server.kill_pod("doomed", &server.live_pods("doomed", "web")[0]);
    sleep(300).await;
    assert_eq!(sent(), [pods + 6, events], "after 0, 1, 3, 7, 15 and 31 s, and nothing is told");
    let text = operator.metrics().text(OpenMetrics).unwrap();
    let errors = r#"controller_runtime_reconcile_errors_total{controller="podset"} 0"#;
    assert!(text.contains(errors), "and it is no failure: {text}");
}

/// A namespace is deleted and made anew, and an API server that lags behind still speaks of the former one.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_made_anew_gets_its_pods_at_once() {
    let server = ApiServer::new(1);
    server.create_podset("phoenix", "web", 3);
    let _operator = leader(&server, Rules::default());
    server.wait_until(|s| s.ready_pods("phoenix", "web").len() == 3, seconds(60)).await;
    server.delete_namespace("phoenix");
    server.kill_pod("phoenix", &server.live_pods("phoenix", "web")[0]);
    server
        .wait_until(|s| s.podset("phoenix", "web").is_null() && s.all(&PODS, "phoenix").is_empty(), seconds(120))
        .await;
    sleep(60).await;
    let rejection = Status::namespace_terminating(&PODS, "web-pod", "phoenix");
    let lagging = server.fault(Requests::creates("pods").in_namespace("phoenix").first(3), Fault::Refuse(rejection));
    server.create_podset("phoenix", "web", 3);
    server.wait_until(|s| s.ready_pods("phoenix", "web").len() == 3, seconds(10)).await;
    assert_eq!(lagging.hits(), 3);
    server.check();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_comes_and_goes_costs_no_pod() {
    let server = ApiServer::new(1);
    server.set_webhook(|_| Err(Status::of_code(403)));
    server.create_podset(NS, "web", 3);
    let _operator = leader(&server, Rules::default());
    sleep(20).await;
    assert_eq!(server.all(&PODS, NS).len(), 0);
    server.lift_webhook();
    at_rest(&server, "web", 3).await;
}
