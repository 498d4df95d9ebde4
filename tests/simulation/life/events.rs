//! Events leave beside the reconciles: what that saves the sets, and what it must not lose.

use podset_operator::controllers::podset::locks::Locks;

use super::{NS, seconds, settled};
use crate::{
    apiserver::{ApiServer, Fault, Requests},
    operator::Operator,
};

#[tokio::test(start_paused = true)]
async fn an_event_that_is_not_answered_holds_up_no_set() {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Locks::default());
    let held = server.fault(Requests::creates("events"), Fault::HoldExecution);
    for replicas in [2, 5, 3] {
        if replicas == 2 {
            server.create_podset(NS, "web", replicas);
        } else {
            server.scale(NS, "web", replicas);
        }
        let is_there = |s: &ApiServer| i64::try_from(s.live_pods(NS, "web").len()) == Ok(replicas);
        server.wait_until(is_there, seconds(1)).await;
    }
    held.met(3).await;
    held.release();
    let told = |s: &ApiServer| ["ScaledUp", "ScaledDown"].map(|reason| s.events(NS, reason).len());
    server.wait_until(|s| told(s) == [2, 1], seconds(5)).await;
    operator.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_is_told_before_the_process_ends_a_few_events_at_once() {
    let server = ApiServer::new(1);
    let operator = Operator::leader(&server, "a", Locks::default());
    server.fault(Requests::creates("events"), Fault::Delay(seconds(1)));
    let sets = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for set in sets {
        server.create_podset(NS, set, 1);
    }
    for set in sets {
        settled(&server, set, 1).await;
    }
    assert_eq!(server.count(&Requests::creates("events")), 4);
    operator.end().await;
    assert_eq!(server.events(NS, "ScaledUp").len(), sets.len());
}
