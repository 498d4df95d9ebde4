//! A store without a quorum, and a create that is executed twice.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams, WatchParams};
use serde_json::json;

use super::{pod, refusal, watches::Events};
use crate::apiserver::{ApiServer, Fault, Requests};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A create with `?timeout=`, by this client.
async fn create(server: &ApiServer, client: &str, name: &str, limit: &str) -> kube::Result<Pod> {
    let body = serde_json::to_vec(&pod(json!({ "name": name }))).expect("a pod");
    let path = format!("/api/v1/namespaces/default/pods?timeout={limit}");
    let request = http::Request::post(path).body(body).expect("a request");
    server.client(client).request(request).await
}

fn exists(server: &ApiServer, name: &str) -> bool {
    !server.pod("default", name).is_null()
}

/// Three creates while there is no quorum, of which the first two give up: how many take effect, and whether in order.
async fn without_quorum(seed: u64) -> usize {
    let server = ApiServer::new(seed);
    server.create_pod("default", "there", json!({}));
    let mut events = Events::open(&server, &WatchParams::default(), "0").await;
    events.soon().await;
    server.lose_quorum();
    for name in ["a", "b"] {
        let given_up = refusal(create(&server, "a", name, "5s").await);
        assert_eq!((given_up.code, given_up.reason.as_str()), (504, "Timeout"));
    }
    let last = tokio::spawn({
        let server = server.clone();
        async move { create(&server, "a", "c", "60s").await }
    });
    let pods: Api<Pod> = Api::namespaced(server.client("a"), "default");
    assert!(tokio::time::timeout(seconds(30), pods.get("there")).await.is_err(), "a consistent read waits, too");
    assert_eq!(events.next(seconds(20)).await, "silence", "nothing happens, and no bookmark tells progress");
    assert!(!exists(&server, "a"));
    server.regain_quorum();
    let there: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| exists(&server, name)).collect();
    assert_eq!(there, ["a", "b", "c"][..there.len()], "a prefix of the log");
    let answer = last.await.expect("no panic");
    assert_eq!(answer.is_ok(), there.len() == 3, "what is lost is never answered");
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

#[tokio::test(start_paused = true)]
async fn a_create_that_is_executed_twice_makes_one_pod() {
    let server = ApiServer::new(1);
    server.fault(Requests::creates("pods"), Fault::ExecuteTwice);
    let pods: Api<Pod> = Api::namespaced(server.client("a"), "default");
    let mut answers = std::collections::BTreeSet::new();
    for n in 0..20 {
        let answer = pods.create(&PostParams::default(), &pod(json!({ "name": format!("x-{n}") }))).await;
        answers.insert(answer.map_or_else(|error| refusal::<Pod>(Err(error)).code, |_| 201));
    }
    assert_eq!(answers.into_iter().collect::<Vec<_>>(), [201, 409]);
    assert_eq!(server.all(&crate::apiserver::PODS, "default").len(), 20);
}
