//! A12: the API server rejects every delete of one pod.

use super::*;

/// Protects some pods: every delete of them is rejected.
struct Protection {
    pods: Vec<String>,
    rules: Vec<FaultRule>,
}

impl Protection {
    fn of(server: &ApiServer, pods: &[String]) -> Self {
        let rule = |pod: &String| {
            let rejection = Status::forbidden(&PODS, pod, "it is protected");
            server.fault(Requests::deletes("pods").named(pod), Fault::Refuse(rejection))
        };
        Protection { pods: pods.to_vec(), rules: pods.iter().map(rule).collect() }
    }

    fn hits(&self) -> usize {
        self.rules.iter().map(FaultRule::hits).sum()
    }

    /// Lifts the protection and changes a label of each pod.
    fn lift(self, server: &ApiServer) {
        self.rules.into_iter().for_each(FaultRule::remove);
        for pod in &self.pods {
            server.patch(&PODS, NS, pod, json!({ "metadata": { "labels": { "protected": "no" } } }));
        }
    }
}

const REJECTION: &str = r#"True/FailedDelete: pods "web-pod" is forbidden: it is protected"#;

/// A12: a set is scaled from six to two pods, and the first one to delete is protected. Returns the pods that are left.
async fn a12(rules: Rules) -> (ApiServer, String, Vec<String>) {
    let (server, _operator) = with_set(6, rules).await;
    let protected = first_victim(&server);
    sleep(1).await;
    Protection::of(&server, std::slice::from_ref(&protected));
    server.scale(NS, "web", 2);
    sleep(60).await;
    let left = server.live_pods(NS, "web");
    (server, protected, left)
}

#[tokio::test(start_paused = true)]
async fn a12_one_protected_pod_does_not_block_the_others() {
    let (server, protected, left) = a12(Rules::default()).await;
    assert!(left.len() == 2 && left.contains(&protected), "{left:?}");
    assert_eq!(condition(&server, "Ready"), "True/AllPodsReady: 2 of 2 pods are ready");
    assert_eq!(condition(&server, "ReplicaFailure"), "", "the set does not need to delete it any more");
    assert_eq!((server.events(NS, "ScaledDown").len(), server.events(NS, "FailedDelete").len()), (1, 1));
    assert_eq!(server.count(&Requests::deletes("pods")), 5, "it is not tried again");
    let (_, _, left) = a12(Rules { is_confined: false, ..Rules::default() }).await;
    assert_eq!(left.len(), 6, "the attack must succeed if a rejection stops the whole set");
}

/// Two pods are protected: what is reported, when the deletes are retried, and how the set recovers.
#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_deleted_are_reported_and_retried_and_delay_nothing() {
    let (server, _operator) = with_set(6, Rules::default()).await;
    let protection = Protection::of(&server, &server.live_pods(NS, "web")[..2]);
    server.scale(NS, "web", 1);
    sleep(60).await;
    assert_eq!(server.live_pods(NS, "web"), protection.pods);
    let ready = r#"True/AllPodsReady: 2 of 1 pods are ready; pods cannot be deleted: pods "web-pod" is forbidden: it is protected"#;
    assert_eq!(condition(&server, "Ready"), ready);
    assert!(condition(&server, "Reconciling").starts_with("True/Retrying"));
    assert_eq!(condition(&server, "ReplicaFailure"), REJECTION);
    let set = server.podset(NS, "web");
    assert_ne!(set["status"]["observedGeneration"], set["metadata"]["generation"], "more pods are live than it wants");
    let events = ["FailedDelete", "ScaledDown"].map(|reason| server.events(NS, reason).len());
    assert_eq!(events, [1, 1]);

    // 0, 1, 3, 7, 15, 31 and 61 s, and then every 30 s.
    let (hits, mark) = (protection.hits(), server.mark());
    assert!((10..=14).contains(&hits), "{hits}");
    sleep(300).await;
    assert_eq!(protection.hits() - hits, 20);
    assert_eq!(server.requests_since(mark).len(), 20, "only deletes are sent");

    server.scale(NS, "web", 4);
    assert!(becomes_ready(&server, "web", 4, 3).await, "it still gets pods");
    sleep(10).await;
    assert_eq!(condition(&server, "ReplicaFailure"), "");
    assert_eq!(condition(&server, "Ready"), "True/AllPodsReady: 4 of 4 pods are ready");

    server.scale(NS, "web", 1);
    sleep(100).await;
    assert_eq!(condition(&server, "ReplicaFailure"), REJECTION);
    protection.lift(&server);
    assert!(becomes_ready(&server, "web", 1, 3).await, "at once");
    at_rest(&server, "web", 1).await;
    assert_eq!(condition(&server, "ReplicaFailure"), "");
}

