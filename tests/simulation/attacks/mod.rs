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

use podset_operator::podset::{observe::CacheRules, promise::Rules};
use serde_json::Value;

use crate::{
    NS,
    apiserver::{ApiServer, PodScript, object},
    assert_silent,
    operator::Operator,
    ready, seconds, with_set,
};

async fn sleep(n: u64) {
    tokio::time::sleep(seconds(n)).await;
}

/// A server whose API server executes a request however late it comes: as late as the promise allows for.
fn server_that_executes_late() -> ApiServer {
    let server = ApiServer::new(1);
    server.settings(|settings| settings.honour_timeout = false);
    server
}

/// Whether the set is ready within this time.
async fn becomes_ready(server: &ApiServer, set: &str, n: usize, within: u64) -> bool {
    tokio::time::timeout(seconds(within), ready(server, set, n)).await.is_ok()
}

/// The set comes to rest: its pods are there, its status is right, and nothing more is asked for but watches. No promise was broken.
async fn at_rest(server: &ApiServer, name: &str, n: usize) {
    let is_told = |s: &ApiServer| {
        let set = s.podset(NS, name);
        object::is_ready(&set)
            && set["status"]["readyReplicas"] == n
            && set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && s.ready_pods(NS, name).len() == n
            && s.live_pods(NS, name).len() == n
    };
    server.wait_until(is_told, seconds(180)).await;
    // Whatever was of unknown fate is settled after the quarantine.
    sleep(70).await;
    assert_silent(server, 300).await;
    server.check();
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

/// The rules with these of the caches.
fn cached(cache: CacheRules) -> Rules {
    Rules { cache, ..Rules::default() }
}

/// Tells a story with every rule, which keeps the promise, and with one taken out, which breaks it. Returns the first server.
async fn try_both_ways(story: impl AsyncFn(Rules) -> ApiServer, broken: Rules) -> ApiServer {
    let server = story(Rules::default()).await;
    server.check();
    assert!(is_broken(&story(broken).await), "the promise also holds without the rule");
    server
}

/// Pods that take so many seconds to go.
fn terminate_slowly(server: &ApiServer, n: u64) {
    server.pods_live(PodScript::default().gone_after(seconds(n)));
}

/// The only pod of the set that is live.
fn only_pod(server: &ApiServer, set: &str) -> String {
    let [pod] = &server.live_pods(NS, set)[..] else { panic!("{:?}", server.live_pods(NS, set)) };
    pod.clone()
}

/// An operator that leads, with these rules.
fn leader(server: &ApiServer, rules: Rules) -> Operator {
    Operator::leader(server, "a", rules)
}
