//! The attacks on "never more than N". Each is a story told twice: with every rule of the operator in place it fails, and
//! with the rule that is meant to stop it taken out it succeeds.

mod answers;
mod claims;
mod deletes;
mod events;
mod labels;
mod leaders;
mod names;
mod revisions;
mod rollouts;
mod statuses;
mod terminations;

use std::time::Duration;

use podset_operator::podset::promise::Rules;
use serde_json::Value;

use crate::{
    apiserver::{ApiServer, PodScript, object},
    operator::Operator,
};

/// The namespace in which all is played.
const NS: &str = "default";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

async fn sleep(n: u64) {
    tokio::time::sleep(seconds(n)).await;
}

/// A server whose API server executes a request however late it comes: as late as the promise allows for.
fn server_that_executes_late() -> ApiServer {
    let server = ApiServer::new(1);
    server.settings(|settings| settings.honour_timeout = false);
    server
}

/// Waits until so many pods of the set are ready, and no more are live.
async fn ready(server: &ApiServer, set: &str, n: usize) {
    let is_there = |s: &ApiServer| s.ready_pods(NS, set).len() == n && s.live_pods(NS, set).len() == n;
    server.wait_until(is_there, seconds(120)).await;
}

/// Whether the set is ready within this time.
async fn becomes_ready(server: &ApiServer, set: &str, n: usize, within: u64) -> bool {
    for _ in 0..within * 10 {
        if server.ready_pods(NS, set).len() == n && server.live_pods(NS, set).len() == n {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

/// The set has come to rest: its status is right, and nothing more is asked for but watches.
async fn at_rest(server: &ApiServer, set: &str, n: usize) {
    let is_told = |s: &ApiServer| {
        let set = s.podset(NS, set);
        let ready = set["status"]["conditions"].as_array().into_iter().flatten();
        ready.into_iter().any(|held| held["type"] == "Ready" && held["status"] == "True")
            && set["status"]["readyReplicas"] == n
            && set["status"]["observedGeneration"] == set["metadata"]["generation"]
    };
    server.wait_until(is_told, seconds(180)).await;
    // Whatever was of unknown fate is settled after the quarantine.
    sleep(70).await;
    let mark = server.mark();
    sleep(300).await;
    assert_eq!(server.requests_since(mark).iter().map(|entry| entry.line()).collect::<Vec<_>>(), Vec::<String>::new());
}

/// The condition of this type as `status/reason: message`; empty if there is none.
fn condition(server: &ApiServer, kind: &str) -> String {
    let set = server.podset(NS, "web");
    let text = |held: &Value, field: &str| held[field].as_str().unwrap_or_default().to_owned();
    let line = |held| format!("{}/{}: {}", text(held, "status"), text(held, "reason"), text(held, "message"));
    object::condition(&set, kind).map(line).unwrap_or_default()
}

/// A broken promise: the attack succeeded.
fn is_broken(server: &ApiServer) -> bool {
    server.exceeded() > 0
}

/// Pods that take so many seconds to go.
fn going_slowly(server: &ApiServer, n: u64) {
    server.pods_live(PodScript { gone_after: Some(seconds(n)), ..PodScript::default() });
}

/// The only pod of the set that is live.
fn only_pod(server: &ApiServer, set: &str) -> String {
    let [pod] = &server.live_pods(NS, set)[..] else { panic!("{:?}", server.live_pods(NS, set)) };
    pod.clone()
}

/// Starts a server and an operator with these rules, and waits until the set `web` has this many ready pods.
async fn with_set(pods: usize, rules: Rules) -> (ApiServer, Operator) {
    let server = ApiServer::new(1);
    server.create_podset(NS, "web", i64::try_from(pods).unwrap());
    let operator = leader(&server, rules);
    ready(&server, "web", pods).await;
    (server, operator)
}

/// An operator that leads, with these rules.
fn leader(server: &ApiServer, rules: Rules) -> Operator {
    Operator::leader(server, "a", rules)
}