#[tokio::test(start_paused = true)]
async fn an_undecided_delete_affects_only_its_pod() {
    // If the delete may still be executed, no other pod may be deleted in its place.
    for (answer, live) in [(webhook_failed(), 2), (Status::of_code(504), 3)] {
        let code = answer.code;
        let (server, _operator) = with_set(6, Rules::default()).await;
        let undecided = first_victim(&server);
        let rule = server.fault(Requests::deletes("pods").named(&undecided), Fault::Refuse(answer));
        server.scale(NS, "web", 2);
        sleep(20).await;
        assert_eq!(server.live_pods(NS, "web").len(), live, "{code}");
        assert_eq!(condition(&server, "ReplicaFailure").starts_with("True/FailedDelete"), live == 3, "{code}");
        assert_eq!(server.events(NS, "FailedDelete").len(), 1, "{code}");
        // A scale-up is not delayed.
        server.scale(NS, "web", 4);
        assert!(becomes_ready(&server, "web", 4, 3).await, "{code}");
        rule.remove();
        at_rest(&server, "web", 4).await;
    }
}

/// Deletes of a finished pod are rejected, and the next ones break off.
#[tokio::test(start_paused = true)]
async fn an_undeletable_finished_pod_blocks_no_replacement_and_is_not_deleted_again_at_once() {
    let (server, _operator) = with_set(2, Rules::default()).await;
    let rejection = Fault::Refuse(Status::forbidden(&PODS, "any", "it is protected"));
    let rule = server.fault(Requests::deletes("pods"), rejection);
    finish_one_by_one(&server, KEPT + 1, 2).await;
    sleep(700).await;
    assert_eq!(server.pods(NS, "web").len(), 2 + KEPT + 1);
    assert!(condition(&server, "ReplicaFailure").starts_with("True/FailedDelete"));
    assert!(condition(&server, "Ready").starts_with("True/AllPodsReady"));
    assert_eq!(server.events(NS, "FailedDelete").len(), 1);
    rule.remove();
    let cut = server.fault(Requests::deletes("pods"), Fault::CutBefore);
    sleep(100).await;
    assert!((1..5).contains(&cut.hits()), "{}", cut.hits());
    cut.remove();
    at_rest(&server, "web", 2).await;
    assert_eq!(server.pods(NS, "web").len(), 2 + KEPT);
}

/// A webhook removes the owner reference of the first pods, and the API server rejects all deletes.
#[tokio::test(start_paused = true)]
async fn one_or_two_undeletable_strays_do_not_block_creates() {
    for changed in [1, 2] {
        let (server, _operator) = server_and_leader();
        let seen = AtomicUsize::new(0);
        server.change_new_pods(move |pod| {
            if seen.fetch_add(1, Ordering::Relaxed) < changed {
                pod["metadata"]["ownerReferences"] = json!([]);
            }
        });
        let rejection = Fault::Refuse(Status::forbidden(&PODS, "any", "it is protected"));
        let rule = server.fault(Requests::deletes("pods"), rejection);
        server.create_podset(NS, "web", 3);
        ready(&server, "web", 3).await;
        sleep(20).await;
        assert_eq!(server.all(&PODS, NS).len(), 3 + changed);
        assert!(condition(&server, "Ready").starts_with("True/AllPodsReady"), "{}", condition(&server, "Ready"));
        assert!(condition(&server, "ReplicaFailure").starts_with("True/FailedDelete"));
        assert_eq!(["FailedCreate", "FailedDelete"].map(|reason| server.events(NS, reason).len()), [1, 1]);
        rule.remove();
        at_rest(&server, "web", 3).await;
        assert_eq!(server.all(&PODS, NS).len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_with_undeletable_pods_replaces_pods_that_others_delete() {
    let (server, _operator) = with_set(4, Rules::default()).await;
    let protection = Protection::of(&server, &server.live_pods(NS, "web"));
    server.scale(NS, "web", 2);
    sleep(100).await;
    for pod in &protection.pods[..3] {
        server.kill_pod(NS, pod);
    }
    assert!(becomes_ready(&server, "web", 2, 3).await);
}

/// The watch is held back, so only a read can show that the pod is gone.
#[tokio::test(start_paused = true)]
async fn an_unreadable_delete_response_is_followed_by_a_read() {
    let (server, _operator) = with_set(2, Rules::default()).await;
    server.watches().on("pods").hold();
    server.fault(Requests::deletes("pods").first(1), Fault::ExecuteThenGarble);
    server.scale(NS, "web", 1);
    sleep(5).await;
    assert_eq!(server.count(&Requests::deletes("pods")), 1);
    assert_eq!(condition(&server, "Ready"), "True/AllPodsReady: 1 of 1 pods are ready");
}
