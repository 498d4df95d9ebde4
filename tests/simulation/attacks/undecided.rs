//! The delete of one pod never gets an answer that decides it, for example because a webhook hangs for this pod alone. The other pods must
//! not wait for it forever.

use podset_operator::podset::restart_backoff::KEPT;
use serde_json::json;

use super::*;
use crate::apiserver::{Fault, FaultRule, PODS, PodScript, Requests};

/// Every delete of this pod runs into its timeout.
fn hang(server: &ApiServer, pod: &str) -> FaultRule {
    server.fault(Requests::deletes("pods").named(pod), Fault::Delay(seconds(3600)))
}

/// A pod that is deleted before the others, but whose delete hangs.
fn first_victim(server: &ApiServer) -> String {
    let pod = server.live_pods(NS, "web")[0].clone();
    let cost = json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": "-1" } } });
    server.patch(&PODS, NS, &pod, cost);
    hang(server, &pod);
    pod
}

#[tokio::test(start_paused = true)]
async fn another_pod_is_deleted_in_the_end() {
    let (server, _operator) = with_set(4, Rules::default()).await;
    let pod = first_victim(&server);
    server.scale(NS, "web", 2);
    sleep(60).await;
    assert_eq!(server.live_pods(NS, "web").len(), 3, "the delete may still take effect");
    server.wait_until(|s| s.live_pods(NS, "web").len() == 2, seconds(240)).await;
    assert!(server.live_pods(NS, "web").contains(&pod));
    sleep(300).await;
    assert_eq!(server.live_pods(NS, "web").len(), 2);
    assert!(condition(&server, "Ready").starts_with("True/AllPodsReady"));
    server.check();
}

#[tokio::test(start_paused = true)]
async fn a_rollout_replaces_the_other_pods() {
    let spec = json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 1 } } });
    let (server, _operator) = super::rollouts::running(4, spec).await;
    first_victim(&server);
    super::rollouts::change_template(&server, "b");
    server.wait_until(|s| super::rollouts::versions(s) == "a b b b", seconds(900)).await;
    server.check();
}

#[tokio::test(start_paused = true)]
async fn other_finished_pods_are_deleted() {
    let (server, _operator) = with_set(2, Rules::default()).await;
    let hanging = server.live_pods(NS, "web")[0].clone();
    hang(&server, &hanging);
    server.fail_pod(NS, &hanging);
    for _ in 0..6 {
        ready(&server, "web", 2).await;
        // The pods run long enough to reset the backoff.
        sleep(700).await;
        server.fail_pod(NS, &server.live_pods(NS, "web")[0]);
    }
    ready(&server, "web", 2).await;
    sleep(120).await;
    let finished = server.pods(NS, "web").len() - 2;
    assert_eq!(finished, KEPT + 1, "the one that cannot be deleted, and those that are kept");
    server.check();
}

/// Under TerminationComplete, the delete of a pod without a node requires the resourceVersion in the cache. The watch has stopped.
#[tokio::test(start_paused = true)]
async fn a_pod_with_an_outdated_version_is_deleted_after_a_read() {
    let server = ApiServer::new(1);
    server.direct_pods(|_| PodScript::unschedulable());
    let _operator = Operator::leader(&server, "a", Rules::default());
    server.create_podset(NS, "web", 3);
    server.wait_for_termination(NS, "web");
    server.wait_until(|s| s.live_pods(NS, "web").len() == 3, seconds(10)).await;
    sleep(10).await;
    server.watches().of("a").on("pods").hold();
    for pod in server.live_pods(NS, "web") {
        server.patch(&PODS, NS, &pod, json!({ "metadata": { "annotations": { "a": "b" } } }));
    }
    server.scale(NS, "web", 1);
    server.wait_until(|s| s.live_pods(NS, "web").len() == 1, seconds(15)).await;
    server.check();
}
