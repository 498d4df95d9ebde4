//! The operator against an API server in the same process, on virtual time.
//!
//! That server is `testkit::apiserver`, and `behaviour` compares it with kube-apiserver. `operator` and `replica` are
//! instances of the operator, whose leadership is set by the test or elected. `line` carries their writes. The other
//! modules are the tests.

mod attacks;
mod behaviour;
mod elections;
mod life;
mod line;
mod operator;
mod replica;
mod world;

use std::time::Duration;

use operator::Operator;
use operator_kit::health::{Report, Verdict};
use podset_operator::podset::promise::Rules;
use serde_json::{Value, json};
use testkit::apiserver::{self, ApiServer, PODSETS};

const NS: &str = "default";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn server_and_leader() -> (ApiServer, Operator) {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Rules::default());
    (server, operator)
}

async fn with_set(pods: usize, rules: Rules) -> (ApiServer, Operator) {
    with_spec(pods, json!({}), rules).await
}

/// Starts a server and a leader with these rules. Waits until the set `web` has this many ready pods, and 10 s more for its status.
async fn with_spec(pods: usize, mut spec: Value, rules: Rules) -> (ApiServer, Operator) {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", rules);
    spec["replicas"] = pods.into();
    server.create(&PODSETS, NS, json!({ "metadata": { "name": "web" }, "spec": spec }));
    ready(&server, "web", pods).await;
    tokio::time::sleep(seconds(10)).await;
    (server, operator)
}

/// Waits until exactly this many pods of the set are live, and all are ready.
async fn ready(server: &ApiServer, set: &str, n: usize) {
    let is_there = |s: &ApiServer| s.ready_pods(NS, set).len() == n && s.live_pods(NS, set).len() == n;
    server.wait_until(is_there, seconds(120)).await;
}

/// The condition of this type of the set `web` as `status/reason: message`; empty if there is none.
fn condition(server: &ApiServer, kind: &str) -> String {
    let set = server.podset(NS, "web");
    let text = |held: &Value, field: &str| held[field].as_str().unwrap_or_default().to_owned();
    let line = |held| format!("{}/{}: {}", text(held, "status"), text(held, "reason"), text(held, "message"));
    apiserver::object::condition(&set, kind).map(line).unwrap_or_default()
}

fn assert_ok(report: &Report) {
    assert!(report.values().all(Verdict::is_ok), "{report:?}");
}

/// Checks that nothing but watches is requested for this time.
async fn assert_silent(server: &ApiServer, for_seconds: u64) {
    let mark = server.mark();
    tokio::time::sleep(seconds(for_seconds)).await;
    let lines: Vec<_> = server.requests_since(mark).iter().map(|entry| entry.line()).collect();
    assert_eq!(lines, Vec::<String>::new(), "no request is sent at rest");
}

/// A world has a million small objects. The system allocator took a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
