//! Fairness: a busy namespace delays no other.

use super::*;

const BUSY: &str = "busy";

/// Scales a set in another namespace twenty times, each within two seconds.
async fn another_namespace_scales(server: &ApiServer) {
    for turn in 0..20 {
        let replicas = if turn % 2 == 0 { 5 } else { 2 };
        server.scale(NS, "web", replicas);
        let is_scaled = |s: &ApiServer| s.live_pods(NS, "web").len() == usize::try_from(replicas).unwrap();
        server.wait_until(is_scaled, seconds(2)).await;
        sleep(Duration::from_millis(4_700)).await;
    }
}

/// An API server with a set in one namespace, and others in a busy namespace where each create of a pod takes 8 s.
fn busy_server(sets: usize, replicas: i64) -> ApiServer {
    let server = ApiServer::new(1);
    server.fault(Requests::creates("pods").in_namespace(BUSY), Fault::Delay(seconds(8)));
    for number in 0..sets {
        server.create_podset(BUSY, &format!("web-{number}"), replicas);
    }
    server.create_podset(NS, "web", 1);
    server
}

#[tokio::test(start_paused = true)]
async fn sets_whose_creates_are_slow_and_rejected_delay_no_other_namespace() {
    let server = busy_server(2_000, 1);
    server.set_quota(BUSY, 0);
    let _operator = Operator::leader(&server, "a", Rules::default());
    sleep(seconds(10)).await;
    another_namespace_scales(&server).await;
    let creates = server.count(&Requests::creates("pods").in_namespace(BUSY));
    assert!(creates > 300, "most of the workers were busy: {creates}");
    assert!(server.all(&PODS, BUSY).is_empty());
}

/// The workers of one namespace need more concurrent writes than there are.
#[tokio::test(start_paused = true)]
async fn large_sets_whose_creates_are_slow_delay_no_other_namespace() {
    let server = busy_server(100, 10);
    let _operator = Operator::leader(&server, "a", Rules::default());
    sleep(seconds(30)).await;
    another_namespace_scales(&server).await;
    assert!(server.all(&PODS, BUSY).len() > 300);
}

/// In the busy namespace itself, a new set is reconciled before those that failed.
#[tokio::test(start_paused = true)]
async fn a_new_set_is_reconciled_before_failed_ones() {
    let server = busy_server(1_000, 1);
    server.set_quota(BUSY, 0);
    let _operator = Operator::leader(&server, "a", Rules::default());
    // Each set was tried once, and many wait for a retry.
    sleep(seconds(330)).await;
    server.create_podset(BUSY, "new", 1);
    let new = Requests::creates("pods").in_namespace(BUSY).when(|r| r.body["metadata"]["generateName"] == "new-pod");
    server.wait_until(|s| s.count(&new) == 1, seconds(9)).await;
}

/// A status that waits for pods of other sets gives up its worker. Slow creates of other sets then take all workers of the namespace.
#[tokio::test(start_paused = true)]
async fn a_status_does_not_wait_for_slow_creates_of_the_same_namespace() {
    let (server, _operator) = with_set(5, Rules::default()).await;
    let slow = Requests::creates("pods").when(|request| request.body["metadata"]["generateName"] != "web-pod");
    server.fault(slow, Fault::Delay(seconds(8)));
    server.create_podset(NS, "slow", 1);
    sleep(seconds(1)).await;
    server.scale(NS, "web", 2);
    for number in 0..200 {
        server.create_podset(NS, &format!("slow-{number}"), 1);
    }
    server.wait_until(|s| s.podset(NS, "web")["status"]["readyReplicas"] == 2, seconds(5)).await;
}

fn friends() -> impl Iterator<Item = String> {
    (0..100).map(|number| format!("friend-{number}"))
}

/// The pod comes and goes every half second.
#[tokio::test(start_paused = true)]
async fn resources_of_a_flapping_pod_are_updated_at_once_and_then_rarely() {
    let (server, _operator) = server_and_leader();
    for name in friends() {
        server.create_mycustomresource(NS, &name, "joe");
    }
    sleep(seconds(10)).await;
    let patches = || server.count(&Requests::status_patches("mycustomresources"));
    let is_reported = |s: &ApiServer, healthy: bool| {
        let has_status = |name: String| s.get(&MYCUSTOMRESOURCES, NS, &name)["status"]["Healthy"] == healthy;
        friends().all(has_status)
    };
    assert_eq!(patches(), 100);
    server.create_pod("elsewhere", "joe", json!({}));
    server.wait_until(|s| is_reported(s, true), seconds(1)).await;
    assert_eq!(patches(), 200, "at once");
    for _ in 0..60 {
        server.kill_pod("elsewhere", "joe");
        sleep(Duration::from_millis(500)).await;
        server.create_pod("elsewhere", "joe", json!({}));
        sleep(Duration::from_millis(500)).await;
    }
    server.kill_pod("elsewhere", "joe");
    server.wait_until(|s| is_reported(s, false), seconds(6)).await;
    let written = patches() - 200;
    assert!(written <= 100 * 13, "at most once in five seconds each: {written}");
}
