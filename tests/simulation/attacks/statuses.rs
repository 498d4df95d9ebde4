//! Which generation a status may observe, and which set it may reach.

use super::*;
use crate::world::mutants::acknowledge;

/// A set is scaled down, and its pods are deleted slowly.
async fn scaled_down(rules: Rules) -> ApiServer {
    let (server, _operator) = with_set(3, rules).await;
    server.fault(Requests::deletes("pods"), Fault::Delay(seconds(5)));
    server.scale(NS, "web", 1);
    ready(&server, "web", 1).await;
    sleep(10).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_generation_is_observed_when_the_surplus_is_gone() {
    let at_once = Rules { status: acknowledge, ..Rules::default() };
    let server = try_both_ways(scaled_down, at_once).await;
    assert_eq!(server.podset(NS, "web")["status"]["observedGeneration"], 2);
}

/// A status lands late, after the set was recreated.
async fn late_status(rules: Rules) -> ApiServer {
    let server = server_that_executes_late();
    let late = server.fault(Requests::status_patches("podsets").first(1), Fault::ExecuteLate(seconds(30)));
    server.create_podset(NS, "web", 3);
    let _operator = Operator::leader(&server, "a", rules);
    late.wait_for_hits(1).await;
    server.delete_podset(NS, "web");
    server.create_podset(NS, "web", 1);
    sleep(60).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_late_status_does_not_reach_a_recreated_set() {
    late_status(Rules::default()).await;
    let server = late_status(Rules { status_version: |_| None, ..Rules::default() }).await;
    assert!(server.first_violation().is_some(), "the attack must succeed if a status has no resourceVersion");
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_another_controller_stays_and_costs_no_writes() {
    let (server, _operator) = with_set(1, Rules::default()).await;
    server.create_podset(NS, "plain", 1);
    ready(&server, "plain", 1).await;
    let theirs = json!({ "type": "Theirs", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    server.edit(&PODSETS, NS, "web", "status", |set| object::set_condition(set, theirs));
    sleep(60).await;
    let patches = |set| server.count(&Requests::status_patches("podsets").named(set));
    let before = [patches("web"), patches("plain")];
    for n in [2, 3] {
        server.scale(NS, "web", n);
        server.scale(NS, "plain", n);
        sleep(60).await;
    }
    assert_eq!(patches("web") - before[0], patches("plain") - before[1]);
    assert!(object::condition(&server.podset(NS, "web"), "Theirs").is_some());
}
