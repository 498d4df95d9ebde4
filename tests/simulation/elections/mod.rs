//! Several replicas, of which one leads: how leadership passes on, and the attacks on "one writer". Each attack is a story
//! told twice: with every rule of the election in place it fails, and with the rule that is meant to stop it taken out it
//! succeeds.

mod attacks;
mod handover;
mod installations;
mod limits;
mod outage;

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    apiserver::{ApiServer, ONE_WRITER, PodScript},
    replica::{Model, Replica},
};

const NS: &str = "default";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A cluster in which requests take their time, and a set of 10 pods in it.
fn cluster() -> ApiServer {
    let server = ApiServer::new(1);
    server.settings(|settings| settings.request_latency = Duration::from_millis(50));
    server.pods_live(PodScript::default());
    server.create_podset(NS, "web", 10);
    server
}

fn with(rules: leadership::promise::Rules) -> Model {
    Model { rules, ..Model::default() }
}

/// Waits until this replica leads.
async fn leads(replica: &Replica, within: Duration) {
    let patience = tokio::time::timeout(within, async {
        while !replica.leads() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(patience.await.is_ok(), "{} does not lead after {within:?}", replica.name());
}

/// Kills a pod of the set ten times a second, so that whoever leads always has something to write.
async fn kill_pods(server: &ApiServer, time: Duration) {
    for _ in 0..time.as_millis() / 100 {
        if let Some(pod) = server.live_pods(NS, "web").first() {
            server.kill_pod(NS, pod);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The set has all its pods, and no promise was broken.
async fn converged(server: &ApiServer) {
    let is_there = |s: &ApiServer| s.ready_pods(NS, "web").len() == 10 && s.live_pods(NS, "web").len() == 10;
    server.wait_until(is_there, seconds(180)).await;
    server.check();
}

/// Whether somebody wrote who did not lead.
fn is_broken(server: &ApiServer) -> bool {
    server.with(|state| state.observers.violations.iter().any(|violation| violation.starts_with(ONE_WRITER)))
}
