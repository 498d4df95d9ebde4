//! Events are sent in the background: they delay no reconcile, and none is lost at shutdown.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_slow_event_create_delays_no_set() {
    let (server, _operator) = server_and_leader();
    let slow = server.fault(Requests::creates("events"), Fault::Delay(seconds(5)));
    server.create_podset(NS, "web", 2);
    for replicas in [2, 5, 3] {
        server.scale(NS, "web", replicas);
        let is_there = |s: &ApiServer| i64::try_from(s.live_pods(NS, "web").len()) == Ok(replicas);
        server.wait_until(is_there, seconds(1)).await;
    }
    slow.wait_for_hits(3).await;
    let events = |s: &ApiServer| ["ScaledUp", "ScaledDown"].map(|reason| s.events(NS, reason).len());
    assert_eq!(events(&server), [0, 0]);
    server.wait_until(|s| events(s) == [2, 1], seconds(6)).await;
}

#[tokio::test(start_paused = true)]
async fn queued_events_are_sent_four_at_a_time_and_before_the_exit() {
    let (server, operator) = server_and_leader();
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

#[tokio::test(start_paused = true)]
async fn slow_events_do_not_delay_the_next_leader() {
    let server = ApiServer::new(1);
    let first = Replica::start(&server, "first", Model::default());
    server.wait_until(|_| first.leads(), seconds(20)).await;
    server.fault(Requests::creates("events"), Fault::Delay(seconds(2)));
    for n in 0..20 {
        server.create_podset(NS, &format!("web-{n}"), 1);
    }
    settled(&server, "web-19", 1).await;
    let second = Replica::start(&server, "second", Model::default());
    sleep(seconds(3)).await;
    let stopped = Instant::now();
    first.end().await.unwrap();
    let took = stopped.elapsed();
    assert!(took < seconds(6), "three seconds, and the events in flight: {took:?}");
    server.wait_until(|_| second.leads(), seconds(2)).await;
    second.end().await.unwrap();
}
