//! E1 to E7.

use leadership::promise::Rules;
use serde_json::json;

use super::*;
use crate::{
    apiserver::{Fault, Requests},
    replica::LEASE,
};

/// The leases' requests of this replica are lost.
fn cut_lease(server: &ApiServer, name: &str) {
    server.watches().of(name).on("leases").stall();
    server.fault(Requests::all().of("leases").from(name), Fault::CutBefore);
}

/// E1: ten creates have passed every check, then their process is frozen for longer than its lease, and the bytes leave.
async fn e1(rules: Rules) -> ApiServer {
    let server = cluster();
    let a = Replica::start(&server, "a", with(rules));
    leads(&a, seconds(1)).await;
    let b = Replica::start(&server, "b", Model::default());
    server.wait_until(|server| server.live_pods(NS, "web").len() >= 3, seconds(1)).await;
    a.freeze_writes(seconds(40));
    sleep(Duration::from_millis(100)).await;
    assert!(server.live_pods(NS, "web").len() < 10, "the rest is frozen");
    cut_lease(&server, "a");
    leads(&b, seconds(20)).await;
    // The names that those creates ask for are free when they land.
    kill_pods(&server, seconds(60)).await;
    server
}

#[tokio::test(start_paused = true)]
async fn e1_bytes_that_leave_too_late_do_not_leave() {
    converged(&e1(Rules::default()).await).await;
}

#[tokio::test(start_paused = true)]
async fn e1_succeeds_if_nobody_asks_where_bytes_leave() {
    assert!(is_broken(&e1(Rules { may_leave: |_| true, ..Rules::default() }).await));
}

/// E2: the watch of a standby stands still, and its reads are lost, until what it saw last looks expired; then a read
/// shows a lease that was renewed.
async fn e2(rules: Rules) -> ApiServer {
    let server = cluster();
    let a = Replica::start(&server, "a", Model::default());
    leads(&a, seconds(1)).await;
    let b = Replica::start(&server, "b", with(rules));
    sleep(seconds(5)).await;
    // The leader would hear of another one a little later only.
    server.watches().of("a").on("leases").delay(seconds(1));
    server.watches().of("b").on("leases").stall();
    let lost = server.fault(Requests::all().of("leases").from("b"), Fault::CutBefore);
    kill_pods(&server, seconds(20)).await;
    lost.remove();
    kill_pods(&server, seconds(40)).await;
    drop((a, b));
    server
}

#[tokio::test(start_paused = true)]
async fn e2_what_was_renewed_has_not_expired() {
    converged(&e2(Rules::default()).await).await;
}

#[tokio::test(start_paused = true)]
async fn e2_succeeds_if_the_read_need_not_confirm() {
    assert!(is_broken(&e2(Rules { is_free: |before, _, _| before.is_some(), ..Rules::default() }).await));
}

/// E3: two standbys have seen the same lease expire, and both take it.
async fn e3(rules: Rules) -> ApiServer {
    let server = cluster();
    let a = Replica::start(&server, "a", Model::default());
    leads(&a, seconds(1)).await;
    let others = ["b", "c"].map(|name| Replica::start(&server, name, with(rules)));
    sleep(seconds(5)).await;
    // Neither hears at once of what the other one does.
    server.watches().on("leases").delay(seconds(1));
    a.kill();
    kill_pods(&server, seconds(40)).await;
    drop(others);
    server
}

#[tokio::test(start_paused = true)]
async fn e3_one_of_two_takes_what_both_saw_expire() {
    converged(&e3(Rules::default()).await).await;
}

#[tokio::test(start_paused = true)]
async fn e3_succeeds_if_a_write_carries_no_version() {
    assert!(is_broken(&e3(Rules { version: |_| None, ..Rules::default() }).await));
}

/// E4: the last renewal before the leader is cut off from its lease is answered late. It was written when it was sent.
async fn e4(rules: Rules) -> ApiServer {
    let server = cluster();
    let a = Replica::start(&server, "a", with(rules));
    leads(&a, seconds(1)).await;
    let b = Replica::start(&server, "b", Model::default());
    sleep(seconds(5)).await;
    let mutating = Requests::mutating().of("leases").from("a");
    let held = server.fault(mutating, Fault::HoldAnswer);
    held.met(1).await;
    sleep(Duration::from_millis(4500)).await;
    held.release();
    server.fault(Requests::all().of("leases").from("a"), Fault::CutBefore);
    server.watches().of("a").on("leases").stall();
    // A write that is sent in the last second of the term, if that were counted from the answer, takes effect when the lease is over.
    kill_pods(&server, seconds(9)).await;
    server.fault(Requests::mutating().from("a").of("pods"), Fault::Delay(Duration::from_millis(2500)));
    kill_pods(&server, seconds(21)).await;
    server.heal();
    drop((a, b));
    server
}

