//! Quotas, webhooks, terminating namespaces, events and generated names.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;

use super::{from, pod, pods, refusal};
use crate::apiserver::{ApiServer, NAMESPACES, Status, object};

#[tokio::test(start_paused = true)]
async fn a_quota_counts_pods_that_have_not_finished() {
    let server = ApiServer::new(1);
    server.set_quota("default", "q", 1);
    let api = pods(&server);
    let create = async |name: &str| api.create(&PostParams::default(), &pod(json!({ "name": name }))).await;
    create("a").await.expect("created");
    let status = refusal(create("b").await);
    let text = "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: \
                pods=1";
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (403, "Forbidden", text));
    assert_eq!(refusal(create("a").await).code, 403, "before the name is looked up");
    server.fail_pod("default", "a");
    create("b").await.expect("a finished pod takes no room");
    server.lift_quota("default");
    create("c").await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_refuses_or_changes_pods() {
    let server = ApiServer::new(1);
    server.set_webhook(|pod| {
        if object::name(pod) == "bad" {
            return Err(Status::of_code(403));
        }
        object::meta_mut(pod).remove("ownerReferences");
        pod["metadata"]["labels"] = json!({ "changed": "yes" });
        Ok(())
    });
    let api = pods(&server);
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": true }]);
    let owned = pod(json!({ "name": "good", "ownerReferences": owner }));
    let created = api.create(&PostParams::default(), &owned).await.expect("created");
    assert!(created.owner_references().is_empty());
    assert_eq!(created.labels().get("changed").map(String::as_str), Some("yes"));
    let bad = api.create(&PostParams::default(), &pod(json!({ "name": "bad" }))).await;
    assert_eq!(refusal(bad).code, 403);
    server.lift_webhook();
    api.create(&PostParams::default(), &pod(json!({ "name": "bad" }))).await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_empties() {
    let server = ApiServer::new(1);
    server.create_namespace("doomed");
    server.create_pod("doomed", "a", json!({}));
    let running = |s: &ApiServer| object::phase(&s.pod("doomed", "a")) == "Running";
    server.wait_until(running, Duration::from_secs(5)).await;
    server.create_podset("doomed", "web", 1);
    server.delete_namespace("doomed");
    let gone = |s: &ApiServer| s.get(&NAMESPACES, "", "doomed").is_null();
    server.wait_until(gone, Duration::from_secs(10)).await;
    assert!(server.pod("doomed", "a").is_null() && server.podset("doomed", "web").is_null());
}

#[tokio::test(start_paused = true)]
async fn events_are_stored_for_tests_to_read() {
    let server = ApiServer::new(1);
    let api: Api<Event> = Api::namespaced(server.client("test"), "default");
    let event: Event = from(json!({
        "metadata": { "generateName": "web." },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "ScaledUp",
        "note": "from 0 to 3",
        "type": "Normal",
    }));
    api.create(&PostParams::default(), &event).await.expect("created");
    assert_eq!(server.events("default", "ScaledUp")[0]["note"], "from 0 to 3");
    assert_eq!(server.events("default", "").len(), 1);
    assert!(server.events("default", "ScaledDown").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_has_five_characters_of_the_known_alphabet() {
    let server = ApiServer::new(7);
    let pods = pods(&server);
    let generated = pod(json!({ "generateName": "web-pod" }));
    let first = pods.create(&PostParams::default(), &generated).await.expect("created").name_any();
    let second = pods.create(&PostParams::default(), &generated).await.expect("created").name_any();
    assert_ne!(first, second);
    let suffix = first.strip_prefix("web-pod").expect("the base");
    assert_eq!(suffix.len(), 5);
    assert!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{suffix}");

    let long = pod(json!({ "generateName": "x".repeat(80) }));
    let cut = pods.create(&PostParams::default(), &long).await.expect("created").name_any();
    assert_eq!(cut.len(), 63);
}
