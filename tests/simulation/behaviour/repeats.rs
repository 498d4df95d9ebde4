//! The same seed makes the same run, to the last byte.

use std::time::Duration;

use kube::api::PostParams;
use serde_json::json;

use super::{pod, pods};
use crate::apiserver::{ApiServer, Fault, PodScript, Requests};

/// A run with chance in it, as the text of its requests and changes.
async fn run(seed: u64) -> String {
    let server = ApiServer::new(seed);
    server.pods_live(PodScript::fails_after(Duration::from_secs(3)));
    server.settings(|s| s.jitter = Duration::from_millis(50));
    server.create_podset("default", "web", 3);
    server.fault(Requests::creates("pods").nth(2), Fault::ExecuteThenCut);
    let api = pods(&server);
    let (params, template) = (PostParams::default(), pod(json!({ "generateName": "web-" })));
    let creates = (0..3).map(|_| api.create(&params, &template));
    futures::future::join_all(creates).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let requests: Vec<String> = server.requests(&Requests::all()).iter().map(|r| r.line()).collect();
    let changes: Vec<String> = server.changes_where(|_| true).iter().map(|c| format!("{c} {}", c.object)).collect();
    format!("{}\n{}", requests.join("\n"), changes.join("\n"))
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_and_another_differs() {
    let first = run(42).await;
    assert_eq!(first, run(42).await);
    assert_ne!(first, run(43).await);
    assert!(first.contains("execute-then-cut") && first.contains("(Failed)"), "{first}");
}
