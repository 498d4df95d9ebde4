//! A5, A6: events that come late, twice, or before the response to the write that caused them.

use super::*;

/// The watch of the sets lags by 10 s. A response shows the operator the new N first. The event with the old, larger N comes later.
async fn an_old_n_comes_late(wanted: usize, old: i64, rules: Rules) -> (ApiServer, Operator) {
    let (server, operator) = with_set(wanted, rules).await;
    server.watches().on("podsets").delay(seconds(10));
    server.scale(NS, "web", old);
    sleep(1).await;
    server.scale(NS, "web", i64::try_from(wanted).unwrap());
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    (server, operator)
}

/// A5: an old N comes late.
async fn a5(rules: Rules) -> ApiServer {
    let (server, _operator) = an_old_n_comes_late(1, 3, rules).await;
    sleep(60).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a5_an_old_n_never_comes_back() {
    let server = try_both_ways(a5, cached(CacheRules { is_stale: |_, _| false, ..CacheRules::default() })).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 1);
}

/// A5: the watch of the pods lags behind the list of a new leader. It then shows a pod that was gone in that list, and the pod looks like
/// a surplus.
async fn a5_ghost(rules: Rules) -> ApiServer {
    let (server, a) = with_set(2, Rules::default()).await;
    let mut b = Operator::standby(&server, "b", rules);
    sleep(1).await;
    server.watches().of("b").on("pods").delay(seconds(20));
    let pod = server.live_pods(NS, "web")[0].clone();
    server.patch(&PODS, NS, &pod, json!({ "metadata": { "annotations": { "app.example.com/note": "x" } } }));
    sleep(2).await;
    server.kill_pod(NS, &pod);
    ready(&server, "web", 2).await;
    // Until the status names the new pod.
    sleep(6).await;
    a.end().await;
    b.lead();
    sleep(120).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a5_a_late_event_of_a_gone_pod_deletes_no_other_pod() {
    let server = a5_ghost(Rules::default()).await;
    assert_eq!(server.effects(&Requests::deletes("pods")), 0);
    let server = a5_ghost(cached(CacheRules { is_over: |_, _| false, ..CacheRules::default() })).await;
    let deletes = server.effects(&Requests::deletes("pods"));
    assert!(deletes > 0, "the attack must succeed if a list does not win over an older event");
}

/// A6: a pod is created and killed before its create is answered.
async fn a6(rules: Rules) -> bool {
    let server = ApiServer::new(1);
    server.create_podset(NS, "web", 1);
    let answer = server.fault(Requests::creates("pods").first(1), Fault::HoldAnswer);
    let _operator = Operator::leader(&server, "a", rules);
    answer.wait_for_hits(1).await;
    server.wait_until(|s| s.live_pods(NS, "web").len() == 1, seconds(5)).await;
    server.kill_pod(NS, &only_pod(&server, "web"));
    sleep(2).await;
    answer.release();
    becomes_ready(&server, "web", 1, 20).await
}

#[tokio::test(start_paused = true)]
async fn a6_a_pod_that_ends_before_its_create_is_answered_is_replaced() {
    assert!(a6(Rules::default()).await);
    let credulous = cached(CacheRules { is_behind_watch: |_, _| false, ..CacheRules::default() });
    assert!(!a6(credulous).await, "the attack must succeed if a late response brings back a pod that has ended");
}

#[tokio::test(start_paused = true)]
async fn a6_a_set_deleted_before_its_patch_is_answered_gets_no_pods() {
    let (server, _operator) = with_set(2, Rules::default()).await;
    let answer = server.fault(Requests::status_patches("podsets").first(1), Fault::HoldAnswer);
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    answer.wait_for_hits(1).await;
    server.delete_podset(NS, "web");
    server.wait_until(|s| s.podset(NS, "web").is_null(), seconds(5)).await;
    sleep(1).await;
    let creates = server.count(&Requests::creates("pods"));
    answer.release();
    sleep(60).await;
    assert_eq!(server.count(&Requests::creates("pods")), creates);
}

#[tokio::test(start_paused = true)]
async fn a1_a_create_that_lands_late_counts_until_it_is_seen() {
    let (server, _operator) = with_set(1, Rules::default()).await;
    server.settings(|settings| settings.honour_timeout = false);
    let late = server.fault(Requests::creates("pods").first(1), Fault::ExecuteLate(Duration::from_millis(59_900)));
    server.scale(NS, "web", 2);
    late.wait_for_hits(1).await;
    server.scale(NS, "web", 1);
    sleep(5).await;
    server.watches().on("pods").hold();
    sleep(60).await;
    server.watches().on("pods").release();
    at_rest(&server, "web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a5_a_deleted_set_does_not_come_back_with_an_old_n() {
    let (server, _operator) = an_old_n_comes_late(2, 8, Rules::default()).await;
    sleep(5).await;
    server.delete_podset(NS, "web");
    sleep(60).await;
    assert_eq!(server.all(&PODS, NS).len(), 0);
}
