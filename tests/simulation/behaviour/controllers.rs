//! Quotas and the garbage collector.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_quota_counts_pods_that_have_not_finished() {
    let server = ApiServer::new(1);
    server.set_quota("default", 1);
    let api = pods(&server);
    let create = async |name: &str| api.create(&PostParams::default(), &pod(json!({ "name": name }))).await;
    create("a").await.expect("created");
    let status = failure(create("b").await);
    let text = "pods \"b\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=1, limited: \
                pods=1";
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (403, "Forbidden", text));
    assert_eq!(failure(create("a").await).code, 403, "the quota is checked before the name");
    server.fail_pod("default", "a");
    create("b").await.expect("a finished pod does not count");
    server.lift_quota("default");
    create("c").await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_after_its_owner_was_deleted_is_deleted_too() {
    let server = ApiServer::new(1);
    let owner = server.create_podset("default", "web", 1);
    server.delete_podset("default", "web");
    server.create_pod("default", "stranger", json!({}));
    owned_pod(&server, &owner, "late");
    let gone = |s: &ApiServer| s.pod("default", "late").is_null();
    server.wait_until(gone, seconds(5)).await;
    assert!(!server.pod("default", "stranger").is_null());
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_removes_the_owner_last() {
    let server = ApiServer::new(1);
    let owner = server.create_podset("default", "web", 1);
    owned_pod(&server, &owner, "a");
    let running = |s: &ApiServer| !s.ready_pods("default", "web").is_empty();
    server.wait_until(running, seconds(5)).await;
    server.delete_podset_in_foreground("default", "web");
    let going = |s: &ApiServer| object::is_terminating(&s.pod("default", "a"));
    server.wait_until(going, seconds(1)).await;
    assert!(object::is_terminating(&server.podset("default", "web")));
    let gone = |s: &ApiServer| s.podset("default", "web").is_null();
    server.wait_until(gone, seconds(5)).await;
    assert!(server.pod("default", "a").is_null());
}
