//! A2, A3, A4: two replicas, where the second takes over from the first.

use super::*;

/// A2: the old leader uses the next name because the former pod is still terminating. The new leader sees it gone and reuses its
/// name.
async fn a2(rules: Rules) -> ApiServer {
    let server = server_that_executes_late();
    terminate_slowly(&server, 3);
    server.create_podset(NS, "web", 1);
    let mut a = Operator::leader(&server, "a", rules);
    let mut b = Operator::standby(&server, "b", rules);
    ready(&server, "web", 1).await;
    let late = server.fault(Requests::creates("pods").from("a"), Fault::ExecuteLate(seconds(10)));
    server.delete_pod(NS, &only_pod(&server, "web"));
    late.wait_for_hits(1).await;
    a.resign();
    sleep(5).await;
    b.lead();
    sleep(40).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a2_the_new_leader_chooses_the_same_name() {
    let restless = cached(CacheRules { quarantine: SignedDuration::ZERO, ..CacheRules::default() });
    let server = try_both_ways(a2, restless).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 1);
}

/// A3: a request is executed after its sender lost the lease, and the new leader does not know why it was sent.
async fn a3(is_gated: bool) -> ApiServer {
    let server = ApiServer::new(1);
    terminate_slowly(&server, 1);
    server.create_podset(NS, "web", 1);
    let mut a = Operator::start(&server, "a", Rules::default(), is_gated);
    a.lead();
    ready(&server, "web", 1).await;
    a.lead_for(seconds(5));
    let slow = server.fault(Requests::creates("pods").from("a"), Fault::Delay(seconds(8)));
    server.delete_pod(NS, &only_pod(&server, "web"));
    slow.wait_for_hits(1).await;
    sleep(2).await;
    let mut b = Operator::standby(&server, "b", Rules::default());
    sleep(4).await;
    b.lead();
    sleep(30).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a3_a_write_ends_before_its_senders_term() {
    let server = a3(true).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 1);
    let server = a3(false).await;
    assert!(exceeded_bound(&server), "the attack must succeed if the term does not bound writes");
}

/// A4: the watches of a standby stall while another replica leads. Then the standby leads, and its cache lacks the live pods.
async fn a4_pods(rules: Rules) -> ApiServer {
    let server = ApiServer::new(1);
    server.create_podset(NS, "web", 3);
    let mut b = Operator::standby(&server, "b", rules);
    sleep(1).await;
    server.watches().of("b").stall();
    let a = Operator::leader(&server, "a", rules);
    ready(&server, "web", 3).await;
    // The new pods do not have the first names any more.
    kill_all(&server);
    ready(&server, "web", 3).await;
    a.end().await;
    b.lead();
    sleep(400).await;
    server
}

/// A4: the standby missed a scale-down because only its watch of the pods works.
async fn a4_spec() -> ApiServer {
    let (server, a) = with_set(3, Rules::default()).await;
    let mut b = Operator::standby(&server, "b", Rules::default());
    sleep(1).await;
    server.watches().of("b").on("podsets").stall();
    server.scale(NS, "web", 1);
    ready(&server, "web", 1).await;
    a.end().await;
    b.lead();
    sleep(400).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a4_a_new_leader_reads_before_it_writes() {
    let server = try_both_ways(a4_pods, Rules { reads_first: false, ..Rules::default() }).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 3);
    let server = a4_spec().await;
    assert_eq!(server.ready_pods(NS, "web").len(), 1);
}

/// A4: a set was recreated and scaled down while the new leader's watch lagged.
#[tokio::test(start_paused = true)]
async fn a4_a_new_leader_reads_a_recreated_set_before_it_writes() {
    let server = ApiServer::new(1);
    for set in ["web", "other"] {
        server.create_podset(NS, set, 2);
    }
    let a = Operator::leader(&server, "a", Rules::default());
    let mut b = Operator::standby(&server, "b", Rules::default());
    for set in ["web", "other"] {
        ready(&server, set, 2).await;
    }
    let watches = server.watches().of("b").on("podsets");
    watches.delay(seconds(30));
    server.delete_podset(NS, "web");
    server.wait_until(|s| s.podset(NS, "web").is_null() && s.pods(NS, "web").is_empty(), seconds(60)).await;
    server.create_podset(NS, "web", 8);
    ready(&server, "web", 8).await;
    server.scale(NS, "web", 2);
    ready(&server, "web", 2).await;
    sleep(3).await;
    a.end().await;
    b.lead();
    // The new leader must write for the other set, so it reads the namespace first.
    server.kill_pod(NS, &server.live_pods(NS, "other")[0]);
    ready(&server, "other", 2).await;
    for _ in 0..40 {
        kill_all(&server);
        sleep(1).await;
    }
    ready(&server, "web", 2).await;
}
