//! Deletes of one pod fail repeatedly or have an unknown fate, for example because a webhook hangs for this pod. The other pods must not wait
//! forever.

use super::{
    rollouts::{change_template, changed_to, running, versions},
    terminations::unscheduled,
    *,
};

/// Every delete of this pod runs into its timeout.
pub(super) fn hang(server: &ApiServer, pod: &str) -> FaultRule {
    server.fault(Requests::deletes("pods").named(pod), Fault::Delay(seconds(3600)))
}

/// No delete of this pod arrives: a load balancer or a broken connection ends each.
fn cut(server: &ApiServer, pod: &str) -> FaultRule {
    server.fault(Requests::deletes("pods").named(pod), Fault::CutBefore)
}

#[tokio::test(start_paused = true)]
async fn another_pod_is_deleted_in_the_end() {
    for keep in [hang, cut] {
        let (server, _operator) = with_set(4, Rules::default()).await;
        let pod = first_victim(&server);
        keep(&server, &pod);
        server.scale(NS, "web", 2);
        sleep(60).await;
        assert_eq!(server.live_pods(NS, "web").len(), 3, "the delete may still take effect");
        server.wait_until(|s| s.live_pods(NS, "web").len() == 2, seconds(240)).await;
        assert!(server.live_pods(NS, "web").contains(&pod));
        sleep(300).await;
        assert_eq!(server.live_pods(NS, "web").len(), 2);
        assert!(condition(&server, "Ready").starts_with("True/AllPodsReady"));
    }
}

/// All deletes fail or hang. All other requests succeed.
#[tokio::test(start_paused = true)]
async fn many_deletes_that_fail_are_reported_and_delay_no_creates() {
    let hanging = Fault::Delay(seconds(3600));
    for (fault, within) in [(Fault::Refuse(Status::of_code(504)), 20), (Fault::CutBefore, 20), (hanging, 60)] {
        let (server, _operator) = with_set(10, Rules::default()).await;
        server.fault(Requests::deletes("pods"), fault);
        server.scale(NS, "web", 3);
        sleep(within).await;
        assert!(condition(&server, "ReplicaFailure").starts_with("True/FailedDelete"));
        assert_eq!(server.events(NS, "FailedDelete").len(), 1);
        sleep(300).await;
        server.scale(NS, "web", 12);
        assert!(becomes_ready(&server, "web", 12, 3).await);
    }
}

