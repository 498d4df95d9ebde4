//! E1 to E7, the attacks of `leadership::promise`, through the real gate and on virtual time. Each attack is run with every rule in place,
//! where it fails, and without the rule that stops it, where it succeeds; and with each store.

mod handover;
mod replica;
mod server;

use std::time::Duration;

use leadership::{Store, promise::Rules};
use replica::{Model, Replica};
use serde_json::json;
use server::{Create, Server};
use tokio::time::{Instant, sleep};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn stores() -> [Store; 2] {
    [Store::Api, Store::KubeLeaderElection]
}

/// A replica with default durations.
fn with(store: Store, rules: Rules) -> Model {
    Model { rules, timing: [15, 10, 2], store }
}

fn sound(store: Store) -> Model {
    with(store, Rules::default())
}

/// Starts two replicas and lets the first lead. Also returns when they started.
async fn two(a: Model, b: Model) -> (Server, Instant, Replica, Replica) {
    let (server, began) = (Server::default(), Instant::now());
    let a = Replica::start(&server, "a", a);
    a.leads_within(seconds(1)).await;
    let b = Replica::start(&server, "b", b);
    sleep(seconds(5)).await;
    (server, began, a, b)
}

/// Partitions a replica from the Lease.
fn cut(server: &Server, name: &str) {
    server.set(name, |faults| (faults.lease_cut, faults.watch_muted) = (true, true));
}

/// Runs an attack with all rules, where it must fail, and with `broken` rules, where it must succeed.
async fn try_both_ways(attack: impl AsyncFn(Store, Rules) -> Vec<Create>, broken: Rules) {
    for store in stores() {
        let strays = attack(store, Rules::default()).await;
        assert!(strays.is_empty(), "two writers: {strays:?}");
        let strays = attack(store, broken).await;
        assert!(!strays.is_empty(), "the attack also fails without the rule");
    }
}

/// Creates have passed every check. Then their process freezes for longer than its lease, and tries to send the bytes afterwards.
#[tokio::test(start_paused = true)]
async fn e1_no_bytes_of_a_write_leave_after_the_term() {
    let attack = async |store, rules| {
        let (server, began, a, b) = two(with(store, rules), sound(store)).await;
        a.freeze(seconds(40));
        cut(&server, "a");
        b.leads_within(seconds(17)).await;
        sleep(seconds(30)).await;
        server.strays_after(began)
    };
    try_both_ways(attack, Rules { may_leave: |_| true, ..Rules::default() }).await;
}

/// The watch of a standby stalls, and its reads are lost, until the last Lease that it saw looks expired. Then a read shows a renewed Lease.
#[tokio::test(start_paused = true)]
async fn e2_a_lease_that_was_renewed_has_not_expired() {
    let attack = async |store, rules| {
        let (server, began, _a, _b) = two(sound(store), with(store, rules)).await;
        server.set("a", |faults| faults.watch_late = seconds(1));
        cut(&server, "b");
        sleep(seconds(20)).await;
        server.set("b", |faults| faults.lease_cut = false);
        sleep(seconds(20)).await;
        server.strays_after(began)
    };
    try_both_ways(attack, Rules { is_free: |before, _, _| before.is_some(), ..Rules::default() }).await;
}

/// Two standbys have seen the same Lease expire, and both try to take it.
#[tokio::test(start_paused = true)]
async fn e3_one_of_two_candidates_takes_an_expired_lease() {
    let attack = async |store, rules| {
        let (server, began) = (Server::default(), Instant::now());
        let a = Replica::start(&server, "a", sound(store));
        a.leads_within(seconds(1)).await;
        let others = ["b", "c"].map(|name| Replica::start(&server, name, with(store, rules)));
        sleep(seconds(5)).await;
        for name in ["b", "c"] {
            server.set(name, |faults| faults.watch_late = seconds(1));
        }
        a.kill();
        sleep(seconds(30)).await;
        assert!(others.iter().any(Replica::leads) || !server.strays_after(began).is_empty());
        server.strays_after(began)
    };
    try_both_ways(attack, Rules { version: |_| None, ..Rules::default() }).await;
}

/// The leader is partitioned, and the response to its last renewal is late.
#[tokio::test(start_paused = true)]
async fn e4_a_term_counts_from_the_sending_of_the_renewal() {
    let attack = async |store, rules| {
        let (server, began, _a, _b) = two(with(store, rules), sound(store)).await;
        server.set("a", |faults| faults.answers_late = Duration::from_millis(4500));
        sleep(seconds(3)).await;
        // The next request for the Lease is lost, and the creates are as late as the lease allows.
        cut(&server, "a");
        server.set("a", |faults| faults.creates_late = Duration::from_millis(2500));
        sleep(seconds(30)).await;
        server.strays_after(began)
    };
    try_both_ways(attack, Rules { term_from: |_, answered| answered, ..Rules::default() }).await;
}

/// A user deletes, empties or overwrites the Lease of a leader that can reach the API server. Writes within 1 s do not count.
#[tokio::test(start_paused = true)]
async fn e5_a_leader_that_lost_its_lease_stops() {
    let overwritten = json!({ "holderIdentity": "somebody", "leaseDurationSeconds": 15 });
    for edit in [None, Some(json!({})), Some(overwritten)] {
        let attack = async |store, rules| {
            let server = Server::default();
            let a = Replica::start(&server, "a", with(store, rules));
            a.leads_within(seconds(1)).await;
            sleep(seconds(5)).await;
            server.edit(edit.clone());
            let edited = Instant::now();
            sleep(seconds(10)).await;
            server.strays_after(edited + seconds(1))
        };
        try_both_ways(attack, Rules { has_lost: |_| false, ..Rules::default() }).await;
    }
}

/// During a rollout, the leader has a longer lease duration than the standby. It is partitioned for longer than the shorter one.
#[tokio::test(start_paused = true)]
async fn e6_the_longer_lease_duration_counts() {
    let attack = async |store, rules| {
        let (server, began, _a, b) =
            two(Model { timing: [60, 40, 2], ..sound(store) }, Model { timing: [6, 4, 1], ..with(store, rules) }).await;
        cut(&server, "a");
        sleep(seconds(80)).await;
        assert!(b.leads());
        server.strays_after(began)
    };
    try_both_ways(attack, Rules { wait: |own, _| own, ..Rules::default() }).await;
}

/// The leader exits with unanswered creates, and they are executed later.
#[tokio::test(start_paused = true)]
async fn e7_a_lease_is_not_released_while_a_write_may_take_effect() {
    let attack = async |store, rules| {
        let (server, began, a, b) = two(with(store, rules), sound(store)).await;
        server.set("a", |faults| faults.creates_unanswered = Some(seconds(5)));
        sleep(Duration::from_millis(250)).await;
        a.end().await.expect("an orderly end");
        b.leads_within(seconds(17)).await;
        sleep(seconds(10)).await;
        server.strays_after(began)
    };
    try_both_ways(attack, Rules { may_release: |_| true, ..Rules::default() }).await;
}
