//! The checkers themselves, of "never more than N" and of deletes: what they let pass, what they catch, what they tell.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{pod, pods, podsets, watches::still};
use crate::apiserver::{ApiServer, PODS, PODSETS};

fn owned(server: &ApiServer, owner: &str, name: &str) {
    server.create(
        &PODS,
        "default",
        json!({
            "metadata": { "name": name, "ownerReferences": [{
                "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web",
                "uid": owner, "controller": true,
            }]},
            "spec": { "containers": [{ "name": "main", "image": "example.com/main" }] },
        }),
    );
}

fn with_pods(replicas: i64, pods: &[&str]) -> (ApiServer, String) {
    let server = still();
    let uid = server.create_podset("default", "web", replicas);
    for pod in pods {
        owned(&server, &uid, pod);
    }
    (server, uid)
}

/// The operator says: this generation is what I answer.
fn observe(server: &ApiServer, generation: i64) {
    let status = json!({ "status": { "observedGeneration": generation } });
    server.act(|state| {
        let stored = state.get(&PODSETS, "default", "web").cloned().expect("the set");
        let mut new = (*stored).clone();
        new["status"] = status["status"].clone();
        state.replace(&PODSETS, "status", &stored, new, "operator").expect("replaced");
    });
}

#[tokio::test(start_paused = true)]
async fn as_many_as_wanted_are_fine_and_one_more_is_caught() {
    let (server, uid) = with_pods(2, &["a", "b"]);
    assert!(server.violations().is_empty());
    assert_eq!(server.most_live(&uid), 2);
    owned(&server, &uid, "c");
    let violation = &server.violations()[0];
    assert_eq!((violation.live, violation.bound), (3, 2));
    assert_eq!((violation.uid.as_str(), violation.set.as_str()), (uid.as_str(), "default/web"));
    let last = violation.history.last().expect("a history");
    assert!(last.contains("Added Pod default/c by user (Pending): 3 live"), "{last}");
    server.kill_pod("default", "c");
    let panic = catch_unwind(AssertUnwindSafe(|| server.check())).expect_err("it is remembered");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains("had 3 live pods where 2 are allowed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn terminating_and_finished_pods_do_not_count() {
    let (server, uid) = with_pods(2, &["a", "b"]);
    server.fail_pod("default", "a");
    server.succeed_pod("default", "b");
    owned(&server, &uid, "c");
    owned(&server, &uid, "d");
    server.act(|state| {
        let pod = state.get(&PODS, "default", "c").cloned().expect("the pod");
        let mut new = (*pod).clone();
        new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z".into();
        state.put(&PODS, new, "kubelet");
    });
    owned(&server, &uid, "e");
    assert!(server.violations().is_empty());
    assert_eq!(server.most_live(&uid), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_scale_down_the_surplus_is_allowed_until_the_operator_says_it_is_done() {
    let (server, uid) = with_pods(3, &["a", "b", "c"]);
    observe(&server, 1);
    server.scale("default", "web", 1);
    assert!(server.violations().is_empty());
    server.kill_pod("default", "a");
    owned(&server, &uid, "d");
    assert!(server.violations().is_empty());
    observe(&server, 2);
    let violation = &server.violations()[0];
    assert_eq!((violation.live, violation.bound), (3, 1), "said too early");
}

#[tokio::test(start_paused = true)]
async fn a_scale_up_allows_more_at_once() {
    let (server, uid) = with_pods(1, &["a"]);
    observe(&server, 1);
    server.scale("default", "web", 2);
    owned(&server, &uid, "b");
    assert!(server.violations().is_empty());
    // A generation without a change of replicas keeps the number.
    server.patch(&PODSETS, "default", "web", json!({ "spec": { "template": {} } }));
    observe(&server, 3);
    assert!(server.violations().is_empty());
    owned(&server, &uid, "c");
    assert_eq!(server.violations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_count_for_the_uid_and_not_for_the_name() {
    let (server, former) = with_pods(1, &["a"]);
    server.settings(|s| s.collect_after = std::time::Duration::from_secs(60));
    server.delete_podset("default", "web");
    let uid = server.create_podset("default", "web", 1);
    owned(&server, &uid, "b");
    assert!(server.violations().is_empty());
    owned(&server, &former, "c");
    assert_eq!(server.violations()[0].uid, former, "its last value holds for a set that is gone");
    server.strip_owner("default", "c");
    assert_eq!(server.live_pods("default", "web"), ["b"]);
}

/// A pod of another namespace names the set as its owner.
#[tokio::test(start_paused = true)]
async fn pods_count_in_the_namespace_of_their_set() {
    let (server, uid) = with_pods(1, &["a"]);
    let owner = json!({ "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web", "uid": uid, "controller": true });
    let spec = json!({ "containers": [{ "name": "main", "image": "example.com/main" }] });
    server.create(&PODS, "other", json!({ "metadata": { "name": "b", "ownerReferences": [owner] }, "spec": spec }));
    assert!(server.violations().is_empty());
    assert_eq!(server.most_live(&uid), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_failed_and_runs_again_is_exempt_for_a_while_and_no_other_is() {
    let (server, uid) = with_pods(2, &["a", "b"]);
    server.fail_pod("default", "a");
    owned(&server, &uid, "c");
    server.run_again("default", "a");
    assert!(server.violations().is_empty());
    tokio::time::sleep(std::time::Duration::from_secs(301)).await;
    server.kill_pod("default", "b");
    assert!(server.violations().is_empty());
    owned(&server, &uid, "d");
    assert_eq!(server.violations().len(), 1, "the time is over");

    let (server, uid) = with_pods(2, &["a", "b"]);
    server.fail_pod("default", "a");
    owned(&server, &uid, "c");
    server.run_again("default", "a");
    owned(&server, &uid, "d");
    assert_eq!(server.violations().len(), 1, "one more than the one that runs again");
}

/// A set that wants two pods, and the two, made by the client `test`; it has read the set.
async fn with_two() -> ApiServer {
    let server = still();
    let uid = server.create_podset("default", "web", 2);
    // Else pods of another template could be deleted, too.
    server.patch(&PODSETS, "default", "web", json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }));
    for name in ["web-poda", "web-podb"] {
        let owner = json!({
            "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web", "uid": uid, "controller": true,
        });
        let labels = json!({ "app.kubernetes.io/managed-by": "podset-operator" });
        let metadata = json!({ "name": name, "labels": labels, "ownerReferences": [owner] });
        pods(&server).create(&PostParams::default(), &pod(metadata)).await.expect("made");
    }
    podsets(&server).get("web").await.expect("read");
    server
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_changes_more_than_a_status_is_caught() {
    let server = with_two().await;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    podsets(&server).patch("web", &PatchParams::default(), &patch).await.expect("patched");
    assert!(server.broken().is_some_and(|broken| broken.contains("more than a status")));
}

/// Whether a delete of this pod by the client `test` breaks a promise.
async fn is_caught(server: &ApiServer, pod: &str) -> bool {
    assert_eq!(server.broken(), None);
    // Whatever comes of it.
    let _ = pods(server).delete(pod, &DeleteParams::default()).await;
    server.broken().is_some_and(|broken| broken.contains("without a reason"))
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_judged_by_what_its_sender_was_sent() {
    let server = with_two().await;
    assert!(is_caught(&server, "web-poda").await, "as many as are wanted");

    let server = with_two().await;
    server.scale("default", "web", 1);
    assert!(is_caught(&server, "web-poda").await, "it was not told that fewer are wanted");

    let server = with_two().await;
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    assert!(!is_caught(&server, "web-poda").await);
    assert!(is_caught(&server, "web-podb").await, "one delete is on its way");

    let server = with_two().await;
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    server.kill_pod("default", "web-podb");
    assert!(!is_caught(&server, "web-poda").await, "it was not told that the other one is gone");

    let server = with_two().await;
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    server.kill_pod("default", "web-podb");
    pods(&server).list(&ListParams::default()).await.expect("listed");
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    assert!(is_caught(&server, "web-poda").await, "it was told, long ago");

    let server = with_two().await;
    let page = ListParams::default().limit(1);
    let first = pods(&server).list(&page).await.expect("a page");
    let next = page.clone().continue_token(&first.metadata.continue_.expect("a token"));
    for _ in 0..2 {
        pods(&server).list(&next).await.expect("the last page");
    }
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    assert!(!is_caught(&server, "web-poda").await, "it was on the first page");

    let server = with_two().await;
    server.kill_pod("default", "web-podb");
    server.create_pod("default", "zzz", json!({}));
    let first = pods(&server).list(&page).await.expect("a page");
    let next = page.continue_token(&first.metadata.continue_.expect("a token"));
    pods(&server).list(&next).await.expect("the last page");
    server.scale("default", "web", 1);
    podsets(&server).get("web").await.expect("read");
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    assert!(is_caught(&server, "web-poda").await, "the other one was on no page");

    let server = with_two().await;
    server.create_pod("default", "theirs", json!({}));
    assert!(is_caught(&server, "theirs").await, "it never heard of that pod");
}
