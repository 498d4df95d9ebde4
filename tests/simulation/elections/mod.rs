//! Several replicas and one leader: hand-overs, and failures of the API server. The attacks on "one writer" are in
//! `crates/leadership/tests/attacks`.

mod handover;
mod installations;
mod outage;

use std::time::Duration;

use leadership::Lost;
use podset_operator::{manager::Failure, podset::promise::Rules};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    NS,
    apiserver::{ApiServer, Fault, LEASES, ONE_WRITER, PODSETS, PodScript, Requests, Status, Verb},
    assert_ok,
    operator::Operator,
    ready,
    replica::{LEASE, Model, Replica},
    seconds,
};

/// A cluster with some latency and a set of 10 pods.
fn cluster() -> ApiServer {
    let server = ApiServer::new(1);
    server.settings(|settings| settings.request_latency = Duration::from_millis(50));
    server.create_podset(NS, "web", 10);
    server
}

async fn leader(server: &ApiServer, name: &str) -> Replica {
    let replica = Replica::start(server, name, Model::default());
    leads(&replica, seconds(1)).await;
    replica
}

/// Starts a leader and a standby, and waits until the set has all its pods.
async fn leader_and_standby() -> (ApiServer, Replica, Replica) {
    let server = cluster();
    let a = leader(&server, "a").await;
    let b = Replica::start(&server, "b", Model::default());
    converged(&server).await;
    (server, a, b)
}

async fn leads(replica: &Replica, within: Duration) {
    let leading = timeout(within, async {
        while !replica.leads() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(leading.await.is_ok(), "{} does not lead after {within:?}", replica.name);
}

/// Kills a pod of the set ten times a second, so that the leader always has something to write.
async fn kill_pods(server: &ApiServer, time: Duration) {
    for _ in 0..time.as_millis() / 100 {
        if let Some(pod) = server.live_pods(NS, "web").first() {
            server.kill_pod(NS, pod);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the set has all its pods. Checks that no promise was broken.
async fn converged(server: &ApiServer) {
    ready(server, "web", 10).await;
}
