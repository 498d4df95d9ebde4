//! Deletes: grace, preconditions, what comes back.

use std::time::Duration;

use kube::api::{DeleteParams, PostParams, Preconditions};
use serde_json::json;

use super::{pod, pods, podsets, refusal};
use crate::apiserver::{ApiServer, ChangeKind, PodScript, object};

/// A server with a running pod `a`.
async fn with_running_pod() -> ApiServer {
    let server = ApiServer::new(1);
    server.create_pod("default", "a", json!({}));
    let running = |s: &ApiServer| object::phase(&s.pod("default", "a")) == "Running";
    server.wait_until(running, Duration::from_secs(5)).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_pod_terminates_with_grace_and_then_goes() {
    let server = with_running_pod().await;
    server.pods_live(PodScript::default().gone_after(Duration::from_secs(4)));
    let answer = pods(&server).delete("a", &DeleteParams::default()).await.expect("deleted");
    let terminating = answer.left().expect("the pod itself").metadata;
    assert_eq!(terminating.deletion_grace_period_seconds, Some(30));
    assert_eq!(terminating.generation, Some(2));
    assert!(!object::is_live(&server.pod("default", "a")));

    tokio::time::sleep(Duration::from_secs(3)).await;
    let again = pods(&server).delete("a", &DeleteParams::default()).await.expect("deleted");
    let again = again.left().expect("the pod itself").metadata;
    assert_eq!(again.resource_version, terminating.resource_version, "nothing changes");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(server.pod("default", "a").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_or_grace_goes_at_once() {
    let server = ApiServer::new(1);
    server.pods_live(PodScript::unschedulable());
    server.create_pod("default", "waiting", json!({}));
    let answer = pods(&server).delete("waiting", &DeleteParams::default()).await.expect("deleted");
    let last = answer.left().expect("the pod itself").metadata;
    assert_eq!(last.deletion_grace_period_seconds, Some(0));
    assert!(server.pod("default", "waiting").is_null());
    // Watches see it terminate before they see it gone, as with a real server.
    let kinds: Vec<_> = server.changes_where(|c| object::name(&c.object) == "waiting");
    let kinds: Vec<_> = kinds.iter().map(|c| c.change).collect();
    assert_eq!(kinds, [ChangeKind::Added, ChangeKind::Modified, ChangeKind::Deleted]);

    let server = with_running_pod().await;
    let no_grace = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(&server).delete("a", &no_grace).await.expect("deleted");
    assert!(server.pod("default", "a").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_can_only_be_hurried() {
    let server = with_running_pod().await;
    server.pods_live(PodScript::default().hangs_in_termination());
    let delete = async |grace| {
        let params = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
        pods(&server).delete("a", &params).await.expect("deleted").left().expect("the pod itself")
    };
    let grace = |pod: k8s_openapi::api::core::v1::Pod| pod.metadata.deletion_grace_period_seconds;
    assert_eq!(grace(delete(Some(20)).await), Some(20));
    assert_eq!(grace(delete(Some(60)).await), Some(20));
    assert_eq!(grace(delete(Some(5)).await), Some(5));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!server.pod("default", "a").is_null(), "it hangs");
    assert_eq!(grace(delete(Some(0)).await), Some(0));
    assert!(server.pod("default", "a").is_null());
}

#[tokio::test(start_paused = true)]
async fn preconditions_keep_another_incarnation_safe() {
    let server = with_running_pod().await;
    let conditions = |uid: Option<&str>, version: Option<&str>| {
        let (uid, resource_version) = (uid.map(str::to_owned), version.map(str::to_owned));
        DeleteParams::default().preconditions(Preconditions { uid, resource_version })
    };
    let status = refusal(pods(&server).delete("a", &conditions(Some("other"), None)).await);
    let uid = object::uid(&server.pod("default", "a")).to_owned();
    let text = format!(
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (other) does not \
         match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!((status.code, status.reason.as_str(), status.message), (409, "Conflict", text));
    let status = refusal(pods(&server).delete("a", &conditions(Some(&uid), Some("1"))).await);
    assert!(status.message.contains("the ResourceVersion in the precondition (1) does not match"));
    assert!(pods(&server).delete("a", &conditions(Some(&uid), None)).await.is_ok());
    let status = refusal(pods(&server).delete("b", &conditions(Some(&uid), None)).await);
    assert_eq!(status.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_goes_at_once_and_leaves_a_status() {
    let server = ApiServer::new(1);
    let uid = server.create_podset("default", "web", 1);
    let answer = podsets(&server).delete("web", &DeleteParams::default()).await.expect("deleted");
    let status = answer.right().expect("a Status");
    assert!(status.is_success());
    let details = status.details.expect("details");
    assert_eq!((details.uid.as_str(), details.kind.as_str()), (uid.as_str(), "podsets"));
    assert!(server.podset("default", "web").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_an_object_until_it_is_taken_off() {
    let server = ApiServer::new(1);
    let kept = pod(json!({ "name": "kept", "finalizers": ["example.com/keep"] }));
    pods(&server).create(&PostParams::default(), &kept).await.expect("created");
    server.kill_pod("default", "kept");
    assert!(object::is_terminating(&server.pod("default", "kept")));
    let off = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods(&server).patch("kept", &Default::default(), &off).await.expect("patched");
    assert!(server.pod("default", "kept").is_null());
}
