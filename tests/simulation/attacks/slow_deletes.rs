//! Deletes that take several seconds and fail, so that a pass has time for few of them.

use super::{
    rollouts::{change_template, partition, running, versions},
    undecided::hang,
    *,
};

/// A webhook takes six seconds to fail for every delete of this pod.
fn fail_slowly(server: &ApiServer, pod: &str) -> FaultRule {
    server.fault(Requests::deletes("pods").named(pod), Fault::RefuseLate(seconds(6), webhook_failed()))
}

fn deletes(server: &ApiServer) -> usize {
    server.count(&Requests::deletes("pods"))
}

/// The deletes of the first pods hang, or fail slowly.
#[tokio::test(start_paused = true)]
async fn slow_deletes_leave_time_for_the_others() {
    for (slow_down, pods, slow, wanted, within) in
        [(hang as fn(&_, &_) -> _, 40, 12, 20, 300), (fail_slowly, 40, 12, 20, 90), (hang, 5, 2, 4, 600)]
    {
        let (server, _operator) = with_set(pods, Rules::default()).await;
        for pod in &server.live_pods(NS, "web")[..slow] {
            put_first(&server, pod);
            slow_down(&server, pod);
        }
        server.scale(NS, "web", wanted);
        let is_scaled = |s: &ApiServer| i64::try_from(s.live_pods(NS, "web").len()) == Ok(wanted);
        server.wait_until(is_scaled, seconds(within)).await;
        sleep(300).await;
        assert!(is_scaled(&server), "{:?}", server.live_pods(NS, "web"));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_deletes_of_finished_pods_delay_no_creates() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    fail_slowly(&server, "web");
    finish_one_by_one(&server, KEPT + 9, 3).await;
    sleep(700).await;
    server.scale(NS, "web", 103);
    assert!(becomes_ready(&server, "web", 103, 20).await);
}

#[tokio::test(start_paused = true)]
async fn one_surplus_pod_is_reported_before_all_others_were_tried() {
    for delay in [2, 6] {
        let (server, _operator) = with_set(10, Rules::default()).await;
        server.fault(Requests::deletes("pods"), Fault::RefuseLate(seconds(delay), webhook_failed()));
        server.scale(NS, "web", 9);
        sleep(14).await;
        assert!(condition(&server, "ReplicaFailure").starts_with("True/FailedDelete"), "after {delay} s");
        let patches = server.count(&Requests::status_patches("podsets"));
        sleep(600).await;
        assert_eq!(server.events(NS, "FailedDelete").len(), 1);
        let patched = server.count(&Requests::status_patches("podsets")) - patches;
        assert!(patched <= 1, "it does not change again and again");
    }
}

/// Many pods are protected, and then the last one is not. All are tried in turn.
#[tokio::test(start_paused = true)]
async fn a_pod_that_can_be_deleted_again_gets_its_turn() {
    let (server, _operator) = with_set(20, Rules::default()).await;
    let pods = server.live_pods(NS, "web");
    let mut rules: Vec<FaultRule> = pods.iter().map(|pod| fail_slowly(&server, pod)).collect();
    server.scale(NS, "web", 19);
    sleep(600).await;
    let tried: Vec<usize> = rules.iter().map(FaultRule::hits).collect();
    assert!(tried.iter().all(|hits| *hits > 2), "{tried:?}");
    rules.pop().unwrap().remove();
    server.wait_until(|s| s.live_pods(NS, "web").len() == 19, seconds(180)).await;
}

/// Writes that fail or get no answer are reported and retried when a new leader takes over.
#[tokio::test(start_paused = true)]
async fn a_new_leader_neither_withdraws_nor_repeats_the_report() {
    let [creates, deletes] = [Requests::creates("pods"), Requests::deletes("pods")];
    let late = |after| Fault::RefuseLate(seconds(after), webhook_failed());
    let protected = Fault::Refuse(Status::forbidden(&PODS, "any", "it is protected"));
    for (requests, reason, fault, replicas) in [
        (&deletes, "FailedDelete", protected, 3),
        (&deletes, "FailedDelete", late(5), 4),
        (&deletes, "FailedDelete", late(30), 4),
        (&creates, "FailedCreate", late(5), 6),
        (&creates, "FailedCreate", late(30), 6),
        (&creates, "FailedCreate", late(30), 9),
    ] {
        let case = format!("{reason} {fault:?} {replicas}");
        let (server, operator) = with_set(5, Rules::default()).await;
        let failing = server.fault(requests.clone(), fault);
        server.scale(NS, "web", replicas);
        sleep(180).await;
        drop(operator);
        let (patches, hits) = (server.count(&Requests::status_patches("podsets")), failing.hits());
        let _operator = Operator::leader(&server, "b", Rules::default());
        sleep(120).await;
        let patched = server.count(&Requests::status_patches("podsets")) - patches;
        assert_eq!((patched, server.events(NS, reason).len()), (0, 1), "{case}");
        assert!(failing.hits() > hits, "{case}");
        failing.remove();
        ready(&server, "web", usize::try_from(replicas).unwrap()).await;
    }
}

/// A scale-down is undone, or the operator is stopped, while the first deletes are in flight.
#[tokio::test(start_paused = true)]
async fn no_delete_begins_for_a_former_spec_or_after_the_signal_to_stop() {
    for is_stopped in [false, true] {
        let (server, operator) = with_set(30, Rules::default()).await;
        server.fault(Requests::deletes("pods"), Fault::Delay(seconds(1)));
        server.scale(NS, "web", 1);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let begun = deletes(&server);
        assert!((2..10).contains(&begun), "{begun}");
        if is_stopped {
            operator.end().await;
            assert_eq!(deletes(&server), begun);
        } else {
            server.scale(NS, "web", 30);
            sleep(3).await;
            assert_eq!(deletes(&server), begun);
            ready(&server, "web", 30).await;
        }
    }
}

/// All deletes of large sets hang. Another set of the namespace is still scaled.
#[tokio::test(start_paused = true)]
async fn other_sets_of_the_namespace_get_connections() {
    let (server, _operator) = server_and_leader();
    let sets = ["a", "b", "c"];
    for set in sets {
        server.create_podset(NS, set, 100);
        ready(&server, set, 100).await;
    }
    server.fault(Requests::deletes("pods"), Fault::Delay(seconds(3600)));
    for set in sets {
        server.scale(NS, set, 1);
    }
    sleep(100).await;
    for set in ["d", "e", "f"] {
        server.create_podset(NS, set, 20);
        assert!(becomes_ready(&server, set, 20, 3).await, "{set}");
        sleep(7).await;
    }
}

/// One delete fails, and other pods are replaced first. The rollout goes on, or the pod keeps the former template, as the partition wants.
#[tokio::test(start_paused = true)]
async fn a_single_failed_delete_does_not_stay_reported_during_a_rollout() {
    let slow = json!({ "minReadySeconds": 20 });
    for (replicas, spec, shown) in [(20, slow, "False/RolloutInProgress"), (4, partition(3), "True/PartitionReached")] {
        let (server, _operator) = running(replicas, spec).await;
        server.fault(Requests::deletes("pods").first(1), Fault::Refuse(webhook_failed()));
        change_template(&server, "b");
        sleep(120).await;
        assert!(versions(&server).contains("a b"), "{}", versions(&server));
        assert!(condition(&server, "Ready").starts_with(shown), "{}", condition(&server, "Ready"));
        assert_eq!(condition(&server, "ReplicaFailure"), "");
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_deletes_are_reported_at_once_during_a_rollout() {
    let (server, _operator) = running(1, json!({})).await;
    let rejected = server.fault(Requests::deletes("pods"), Fault::Refuse(webhook_failed()));
    change_template(&server, "b");
    server.wait_until(|s| !s.events(NS, "FailedDelete").is_empty(), seconds(60)).await;
    let is_reported = |s: &ApiServer| condition(s, "ReplicaFailure").starts_with("True/FailedDelete");
    server.wait_until(is_reported, seconds(6)).await;
    rejected.remove();
    server.wait_until(|s| condition(s, "ReplicaFailure").is_empty(), seconds(95)).await;
}
