//! Lost pods are replaced: what the events say, and when a pod must not be replaced.

use super::*;

/// Deletes the set and one more of its pods. The stored status says that one pod is missing, and the watch of the sets does not show the
/// deletion yet. Returns the number of creates so far.
fn delete_unseen(server: &ApiServer) -> usize {
    assert_eq!(server.podset(NS, "web")["status"]["availableReplicas"], 4);
    server.watches().on("podsets").delay(seconds(10));
    server.settings(|settings| settings.collect_after = seconds(60));
    let pods = server.live_pods(NS, "web");
    server.delete_podset(NS, "web");
    server.kill_pod(NS, &pods[0]);
    server.count(&Requests::creates("pods"))
}

/// The watch of the pods shows the deletions before the watch of the sets shows the reason. The set is deleted after the lost pod was
/// replaced, or while the create is in flight.
#[tokio::test(start_paused = true)]
async fn a_set_deleted_unseen_after_a_pod_loss_gets_no_new_pods() {
    for fault in [Fault::Delay(Duration::ZERO), Fault::HoldAnswer] {
        let case = format!("{fault:?}");
        let (server, _operator) = with_set(5, Rules::default()).await;
        sleep(seconds(60)).await;
        server.set_pod_script(PodScript::never_ready());
        let rejected = server.fault(Requests::creates("pods").first(1), Fault::Refuse(Status::of_code(403)));
        let create = server.fault(Requests::creates("pods"), fault);
        server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
        create.wait_for_hits(1).await;
        server.wait_until(|s| s.live_pods(NS, "web").len() == 5, seconds(3)).await;
        rejected.remove();
        let creates = delete_unseen(&server);
        // The response arrives before the new pod is garbage-collected.
        sleep(Duration::from_millis(20)).await;
        create.release();
        sleep(seconds(5)).await;
        assert_eq!(server.count(&Requests::creates("pods")), creates, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_lost_without_a_leader_are_reported_as_replaced() {
    let (server, operator) = with_set(5, Rules::default()).await;
    operator.end().await;
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    let _operator = Operator::leader(&server, "b", Rules::default());
    sleep(seconds(2)).await;
    settled(&server, "web", 5).await;
    let events = ["ScaledUp", "PodsReplaced"].map(|reason| server.events(NS, reason).len());
    assert_eq!(events, [1, 1]);
}
