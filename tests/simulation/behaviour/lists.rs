//! Lists: what the recording does not cover.

use kube::{ResourceExt, api::ObjectList};

use super::*;

fn names(list: &ObjectList<Pod>) -> Vec<String> {
    list.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn all_pages_of_a_list_show_one_version() {
    let server = ApiServer::new(1);
    for (namespace, name) in [("default", "a"), ("default", "b"), ("other", "c")] {
        server.create_pod(namespace, name, json!({}));
    }
    let api: Api<Pod> = Api::all(server.client("test"));
    let page = ListParams::default().limit(2);
    let first = api.list(&page).await.expect("listed");
    assert_eq!(names(&first), ["a", "b"]);
    let token = first.metadata.continue_.clone().expect("a continue token");
    server.create_pod("other", "d", json!({}));
    server.kill_pod("other", "c");
    let next = api.list(&page.continue_token(&token)).await.expect("listed");
    assert_eq!(names(&next), ["c"], "as it was when the first page was read");
    assert_eq!(next.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(next.metadata.continue_, None);
}

#[tokio::test(start_paused = true)]
async fn unsupported_selectors_are_rejected() {
    let server = ApiServer::new(1);
    for selector in ["app in (web)", "app", "!app", "app!=web", "app==web", "app=web,tier=x"] {
        assert_eq!(failure(pods(&server).list(&ListParams::default().labels(selector)).await).code, 400, "{selector}");
    }
}
