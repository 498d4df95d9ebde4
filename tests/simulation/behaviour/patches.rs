//! Merge patches, generations and the status subresource.

use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{pods, podsets, refusal};
use crate::apiserver::{ApiServer, PODSETS, object};

async fn merge(server: &ApiServer, patch: Value) -> kube::Result<DynamicObject> {
    podsets(server).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn merge_status(server: &ApiServer, patch: Value) -> kube::Result<DynamicObject> {
    podsets(server).patch_status("web", &PatchParams::default(), &Patch::Merge(patch)).await
}

#[tokio::test(start_paused = true)]
async fn only_the_spec_moves_the_generation() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    let generation = |set: DynamicObject| set.metadata.generation;
    let labelled = merge(&server, json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(generation(labelled.expect("patched")), Some(1));
    let reported = merge_status(&server, json!({ "status": { "availableReplicas": 2 } })).await;
    assert_eq!(generation(reported.expect("patched")), Some(1));
    let scaled = merge(&server, json!({ "spec": { "replicas": 3 } })).await;
    assert_eq!(generation(scaled.expect("patched")), Some(2));
    let forged = merge(&server, json!({ "metadata": { "generation": 9 } })).await;
    assert_eq!(generation(forged.expect("patched")), Some(2));
    server.scale("default", "web", 4);
    assert_eq!(object::generation(&server.podset("default", "web")), 3);
}

#[tokio::test(start_paused = true)]
async fn spec_and_status_each_have_their_own_path() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    let both = json!({ "spec": { "replicas": 5 }, "status": { "availableReplicas": 1 } });
    let set = merge(&server, both.clone()).await.expect("patched");
    assert_eq!((&set.data["spec"]["replicas"], &set.data["status"]), (&json!(5), &json!(null)));
    server.scale("default", "web", 2);
    let set = merge_status(&server, both).await.expect("patched");
    assert_eq!((&set.data["spec"]["replicas"], &set.data["status"]["availableReplicas"]), (&json!(2), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_makes_no_version() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    let first = merge(&server, json!({ "metadata": { "labels": { "a": "b" } } })).await.expect("patched");
    let again = merge(&server, json!({ "metadata": { "labels": { "a": "b", "c": null } } })).await;
    assert_eq!(again.expect("patched").resource_version(), first.resource_version());
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_can_insist_on_version_and_uid() {
    let server = ApiServer::new(1);
    server.create_pod("default", "a", json!({}));
    let label = async |metadata: Value| {
        let mut metadata = metadata;
        metadata["labels"] = json!({ "x": "y" });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        pods(&server).patch("a", &PatchParams::default(), &patch).await
    };
    let status = refusal(label(json!({ "resourceVersion": "1" })).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let status = refusal(label(json!({ "resourceVersion": "1", "uid": "other" })).await);
    assert_eq!(status.code, 409, "the version is looked at first");
    let status = refusal(label(json!({ "uid": "other" })).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "a UID is immutable");
    assert!(status.message.ends_with("metadata.uid: Invalid value: \"other\": field is immutable"));
    let stored = server.pod("default", "a");
    let present = json!({ "uid": object::uid(&stored), "resourceVersion": object::meta(&stored, "resourceVersion") });
    assert!(label(present).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_custom_resource_compares_no_uid() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    // So does kube-apiserver 1.36.3: only the resourceVersion keeps a late status off a set that
    // was deleted and made anew.
    let foreign = json!({ "metadata": { "uid": "other" }, "status": { "availableReplicas": 1 } });
    assert!(merge_status(&server, foreign).await.is_ok());
    let late = json!({ "metadata": { "resourceVersion": "1" }, "status": { "availableReplicas": 1 } });
    assert_eq!(refusal(merge_status(&server, late).await).code, 409);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_patch_is_refused_and_unknown_kinds_of_patch_are() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    let status = refusal(merge(&server, json!({ "spec": { "replicas": 0 } })).await);
    assert_eq!(status.code, 422);
    assert!(status.message.contains("should be greater than or equal to 1"), "{}", status.message);
    let strategic = Patch::Strategic(json!({ "spec": { "replicas": 3 } }));
    let status = refusal(podsets(&server).patch("web", &PatchParams::default(), &strategic).await);
    assert_eq!(status.code, 415);
    let nobody = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    let status = refusal(podsets(&server).patch("nobody", &PatchParams::default(), &nobody).await);
    assert_eq!(status.code, 404);
    assert_eq!(server.get(&PODSETS, "default", "web")["spec"]["replicas"], 2);
}
