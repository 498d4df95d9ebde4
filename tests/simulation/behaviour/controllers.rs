//! The cluster's own controllers: scheduler, kubelet, garbage collector.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::podsets;
use crate::apiserver::{ApiServer, MYCUSTOMRESOURCES, PODS, PodScript, object};

/// Makes a pod that belongs to a PodSet.
fn owned_pod(server: &ApiServer, owner: &str, name: &str) -> String {
    server.create(
        &PODS,
        "default",
        json!({
            "metadata": { "name": name, "ownerReferences": [reference(owner)] },
            "spec": { "containers": [{ "name": "main", "image": "example.com/main" }] },
        }),
    )
}

fn reference(owner: &str) -> Value {
    json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web", "uid": owner,
        "controller": true, "blockOwnerDeletion": true,
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_node_runs_and_becomes_ready() {
    let server = ApiServer::new(1);
    server.pods_live(PodScript {
        bound_after: Some(Duration::from_secs(1)),
        running_after: Some(Duration::from_secs(2)),
        ready_after: Some(Duration::from_secs(3)),
        ..PodScript::default()
    });
    server.create_pod("default", "a", json!({}));
    let mut seen = Vec::new();
    for _ in 0..7 {
        let pod = server.pod("default", "a");
        let node = pod["spec"]["nodeName"].is_string();
        seen.push(format!("{} {node} {}", object::phase(&pod), object::is_ready(&pod)));
        tokio::time::sleep(Duration::from_millis(1001)).await;
    }
    let pending = ["Pending false false", "Pending true false", "Pending true false"];
    let running = ["Running true false"; 3];
    assert_eq!(seen[..3], pending);
    assert_eq!(seen[3..6], running);
    assert_eq!(seen[6], "Running true true");
    let status = &server.pod("default", "a")["status"];
    assert_eq!(status["startTime"], "2026-01-01T00:00:03Z");
    assert_eq!(status["containerStatuses"][0]["state"]["running"]["startedAt"], "2026-01-01T00:00:03Z");
    server.set_ready("default", "a", false);
    assert!(!object::is_ready(&server.pod("default", "a")));
}

#[tokio::test(start_paused = true)]
async fn pods_live_as_scripted() {
    let server = ApiServer::new(1);
    server.direct_pods(|pod| match object::name(pod) {
        "stuck" => PodScript::unschedulable(),
        "unready" => PodScript::never_ready(),
        "fails" => PodScript::fails_after(Duration::from_secs(10)),
        _ => PodScript::succeeds_after(Duration::from_secs(10)),
    });
    for name in ["stuck", "unready", "fails", "succeeds"] {
        server.create_pod("default", name, json!({}));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = |name: &str| {
        let pod = server.pod("default", name);
        (object::phase(&pod).to_owned(), object::is_ready(&pod), object::is_live(&pod))
    };
    assert_eq!(state("stuck"), ("Pending".to_owned(), false, true));
    assert_eq!(state("unready"), ("Running".to_owned(), false, true));
    assert_eq!(state("fails"), ("Failed".to_owned(), false, false));
    assert_eq!(state("succeeds"), ("Succeeded".to_owned(), false, false));
    let failed = server.pod("default", "fails");
    let end = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&end["exitCode"], &end["finishedAt"]), (&json!(1), &json!("2026-01-01T00:00:10Z")));
    server.fail_pod("default", "unready");
    server.succeed_pod("default", "stuck");
    assert_eq!(state("unready").0, "Failed");
    assert_eq!(state("stuck").0, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_owner_follow_it() {
    let server = ApiServer::new(1);
    let owner = server.create_podset("default", "web", 1);
    owned_pod(&server, &owner, "a");
    assert_eq!(server.live_pods("default", "web"), ["a"]);
    server.create_pod("default", "stranger", json!({}));
    server.delete_podset("default", "web");
    let gone = |s: &ApiServer| s.pod("default", "a").is_null();
    server.wait_until(gone, Duration::from_secs(5)).await;
    assert!(!server.pod("default", "stranger").is_null());
    // A pod that is born after its owner's death does not stay either.
    owned_pod(&server, &owner, "late");
    let gone = |s: &ApiServer| s.pod("default", "late").is_null();
    server.wait_until(gone, Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_their_owner_and_live() {
    let server = ApiServer::new(1);
    let owner = server.create_podset("default", "web", 1);
    owned_pod(&server, &owner, "a");
    server.orphan_podset("default", "web");
    let terminating = server.podset("default", "web");
    assert!(object::is_terminating(&terminating));
    assert_eq!(object::generation(&terminating), 2);
    let gone = |s: &ApiServer| s.podset("default", "web").is_null();
    server.wait_until(gone, Duration::from_secs(5)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let pod = server.pod("default", "a");
    assert!(object::is_live(&pod) && object::owners(&pod).is_empty());
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last() {
    let server = ApiServer::new(1);
    let owner = server.create_podset("default", "web", 1);
    owned_pod(&server, &owner, "a");
    let running = |s: &ApiServer| !s.ready_pods("default", "web").is_empty();
    server.wait_until(running, Duration::from_secs(5)).await;
    server.delete_podset_in_foreground("default", "web");
    let going = |s: &ApiServer| object::is_terminating(&s.pod("default", "a"));
    server.wait_until(going, Duration::from_secs(1)).await;
    assert!(object::is_terminating(&server.podset("default", "web")));
    let gone = |s: &ApiServer| s.podset("default", "web").is_null();
    server.wait_until(gone, Duration::from_secs(5)).await;
    assert!(server.pod("default", "a").is_null());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_policy_is_refused() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 1);
    let path = "/apis/app.example.com/v1alpha1/namespaces/default/podsets/web?propagationPolicy=Foo";
    let request = http::Request::delete(path).body(vec![]).expect("a request");
    let status = super::refusal(server.client("test").request::<Value>(request).await);
    assert_eq!(status.code, 422);
    let orphan = DeleteParams::orphan();
    let answer = podsets(&server).delete("web", &orphan).await.expect("deleted");
    assert_eq!(answer.left().expect("the set itself").metadata.finalizers, Some(vec!["orphan".into()]));
}

#[tokio::test(start_paused = true)]
async fn both_custom_resources_are_served() {
    let server = ApiServer::new(1);
    let uid = server.create_mycustomresource("default", "lonely", "friend");
    let stored = server.get(&MYCUSTOMRESOURCES, "default", "lonely");
    assert_eq!((object::uid(&stored), &stored["spec"]["name"]), (uid.as_str(), &json!("friend")));
    assert_eq!(server.all(&MYCUSTOMRESOURCES, "").len(), 1);
    let owner = server.create_podset("default", "web", 1);
    owned_pod(&server, &owner, "a");
    server.strip_owner("default", "a");
    assert!(server.live_pods("default", "web").is_empty());
}
