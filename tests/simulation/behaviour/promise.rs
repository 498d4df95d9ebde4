//! The observers: what they accept, what they catch and what they report.

use std::panic::{AssertUnwindSafe, catch_unwind};

use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams};

use super::{watches::server_without_nodes, *};

fn with_pods(replicas: i64, pods: &[&str]) -> (ApiServer, String) {
    let server = server_without_nodes();
    let uid = server.create_podset("default", "web", replicas);
    for pod in pods {
        owned_pod(&server, &uid, pod);
    }
    (server, uid)
}

#[tokio::test(start_paused = true)]
async fn n_pods_are_accepted_and_one_more_is_caught() {
    let (server, uid) = with_pods(2, &["a", "b"]);
    assert_eq!(server.first_violation(), None);
    owned_pod(&server, &uid, "c");
    server.kill_pod("default", "c");
    let panic = catch_unwind(AssertUnwindSafe(|| drop(server))).expect_err("the violation is remembered");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains(&format!("default/web ({uid}) has 3 pods where 2 are allowed")), "{text}");
    assert!(text.contains("Added Pod default/c by user (Pending)"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn pods_count_for_the_uid_of_their_owner_and_not_for_its_name() {
    let (server, former) = with_pods(1, &["a"]);
    server.settings(|s| s.collect_after = seconds(60));
    server.delete_podset("default", "web");
    let uid = server.create_podset("default", "web", 1);
    owned_pod(&server, &uid, "b");
    assert_eq!(server.first_violation(), None);
    owned_pod(&server, &former, "c");
    assert!(server.has_broken(&former), "the last value of N holds for a deleted set");
    server.strip_owner("default", "c");
    assert_eq!(server.live_pods("default", "web"), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn only_a_failed_pod_that_runs_again_is_exempt_and_only_for_a_while() {
    let (server, uid) = with_pods(2, &["a", "b"]);
    server.fail_pod("default", "a");
    owned_pod(&server, &uid, "c");
    server.run_again("default", "a");
    assert_eq!(server.first_violation(), None);
    tokio::time::sleep(seconds(301)).await;
    server.kill_pod("default", "b");
    assert_eq!(server.first_violation(), None);
    owned_pod(&server, &uid, "d");
    assert!(server.first_violation().is_some(), "the time is over");

    let (server, uid) = with_pods(2, &["a", "b"]);
    server.fail_pod("default", "a");
    owned_pod(&server, &uid, "c");
    server.run_again("default", "a");
    owned_pod(&server, &uid, "d");
    assert!(server.first_violation().is_some(), "one more pod than the one that runs again");
}

/// A set with two pods. The client `test` has created the pods and read the set.
async fn with_two() -> ApiServer {
    let server = server_without_nodes();
    let uid = server.create_podset("default", "web", 2);
    // Otherwise, pods of another template could be deleted, too.
    server.patch(&PODSETS, "default", "web", json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }));
    for name in ["web-poda", "web-podb"] {
        let owner = object::owner_reference("web", &uid);
        let labels = json!({ "app.kubernetes.io/managed-by": "podset-operator" });
        let metadata = json!({ "name": name, "labels": labels, "ownerReferences": [owner] });
        pods(&server).create(&PostParams::default(), &pod(metadata)).await.expect("created");
    }
    podsets(&server).get("web").await.expect("read");
    server
}

/// The set of [`with_two`] is scaled down to one pod, and the client knows it.
async fn scaled_down() -> ApiServer {
    let server = with_two().await;
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    server
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_changes_more_than_a_status_or_a_pod_of_a_user_is_caught() {
    let server = with_two().await;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    podsets(&server).patch("web", &PatchParams::default(), &patch).await.expect("patched");
    assert!(server.has_broken("more than a status"));

    let server = with_two().await;
    server.create_pod("default", "theirs", json!({}));
    pods(&server).patch("web-poda", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(server.first_violation(), None);
    pods(&server).patch("theirs", &PatchParams::default(), &patch).await.expect("patched");
    assert!(server.has_broken("a replica changed a pod of a user"));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_right_is_caught() {
    let (server, uid) = with_pods(2, &["a", "b"]);
    let events: Api<Event> = Api::namespaced(server.client("test"), "default");
    let report = async |name: &str, reason: &str, note: &str| {
        let event = json!({
            "metadata": { "name": name }, "eventTime": null, "reason": reason, "note": note,
            "regarding": { "kind": "PodSet", "namespace": "default", "name": "web", "uid": uid },
        });
        let event = serde_json::from_value(event).expect("an event");
        events.create(&PostParams::default(), &event).await.expect("created");
    };
    report("a", "ScaledUp", "Scaled up from 0 to 2").await;
    // A create was rejected, but in another namespace.
    server.create_namespace("other");
    server.set_quota("other", 0);
    let others: Api<Pod> = Api::namespaced(server.client("test"), "other");
    others.create(&PostParams::default(), &pod(json!({ "name": "a" }))).await.expect_err("rejected");
    assert_eq!(server.first_violation(), None);
    report("b", "ScaledUp", "Scaled up from 0 to 3").await;
    report("c", "FailedCreate", "no").await;
    let found = server.violations();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|found| found.starts_with("an event is wrong: ")), "{found:?}");
}

/// Whether a delete of this pod by the client `test` breaks a promise.
async fn is_caught(server: &ApiServer, pod: &str) -> bool {
    assert_eq!(server.first_violation(), None);
    // The result does not matter.
    let _ = pods(server).delete(pod, &DeleteParams::default()).await;
    server.has_also_broken("without a reason")
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_judged_by_what_its_sender_has_received() {
    let server = with_two().await;
    assert!(is_caught(&server, "web-poda").await, "no surplus");

    let server = with_two().await;
    server.scale("default", "web", 1);
    assert!(is_caught(&server, "web-poda").await, "it has not received the scale-down");

    let server = scaled_down().await;
    assert!(!is_caught(&server, "web-poda").await);
    assert!(is_caught(&server, "web-podb").await, "the first delete already removes the surplus");

    let server = scaled_down().await;
    server.kill_pod("default", "web-podb");
    assert!(!is_caught(&server, "web-poda").await, "it has not received the deletion of the other pod");

    let server = scaled_down().await;
    server.kill_pod("default", "web-podb");
    pods(&server).list(&ListParams::default()).await.expect("listed");
    tokio::time::sleep(seconds(61)).await;
    assert!(is_caught(&server, "web-poda").await, "it received the deletion long ago");

    let server = with_two().await;
    server.kill_pod("default", "web-podb");
    server.create_pod("default", "zzz", json!({}));
    let page = ListParams::default().limit(1);
    let first = pods(&server).list(&page).await.expect("a page");
    let next = page.continue_token(&first.metadata.continue_.expect("a token"));
    pods(&server).list(&next).await.expect("the last page");
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    tokio::time::sleep(seconds(61)).await;
    assert!(is_caught(&server, "web-poda").await, "the other pod was on no page");

    let server = with_two().await;
    server.create_pod("default", "theirs", json!({}));
    assert!(is_caught(&server, "theirs").await, "it has never received that pod");
}
