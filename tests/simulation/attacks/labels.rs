//! A7: a pod loses the label by which it is watched.

use super::*;

/// A7: pods lose the label while the operator watches, and then the set is scaled down.
async fn a7_watched(rules: Rules) -> ApiServer {
    let (server, _operator) = with_set(3, rules).await;
    for pod in &server.live_pods(NS, "web")[..2] {
        server.strip_label(NS, pod);
    }
    sleep(5).await;
    server.scale(NS, "web", 1);
    sleep(60).await;
    server
}

/// A7: a pod loses the label while no replica watches, and then another replica leads.
async fn a7_unwatched(rules: Rules) -> ApiServer {
    let (server, operator) = with_set(3, Rules::default()).await;
    kill_all(&server);
    ready(&server, "web", 3).await;
    drop(operator);
    server.strip_label(NS, &server.live_pods(NS, "web")[0]);
    let _operator = Operator::leader(&server, "b", rules);
    sleep(60).await;
    server
}

fn are_labelled(server: &ApiServer) -> bool {
    let is_labelled = |pod: &String| server.pod(NS, pod)["metadata"]["labels"][LABEL] == "podset-operator";
    server.live_pods(NS, "web").iter().all(is_labelled)
}

#[tokio::test(start_paused = true)]
async fn a7_a_pod_without_the_label_counts_and_gets_it_back() {
    let forgetful = cached(CacheRules { may_count: |_, _| false, ..CacheRules::default() });
    let server = try_both_ways(a7_watched, forgetful).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 1);
    assert!(are_labelled(&server));

    let unread = Rules { reads_first: false, ..Rules::default() };
    let server = try_both_ways(a7_unwatched, unread).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 3);
    assert!(are_labelled(&server));

    let labelled =
        Rules { take_over_selector: Some("app.kubernetes.io/managed-by=podset-operator"), ..Rules::default() };
    let server = a7_unwatched(labelled).await;
    assert!(exceeded_bound(&server), "the attack must succeed if the take-over lists only labelled pods");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_loses_its_owner_reference_is_replaced_and_kept() {
    let (server, _operator) = with_set(2, Rules::default()).await;
    let freed = server.live_pods(NS, "web")[0].clone();
    server.strip_owner(NS, &freed);
    ready(&server, "web", 2).await;
    server.delete_podset(NS, "web");
    sleep(60).await;
    assert!(object::is_live(&server.pod(NS, &freed)));
    assert_eq!(server.all(&PODS, NS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_label_cannot_be_restored_blocks_nothing() {
    for fault in [
        Fault::Refuse(Status::forbidden(&PODS, "any", "it is protected")),
        Fault::Refuse(Status::of_code(409)),
        Fault::Refuse(Status::of_code(504)),
        Fault::CutBefore,
    ] {
        let (server, _operator) = with_set(3, Rules::default()).await;
        let pods = server.live_pods(NS, "web");
        let rule = server.fault(Requests::all().verb(Verb::Patch).of("pods"), fault);
        server.strip_label(NS, &pods[0]);
        sleep(40).await;
        for pod in &pods[1..] {
            server.kill_pod(NS, pod);
            assert!(becomes_ready(&server, "web", 3, 3).await);
            sleep(40).await;
        }
        assert!(rule.hits() < 12, "retried with backoff: {}", rule.hits());
        rule.remove();
        sleep(40).await;
        assert_eq!(server.pod(NS, &pods[0])["metadata"]["labels"][LABEL], "podset-operator");
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_that_is_always_removed_is_restored_once_per_second() {
    let (server, _operator) = with_set(1, Rules::default()).await;
    let pod = only_pod(&server, "web");
    for _ in 0..200 {
        if !server.pod(NS, &pod)["metadata"]["labels"][LABEL].is_null() {
            server.strip_label(NS, &pod);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let restored = server.count(&Requests::all().verb(Verb::Patch).of("pods"));
    assert!((5..=11).contains(&restored), "{restored}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_holds_up_no_other() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    let pods = server.live_pods(NS, "web");
    server.fault(Requests::all().verb(Verb::Get).of("pods").named(&pods[0]), Fault::Refuse(Status::of_code(503)));
    for pod in &pods[..2] {
        server.strip_label(NS, pod);
    }
    server.kill_pod(NS, &pods[1]);
    server.wait_until(|s| s.live_pods(NS, "web").len() == 3, seconds(60)).await;
}