/// The last of many deletes took effect, and the watch does not show it. A read does, before another pod is deleted.
#[tokio::test(start_paused = true)]
async fn a_read_shows_whether_the_last_delete_took_effect() {
    let (server, _operator) = with_set(4, Rules::default()).await;
    let pod = first_victim(&server);
    sleep(5).await;
    server.watches().of("a").on("pods").hold();
    let deletes = || Requests::deletes("pods").named(&pod);
    let undecided = server.fault(deletes(), Fault::Refuse(Status::of_code(504)));
    server.scale(NS, "web", 3);
    server.wait_until(|_| undecided.hits() == 5, seconds(60)).await;
    undecided.remove();
    let last = server.fault(deletes(), Fault::ExecuteThenError(504));
    server.wait_until(|_| last.hits() == 1, seconds(60)).await;
    last.remove();
    sleep(100).await;
    assert_eq!(server.live_pods(NS, "web").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_replaces_the_other_pods() {
    let (server, _operator) = running(4, json!({})).await;
    hang(&server, &first_victim(&server));
    change_template(&server, "b");
    server.wait_until(|s| versions(s) == "a b b b", seconds(900)).await;
}

/// The first of many finished pods cannot be deleted.
#[tokio::test(start_paused = true)]
async fn other_finished_pods_are_deleted() {
    for keep in [hang, cut] {
        let (server, _operator) = with_set(2, Rules::default()).await;
        let kept = server.live_pods(NS, "web")[0].clone();
        keep(&server, &kept);
        finish_one_by_one(&server, 7, 2).await;
        assert!(object::is_finished(&server.pod(NS, &kept)));
        sleep(120).await;
        let finished = server.pods(NS, "web").len() - 2;
        assert_eq!(finished, KEPT + 1, "the one that cannot be deleted, and those that are kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_continues_with_a_pod_whose_deletes_were_undecided() {
    let (server, _operator) = running(4, json!({})).await;
    let pod = server.live_pods(NS, "web")[0].clone();
    server.set_ready(NS, &pod, false);
    let hanging = hang(&server, &pod);
    // No other pod may be unavailable.
    changed_to(&server, "b", 600, "a a a a").await;
    hanging.remove();
    server.wait_until(|s| versions(s) == "b b b b", seconds(300)).await;
}

/// The pods are read for another reason while the delete of one may still take effect.
#[tokio::test(start_paused = true)]
async fn an_early_read_decides_nothing() {
    let (server, _operator) = server_and_leader();
    sleep(5).await;
    server.watches().of("a").on("pods").hold();
    server.create_podset(NS, "web", 4);
    server.wait_until(|s| s.live_pods(NS, "web").len() == 4, seconds(10)).await;
    sleep(50).await;
    server.fault(Requests::deletes("pods"), Fault::Refuse(Status::of_code(504)));
    server.scale(NS, "web", 3);
    sleep(14).await;
    assert!(server.count(&Requests::all().verb(Verb::Get).of("pods")) >= 4, "a minute after their creation");
    let deletes = server.requests(&Requests::deletes("pods"));
    assert!(deletes.len() > 3 && deletes.iter().all(|delete| delete.request.name == deletes[0].request.name));
}

/// Under TerminationComplete, the delete of a pod without a node requires its version. A webhook rejects it with the code of a conflict.
#[tokio::test(start_paused = true)]
async fn a_rejection_with_the_code_of_a_conflict_concerns_one_pod() {
    let (server, _operator) = unscheduled(3, PodScript::unschedulable()).await;
    let pod = server.live_pods(NS, "web")[0].clone();
    let conflict = Status { message: "a webhook says no".to_owned(), ..Status::of_code(409) };
    server.fault(Requests::deletes("pods").named(&pod), Fault::Refuse(conflict));
    server.scale(NS, "web", 1);
    server.wait_until(|s| s.live_pods(NS, "web") == [pod.clone()], seconds(15)).await;
}

/// Under TerminationComplete, the delete of a pod without a node requires the resourceVersion in the cache. The watch has stopped.
#[tokio::test(start_paused = true)]
async fn a_pod_with_an_outdated_version_is_deleted_after_a_read() {
    let (server, _operator) = unscheduled(3, PodScript::unschedulable()).await;
    server.watches().of("a").on("pods").hold();
    for pod in server.live_pods(NS, "web") {
        server.patch(&PODS, NS, &pod, json!({ "metadata": { "annotations": { "a": "b" } } }));
    }
    server.scale(NS, "web", 1);
    server.wait_until(|s| s.live_pods(NS, "web").len() == 1, seconds(15)).await;
}

/// The API server executes the delete, and answers with an error.
#[tokio::test(start_paused = true)]
async fn one_failed_delete_is_not_reported() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    server.fault(Requests::deletes("pods").first(2), Fault::ExecuteThenError(504));
    for replicas in [2, 1] {
        server.scale(NS, "web", replicas);
        ready(&server, "web", usize::try_from(replicas).unwrap()).await;
        sleep(5).await;
    }
    assert_eq!(server.events(NS, "FailedDelete").len(), 0);
    assert_eq!(server.events(NS, "ScaledDown").len(), 2);
}

/// The first delete does not arrive. The second one takes effect without a response, and the watch shows it later.
#[tokio::test(start_paused = true)]
async fn a_scale_down_without_a_response_is_reported() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    server.watches().of("a").on("pods").delay(Duration::from_millis(300));
    server.fault(Requests::deletes("pods").first(1), Fault::CutBefore);
    server.fault(Requests::deletes("pods"), Fault::ExecuteThenCut);
    server.scale(NS, "web", 2);
    ready(&server, "web", 2).await;
    sleep(5).await;
    assert_eq!(server.events(NS, "ScaledDown").len(), 1);
}
