//! Faults of requests: what happens in the store, and what the client sees.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use tokio::time::{sleep, timeout};

use super::*;

async fn create(server: &ApiServer, name: &str) -> kube::Result<Pod> {
    pods(server).create(&PostParams::default(), &pod(json!({ "name": name }))).await
}

fn is_cut<T: std::fmt::Debug>(result: kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Service(error)) if error.to_string().contains("connection reset"))
}

#[tokio::test(start_paused = true)]
async fn a_response_can_be_lost_after_the_write() {
    let server = ApiServer::new(1);
    for (name, fault) in
        [("error", Fault::ExecuteThenError(503)), ("cut", Fault::ExecuteThenCut), ("garble", Fault::ExecuteThenGarble)]
    {
        server.fault(Requests::creates("pods").named(name), fault);
    }
    assert_eq!(failure(create(&server, "error").await).code, 503);
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
async fn a_request_can_be_executed_after_its_sender_gave_up() {
    let server = ApiServer::new(1);
    let late = Requests::creates("pods").named("late");
    server.fault(late, Fault::ExecuteLate(seconds(30)));
    assert!(is_cut(create(&server, "late").await));
    assert!(!exists(&server, "late"));
    sleep(seconds(31)).await;
    assert!(exists(&server, "late"));

    let silent = Requests::creates("pods").named("silent");
    server.fault(silent, Fault::ExecuteUnanswered(seconds(1)));
    assert!(timeout(seconds(300), create(&server, "silent")).await.is_err());
    assert!(exists(&server, "silent"));

    server.settings(|s| s.request_latency = seconds(5));
    assert!(timeout(seconds(1), create(&server, "x")).await.is_err());
    assert!(!exists(&server, "x"));
    sleep(seconds(5)).await;
    assert!(exists(&server, "x"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_fails_with_the_last_requests() {
    let server = ApiServer::new(1);
    create(&server, "x").await.expect("created");
    let waiting = std::panic::AssertUnwindSafe(server.wait_until(|_| false, seconds(5)));
    let panic = waiting.catch_unwind().await.expect_err("it gives up");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains("timed out after") && text.contains("test Create /api/v1/namespaces/default/pods"), "{text}");
    assert!(text.contains("Added Pod default/x by test (Pending)"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_executed_twice_makes_one_pod() {
    let server = ApiServer::new(1);
    server.fault(Requests::creates("pods"), Fault::ExecuteTwice);
    let mut codes = BTreeSet::new();
    for n in 0..20 {
        let answer = create(&server, &format!("x-{n}")).await;
        codes.insert(answer.map_or_else(|error| failure::<Pod>(Err(error)).code, |_| 201));
    }
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [201, 409]);
    assert_eq!(server.all(&PODS, "default").len(), 20);
}
