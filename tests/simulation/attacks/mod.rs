//! The attacks on "never more than N". Each attack is run twice: with every rule of the operator, where it fails, and
//! without the rule that is meant to stop it, where it succeeds.

mod answers;
mod claims;
mod deletes;
mod events;
mod labels;
mod leaders;
mod names;
mod partitions;
mod revisions;
mod rollouts;
mod slow_deletes;
mod statuses;
mod terminations;
mod undecided;

use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use jiff::SignedDuration;
use podset_operator::podset::{names::pod_name, observe::CacheRules, promise::Rules, restart_backoff::KEPT};
use serde_json::{Value, json};

use crate::{
    NS,
    apiserver::{
        ApiServer, Fault, FaultRule, LABEL, PODS, PODSETS, PodScript, REVISIONS, Requests, Status, Verb, object,
    },
    assert_silent, condition,
    operator::Operator,
    ready, seconds, server_and_leader, with_set, with_spec,
};

async fn sleep(n: u64) {
    tokio::time::sleep(seconds(n)).await;
}

/// An API server that ignores the timeout of a request and executes it even if it arrives late.
fn server_that_executes_late() -> ApiServer {
    let server = ApiServer::new(1);
    server.settings(|settings| settings.honour_timeout = false);
    server
}

async fn becomes_ready(server: &ApiServer, set: &str, n: usize, within: u64) -> bool {
    tokio::time::timeout(seconds(within), ready(server, set, n)).await.is_ok()
}

/// Waits until the set has its pods and its status is right. Then checks that only watches are requested and no promise was broken.
async fn at_rest(server: &ApiServer, name: &str, n: usize) {
    let is_settled = |s: &ApiServer| {
        let set = s.podset(NS, name);
        object::is_ready(&set)
            && set["status"]["readyReplicas"] == n
            && set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && s.ready_pods(NS, name).len() == n
            && s.live_pods(NS, name).len() == n
    };
    server.wait_until(is_settled, seconds(180)).await;
    // After the quarantine, no request of unknown fate is left.
    sleep(70).await;
    assert_silent(server, 300).await;
}

/// Whether a promise is broken: the attack succeeded.
fn exceeded_bound(server: &ApiServer) -> bool {
    server.has_also_broken("pods where")
}

fn cached(cache: CacheRules) -> Rules {
    Rules { cache, ..Rules::default() }
}

/// Runs an attack with every rule, where it must fail, and with `broken` rules, where it must succeed. Returns the first server.
async fn try_both_ways(attack: impl AsyncFn(Rules) -> ApiServer, broken: Rules) -> ApiServer {
    let server = attack(Rules::default()).await;
    assert!(exceeded_bound(&attack(broken).await), "the promise also holds without the rule");
    server
}

fn terminate_slowly(server: &ApiServer, n: u64) {
    server.set_pod_script(PodScript::gone_after(seconds(n)));
}

fn only_pod(server: &ApiServer, set: &str) -> String {
    let [pod] = &server.live_pods(NS, set)[..] else { panic!("{:?}", server.live_pods(NS, set)) };
    pod.clone()
}

fn kill_all(server: &ApiServer) {
    server.live_pods(NS, "web").iter().for_each(|pod| server.kill_pod(NS, pod));
}

/// Pods finish, one after another. Each runs long enough to reset the backoff.
async fn finish_one_by_one(server: &ApiServer, times: usize, replicas: usize) {
    for _ in 0..times {
        sleep(700).await;
        server.fail_pod(NS, &server.live_pods(NS, "web")[0]);
        ready(server, "web", replicas).await;
    }
}

/// Makes this pod the first to be deleted.
fn put_first(server: &ApiServer, pod: &str) {
    let cost = json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": "-1" } } });
    server.patch(&PODS, NS, pod, cost);
}

fn first_victim(server: &ApiServer) -> String {
    let pod = server.live_pods(NS, "web")[0].clone();
    put_first(server, &pod);
    pod
}

/// A webhook fails, so the request will not take effect.
fn webhook_failed() -> Status {
    Status { message: "Internal error occurred: failed calling webhook \"a\"".to_owned(), ..Status::of_code(500) }
}
