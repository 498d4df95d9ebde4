//! Lists: pages, stale reads from the watch cache, and resourceVersions that do not exist yet.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::json;

use super::{pods, podsets, refusal};
use crate::apiserver::ApiServer;

fn three_pods() -> ApiServer {
    let server = ApiServer::new(1);
    server.create_pod("default", "a", json!({ "app": "web", "tier": "front" }));
    server.create_pod("default", "b", json!({ "app": "web" }));
    server.create_pod("other", "c", json!({ "app": "db" }));
    server
}

fn names<K: ResourceExt + Clone>(list: &kube::api::ObjectList<K>) -> Vec<String> {
    list.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_are_of_one_moment() {
    let server = three_pods();
    let api: Api<Pod> = Api::all(server.client("test"));
    let page = ListParams::default().limit(2);
    let first = api.list(&page).await.expect("listed");
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    let token = first.metadata.continue_.clone().expect("a continue token");

    server.create_pod("other", "d", json!({}));
    server.kill_pod("other", "c");
    let next = api.list(&page.clone().continue_token(&token)).await.expect("listed");
    assert_eq!(names(&next), ["c"], "as it was when the first page was read");
    assert_eq!(next.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(next.metadata.continue_, None);

    server.compact();
    let status = refusal(api.list(&page.clone().continue_token(&token)).await);
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let status = refusal(api.list(&page.continue_token("zz")).await);
    assert_eq!(status.code, 400);
}

#[tokio::test(start_paused = true)]
async fn a_read_at_version_zero_may_be_old_and_others_never() {
    let server = ApiServer::new(1);
    server.settings(|s| s.cache_age = Duration::from_secs(10));
    server.create_podset("default", "web", 1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    server.scale("default", "web", 5);
    server.create_podset("default", "new", 1);
    let api = podsets(&server);
    let replicas = |set: &DynamicObject| set.data["spec"]["replicas"].as_i64();
    let any = api.list(&ListParams::default().match_any()).await.expect("listed");
    assert_eq!((any.items.len(), replicas(&any.items[0])), (1, Some(1)));
    let consistent = api.list(&ListParams::default()).await.expect("listed");
    assert_eq!(consistent.items.len(), 2);
    let old = api.get_with("web", &kube::api::GetParams::any()).await.expect("read");
    assert_eq!(replicas(&old), Some(1));
    let status = refusal(api.get_with("new", &kube::api::GetParams::any()).await);
    assert_eq!(status.code, 404);
    assert_eq!(replicas(&api.get("web").await.expect("read")), Some(5));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let any = api.list(&ListParams::default().match_any()).await.expect("listed");
    assert_eq!(any.items.len(), 2, "the cache has caught up");
}

#[tokio::test(start_paused = true)]
async fn a_read_of_the_future_is_refused() {
    let server = three_pods();
    let future = ListParams::default().at("999").matching(kube::api::VersionMatch::NotOlderThan);
    let status = refusal(pods(&server).list(&future).await);
    assert_eq!((status.code, status.reason.as_str()), (504, "Timeout"));
    assert!(status.message.starts_with("Timeout: Too large resource version: 999, current: "));
}

#[tokio::test(start_paused = true)]
async fn a_set_based_selector_is_refused() {
    let list = ListParams::default().labels("app in (web)");
    assert_eq!(refusal(pods(&three_pods()).list(&list).await).code, 400, "the simulation does not know it");
}