#[tokio::test(start_paused = true)]
async fn e4_a_term_is_counted_from_the_sending() {
    converged(&e4(Rules::default()).await).await;
}

#[tokio::test(start_paused = true)]
async fn e4_succeeds_if_it_is_counted_from_the_answer() {
    assert!(is_broken(&e4(Rules { term_from: |_, answered| answered, ..Rules::default() }).await));
}

/// E5: a person deletes, empties or overwrites the Lease of a leader that can reach the API server.
async fn e5(rules: Rules, edit: impl Fn(&ApiServer)) -> ApiServer {
    let server = cluster();
    let a = Replica::start(&server, "a", with(rules));
    leads(&a, seconds(1)).await;
    sleep(seconds(5)).await;
    edit(&server);
    kill_pods(&server, seconds(10)).await;
    drop(a);
    server
}

#[tokio::test(start_paused = true)]
async fn e5_a_leader_whose_lease_is_not_its_own_any_more_stops() {
    let blind = Rules { has_lost: |_| false, ..Rules::default() };
    let deleted = |server: &ApiServer| server.delete_lease(LEASE.0, LEASE.1);
    let emptied = |server: &ApiServer| server.overwrite_lease(LEASE.0, LEASE.1, json!({}));
    let overwritten = |server: &ApiServer| {
        let spec = json!({ "holderIdentity": "somebody", "leaseDurationSeconds": 15 });
        server.overwrite_lease(LEASE.0, LEASE.1, spec);
    };
    e5(Rules::default(), deleted).await.check();
    e5(Rules::default(), emptied).await.check();
    e5(Rules::default(), overwritten).await.check();
    assert!(is_broken(&e5(blind, deleted).await), "deleted, and nobody looks");
    assert!(is_broken(&e5(blind, emptied).await), "emptied, and nobody looks");
    assert!(is_broken(&e5(blind, overwritten).await), "overwritten, and nobody looks");
}

/// E6: in the middle of a rollout the leader has a longer lease than the standby. It is cut off from the Lease for longer
/// than the short one.
async fn e6(rules: Rules) -> ApiServer {
    let server = cluster();
    let a = Replica::start(&server, "a", Model { timing: (60, 40, 2), ..Model::default() });
    leads(&a, seconds(1)).await;
    let b = Replica::start(&server, "b", Model { timing: (6, 4, 1), rules, ..Model::default() });
    sleep(seconds(5)).await;
    cut_lease(&server, "a");
    kill_pods(&server, seconds(80)).await;
    server.heal();
    drop((a, b));
    server
}

#[tokio::test(start_paused = true)]
async fn e6_the_longer_lease_counts() {
    converged(&e6(Rules::default()).await).await;
}

#[tokio::test(start_paused = true)]
async fn e6_succeeds_if_the_own_duration_alone_counts() {
    assert!(is_broken(&e6(Rules { wait: |own, _| own, ..Rules::default() }).await));
}

/// E7: the leader ends while a create has no answer, and that create is still to be executed.
async fn e7(rules: Rules) -> ApiServer {
    let server = ApiServer::new(1);
    let a = Replica::start(&server, "a", with(rules));
    leads(&a, seconds(1)).await;
    let b = Replica::start(&server, "b", Model::default());
    sleep(seconds(5)).await;
    let late = server.fault(Requests::creates("pods").from("a"), Fault::ExecuteLate(seconds(5)));
    server.create_podset(NS, "web", 10);
    late.met(1).await;
    sleep(Duration::from_millis(100)).await;
    a.end().await.expect("an orderly end");
    // The names that it asks for are free when it lands.
    kill_pods(&server, seconds(20)).await;
    assert!(b.leads());
    server
}

#[tokio::test(start_paused = true)]
async fn e7_a_lease_is_not_given_back_while_a_write_may_land() {
    converged(&e7(Rules::default()).await).await;
}

#[tokio::test(start_paused = true)]
async fn e7_succeeds_if_it_is_given_back_all_the_same() {
    assert!(is_broken(&e7(Rules { may_release: |_| true, ..Rules::default() }).await));
}
