//! A store without a quorum.

use super::{watches::Events, *};

async fn create(server: &ApiServer, name: &str, limit: &str) -> kube::Result<Pod> {
    let body = serde_json::to_vec(&pod(json!({ "name": name }))).expect("a pod");
    let path = format!("/api/v1/namespaces/default/pods?timeout={limit}");
    let request = http::Request::post(path).body(body).expect("a request");
    server.client("test").request(request).await
}

/// Sends three creates while there is no quorum; the first two time out. Checks that those that take effect are the first ones, and returns
/// their number.
async fn without_quorum(seed: u64) -> usize {
    let server = ApiServer::new(seed);
    server.create_pod("default", "there", json!({}));
    let mut events = Events::open(&server, &WatchParams::default(), "0").await;
    events.soon().await;
    server.lose_quorum();
    for name in ["a", "b"] {
        let timed_out = failure(create(&server, name, "5s").await);
        assert_eq!((timed_out.code, timed_out.reason.as_str()), (504, "Timeout"));
    }
    let last = tokio::spawn({
        let server = server.clone();
        async move { create(&server, "c", "60s").await }
    });
    let read = tokio::time::timeout(seconds(30), pods(&server).get("there")).await;
    assert!(read.is_err(), "a consistent read waits too");
    assert_eq!(events.next(seconds(20)).await, "silence", "no event and no bookmark arrive");
    assert!(!exists(&server, "a"));
    server.regain_quorum();
    let there: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| exists(&server, name)).collect();
    assert_eq!(there, ["a", "b", "c"][..there.len()], "a prefix of the log");
    let answer = last.await.expect("no panic");
    assert_eq!(answer.is_ok(), there.len() == 3, "a lost write does not succeed");
    there.len()
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_writes_wait_and_may_take_effect_later() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..30 {
        seen.insert(without_quorum(seed).await);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}
