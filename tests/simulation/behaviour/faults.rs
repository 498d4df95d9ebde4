//! Faults of requests: what happens in the store, and what the client gets to know of it.

use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{pod, refusal};
use crate::apiserver::{ApiServer, Fault, Requests, Status, Verb};

fn api(server: &ApiServer, instance: &str) -> Api<Pod> {
    Api::namespaced(server.client(instance), "default")
}

async fn create(server: &ApiServer, name: &str) -> kube::Result<Pod> {
    api(server, "a").create(&PostParams::default(), &pod(json!({ "name": name }))).await
}

/// A create with `?timeout=`.
async fn create_within(server: &ApiServer, name: &str, limit: &str) -> kube::Result<Pod> {
    let body = serde_json::to_vec(&pod(json!({ "name": name }))).expect("a pod");
    let path = format!("/api/v1/namespaces/default/pods?timeout={limit}");
    let request = http::Request::post(path).body(body).expect("a request");
    server.client("a").request(request).await
}

fn exists(server: &ApiServer, name: &str) -> bool {
    !server.pod("default", name).is_null()
}

fn is_cut<T: std::fmt::Debug>(result: kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Service(error)) if error.to_string().contains("connection reset"))
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_has_no_effect() {
    let server = ApiServer::new(1);
    let rule = server.fault(Requests::creates("pods"), Fault::Refuse(Status::of_code(500)));
    assert_eq!(refusal(create(&server, "x").await).code, 500);
    assert!(!exists(&server, "x"));
    assert_eq!(rule.hits(), 1);
    rule.remove();
    create(&server, "x").await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_be_lost_after_the_write() {
    let server = ApiServer::new(1);
    for (name, fault) in
        [("error", Fault::ExecuteThenError(503)), ("cut", Fault::ExecuteThenCut), ("garble", Fault::ExecuteThenGarble)]
    {
        server.fault(Requests::creates("pods").named(name), fault);
    }
    assert_eq!(refusal(create(&server, "error").await).code, 503);
    assert!(is_cut(create(&server, "cut").await));
    assert!(matches!(create(&server, "garble").await, Err(kube::Error::SerdeError(_))));
    assert!(exists(&server, "error") && exists(&server, "cut") && exists(&server, "garble"));
    server.fault(Requests::creates("pods").named("never"), Fault::CutBefore);
    assert!(is_cut(create(&server, "never").await));
    assert!(!exists(&server, "never"));
    let creates = Requests::creates("pods");
    assert_eq!((server.count(&creates), server.effects(&creates)), (4, 3));
}

#[tokio::test(start_paused = true)]
async fn a_late_request_is_executed_only_within_its_time_out() {
    let server = ApiServer::new(1);
    server.fault(Requests::creates("pods"), Fault::Delay(Duration::from_secs(20)));
    let start = Instant::now();
    let status = refusal(create_within(&server, "x", "10s").await);
    assert_eq!((status.code, status.reason.as_str()), (504, "Timeout"));
    assert_eq!(start.elapsed().as_secs(), 10);
    sleep(Duration::from_secs(60)).await;
    assert!(!exists(&server, "x"));

    create_within(&server, "y", "1m").await.expect("in time");
    server.settings(|s| s.honour_timeout = false);
    assert_eq!(refusal(create_within(&server, "z", "10s").await).code, 504);
    assert!(!exists(&server, "z"));
    sleep(Duration::from_secs(11)).await;
    assert!(exists(&server, "z"), "executed after the sender was told that it failed");
}

#[tokio::test(start_paused = true)]
async fn a_request_can_be_executed_after_its_sender_gave_up() {
    let server = ApiServer::new(1);
    let late = Requests::creates("pods").named("late");
    server.fault(late, Fault::ExecuteLate(Duration::from_secs(30)));
    assert!(is_cut(create(&server, "late").await));
    assert!(!exists(&server, "late"));
    sleep(Duration::from_secs(31)).await;
    assert!(exists(&server, "late"));
    // A time-out of the request bounds that too.
    assert!(is_cut(create_within(&server, "late-2", "5s").await));
    sleep(Duration::from_secs(60)).await;
    assert!(!exists(&server, "late-2"));

    let silent = Requests::creates("pods").named("silent");
    server.fault(silent, Fault::ExecuteUnanswered(Duration::from_secs(1)));
    assert!(timeout(Duration::from_secs(300), create(&server, "silent")).await.is_err());
    assert!(exists(&server, "silent"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_does_not_stop_its_request() {
    let server = ApiServer::new(1);
    server.settings(|s| s.request_latency = Duration::from_secs(5));
    assert!(timeout(Duration::from_secs(1), create(&server, "x")).await.is_err());
    assert!(!exists(&server, "x"));
    sleep(Duration::from_secs(5)).await;
    assert!(exists(&server, "x"));
}

#[tokio::test(start_paused = true)]
async fn answers_and_executions_can_be_held_and_released() {
    let server = ApiServer::new(1);
    let answers = server.fault(Requests::creates("pods").named("answer"), Fault::HoldAnswer);
    let executions = server.fault(Requests::creates("pods").named("exec"), Fault::HoldExecution);
    let mut held = Vec::new();
    for name in ["answer", "exec-1", "exec-2"] {
        let server = server.clone();
        held.push(tokio::spawn(async move { create(&server, name).await }));
    }
    answers.met(1).await;
    executions.met(2).await;
    sleep(Duration::from_secs(5)).await;
    assert!(exists(&server, "answer") && !exists(&server, "exec-1"));
    assert!(held.iter().all(|task| !task.is_finished()));
    executions.release_one();
    server.wait_until(|s| exists(s, "exec-1"), Duration::from_secs(1)).await;
    assert!(!exists(&server, "exec-2"));
    executions.release();
    answers.release();
    for task in held {
        task.await.expect("no panic").expect("created");
    }
    let held_too_long = server.fault(Requests::creates("pods"), Fault::HoldExecution);
    assert_eq!(refusal(create(&server, "never").await).code, 504, "a minute is the server's limit");
    held_too_long.release();
    sleep(Duration::from_secs(1)).await;
    assert!(!exists(&server, "never"));
}

#[tokio::test(start_paused = true)]
async fn rules_choose_by_client_count_and_content() {
    let server = ApiServer::new(1);
    let refuse = || Fault::Refuse(Status::of_code(429));
    let of_b = server.fault(Requests::mutating().from("b"), refuse());
    create(&server, "a-0").await.expect("another client");
    let api_of_b = api(&server, "b");
    let b = api_of_b.create(&PostParams::default(), &pod(json!({ "name": "b-0" }))).await;
    assert_eq!(refusal(b).code, 429);
    api(&server, "b").get("a-0").await.expect("reads are not meant");
    of_b.remove();

    server.fault(Requests::creates("pods").named("n").nth(2), refuse());
    create(&server, "n-1").await.expect("the first");
    assert!(create(&server, "n-2").await.is_err());
    create(&server, "n-3").await.expect("the third");
    server.fault(Requests::creates("pods").named("f").first(2), refuse());
    assert!(create(&server, "f-1").await.is_err() && create(&server, "f-2").await.is_err());
    create(&server, "f-3").await.expect("the third");
    server.fault(
        Requests::all().verb(Verb::Create).in_namespace("default").when(|r| r.body["metadata"]["name"] == "odd"),
        refuse(),
    );
    assert!(create(&server, "odd").await.is_err());
    server.heal();
    create(&server, "odd").await.expect("healed");
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_client_reaches_nothing() {
    let server = ApiServer::new(1);
    let partition = server.partition("a");
    assert!(is_cut(create(&server, "x").await));
    api(&server, "b").create(&PostParams::default(), &pod(json!({ "name": "y" }))).await.expect("b is fine");
    partition.remove();
    create(&server, "x").await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_who_asked_what_and_what_came_of_it() {
    let server = ApiServer::new(1);
    let request = http::Request::get("/api/v1/namespaces/default/pods/x")
        .header("user-agent", "podset-operator/0.1.0")
        .body(vec![])
        .expect("a request");
    assert!(server.client("a").request::<Pod>(request).await.is_err());
    let entry = &server.requests(&Requests::all().user_agent("podset-operator/"))[0];
    assert_eq!((entry.id, entry.outcome, entry.answered, entry.took_effect()), (0, Some(404), Some(404), false));
    assert_eq!(entry.executed_at, Some(Duration::from_millis(1)));
    assert_eq!(entry.line().trim(), "0.000s a Get /api/v1/namespaces/default/pods/x [] outcome 404 answered 404");
    let mark = server.mark();
    assert!(server.requests_since(mark).is_empty(), "at rest");
    create(&server, "x").await.expect("created");
    assert_eq!(server.requests_since(mark).len(), 1);
    assert_eq!(server.count(&Requests::status_patches("podsets")), 0);
    assert_eq!(server.count(&Requests::deletes("pods")), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_fails_with_the_last_requests() {
    let server = ApiServer::new(1);
    create(&server, "x").await.expect("created");
    let waiting = std::panic::AssertUnwindSafe(server.wait_until(|_| false, Duration::from_secs(5)));
    let panic = waiting.catch_unwind().await.expect_err("it gives up");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains("in vain") && text.contains("a Create /api/v1/namespaces/default/pods"), "{text}");
    assert!(text.contains("Added Pod default/x by a (Pending)"), "{text}");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "must not call the server that calls it")]
async fn a_predicate_that_calls_the_server_is_told_so() {
    let server = ApiServer::new(1);
    let inner = server.clone();
    server.with(|_| inner.count(&Requests::all()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_gets_nothing_and_breaks_what_was_connected() {
    use tokio::io::AsyncReadExt as _;

    let server = ApiServer::new(1);
    let mut stream = server.connection("tester").dial().expect("it is there");
    server.go_away();
    assert_eq!(stream.read(&mut [0; 1]).await.expect("an end"), 0);
    server.connection("tester").dial().expect_err("it is away");
    let pods = api(&server, "tester");
    pods.get("a").await.expect_err("it is away");
    assert_eq!(server.count(&Requests::all()), 0);
    server.come_back();
    assert!(pods.get_opt("a").await.expect("it is back").is_none());
    assert_eq!(server.count(&Requests::all()), 1);
}
