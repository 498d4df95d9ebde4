//! A rollout with a partition: some pods keep the former template, the others are canaries.

use super::{rollouts::*, *};

/// openkruise/kruise#410: a larger partition does not roll back. To roll back, the template is changed.
#[tokio::test(start_paused = true)]
async fn a_partition_keeps_old_pods_and_rolls_nothing_back() {
    let (server, _operator) = running(4, partition("50%")).await;
    changed_to(&server, "b", 60, "a a b b").await;
    assert!(condition(&server, "Ready").starts_with("True/PartitionReached"), "{}", condition(&server, "Ready"));
    delete_one(&server, "a");
    ready(&server, "web", 4).await;
    assert_eq!(versions(&server), "a a b b", "an old pod that dies stays old");
    change(&server, partition(3));
    sleep(120).await;
    assert_eq!(versions(&server), "a a b b");
    delete_one(&server, "b");
    sleep(60).await;
    assert_eq!(versions(&server), "a a a b", "a new pod follows the partition");
    change(&server, partition(0));
    rolled_out(&server, "b", 4).await;
}

/// A scale-down does not complete the rollout, so the set keeps its former template when it grows again.
#[tokio::test(start_paused = true)]
async fn a_scale_down_keeps_the_former_template_of_a_partition_and_of_a_paused_rollout() {
    let paused = json!({ "updateStrategy": { "rollingUpdate": { "paused": true, "partition": 0 } } });
    for (change_strategy, expected) in [(json!({}), "a a b b b"), (paused, "a a a b b")] {
        let (server, _operator) = running(5, partition(2)).await;
        changed_to(&server, "b", 120, "a a b b b").await;
        change(&server, change_strategy);
        for (replicas, left) in [(3, "a a b"), (5, expected)] {
            server.scale(NS, "web", replicas);
            sleep(60).await;
            assert_eq!(versions(&server), left);
        }
        assert!(server.events(NS, "RolloutComplete").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_at_a_percentage_replaces_no_pod() {
    let (server, _operator) = running(8, partition("50%")).await;
    changed_to(&server, "b", 240, "a a a a b b b b").await;
    let created = server.count(&Requests::creates("pods"));
    server.scale(NS, "web", 4);
    sleep(60).await;
    assert_eq!((versions(&server).as_str(), server.count(&Requests::creates("pods"))), ("a a b b", created));
}

/// A broken pod at the partition exceeds the progress deadline. A partition of 100% rolls out no pod, so it exceeds none.
#[tokio::test(start_paused = true)]
async fn a_broken_canary_stalls_the_set() {
    for (kept, left, is_late) in [(json!("100%"), "a a a a", false), (json!(3), "a a a broken", true)] {
        let mut spec = partition(kept);
        spec["progressDeadlineSeconds"] = json!(60);
        let (server, _operator) = running(4, spec).await;
        changed_to(&server, "broken", 120, left).await;
        assert_eq!(condition(&server, "Stalled").starts_with("True/ProgressDeadlineExceeded"), is_late);
        assert_eq!(condition(&server, "Ready").starts_with("True/PartitionReached"), !is_late);
        changed_to(&server, "c", 60, &left.replace("broken", "c")).await;
        assert!(condition(&server, "Ready").starts_with("True/PartitionReached"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_back_also_replaces_the_canary() {
    for canary in ["b", "broken"] {
        let (server, _operator) = running(4, partition(3)).await;
        changed_to(&server, canary, 60, &format!("a a a {canary}")).await;
        change_template(&server, "a");
        completed(&server, "a", 4).await;
    }
}

/// One pod is ready, but not yet available.
#[tokio::test(start_paused = true)]
async fn a_change_back_before_a_pod_was_replaced_is_no_rollout() {
    let mut spec = partition("100%");
    spec["minReadySeconds"] = json!(60);
    let (server, _operator) = running(3, spec).await;
    sleep(70).await;
    delete_one(&server, "a");
    ready(&server, "web", 3).await;
    changed_to(&server, "b", 10, "a a a").await;
    changed_to(&server, "a", 10, "a a a").await;
    assert!(condition(&server, "Ready").starts_with("True/AllPodsReady"), "{}", condition(&server, "Ready"));
}

#[tokio::test(start_paused = true)]
async fn the_next_template_replaces_the_canary_first() {
    let (server, _operator) = running(4, partition(3)).await;
    for pod in server.live_pods(NS, "web") {
        put_first(&server, &pod);
    }
    changed_to(&server, "b", 60, "a a a b").await;
    changed_to(&server, "c", 60, "a a a c").await;
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_is_not_ready_starts_no_rollout() {
    let mut spec = partition(2);
    spec["podReplacementPolicy"] = json!("TerminationComplete");
    let (server, _operator) = running(4, spec).await;
    changed_to(&server, "b", 60, "a a b b").await;
    terminate_slowly(&server, 3600);
    // The second time, the status is not yet about the scale-down.
    for replicas in [4, 3] {
        server.scale(NS, "web", replicas);
        sleep(10).await;
        let pods = server.pods(NS, "web");
        let is_canary = |pod: &&Value| version(pod) == "b" && object::is_live(pod);
        let canary = object::name(pods.iter().find(is_canary).unwrap());
        for is_ready in [false, true, false, true] {
            server.set_ready(NS, canary, is_ready);
            sleep(10).await;
        }
        assert_eq!(server.events(NS, "RolloutStarted").len(), 1);
    }
}

/// It knows since when pods are ready, and a scale changes no number of a revision.
#[tokio::test(start_paused = true)]
async fn a_new_leader_leaves_a_partition_as_it_is() {
    let mut spec = partition(3);
    spec["minReadySeconds"] = json!(30);
    let (server, operator) = running(4, spec).await;
    changed_to(&server, "b", 120, "a a a b").await;
    for replicas in [5, 4] {
        server.scale(NS, "web", replicas);
        sleep(120).await;
    }
    operator.end().await;
    let _operator = Operator::leader(&server, "new", Rules::default());
    sleep(20).await;
    assert_eq!(server.count(&Requests::mutating().from("new")), 0);
    server.fault(Requests::all().verb(Verb::List).of("controllerrevisions"), Fault::Refuse(Status::of_code(500)));
    delete_one(&server, "b");
    sleep(60).await;
    let renumbered = Requests::all().verb(Verb::Patch).of("controllerrevisions");
    assert_eq!((versions(&server).as_str(), server.count(&renumbered)), ("a a a b", 0));
}
