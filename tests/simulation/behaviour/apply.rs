//! Server-side apply of a status.

use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{podsets, refusal};
use crate::apiserver::ApiServer;

/// Applies a status to PodSet `web` as `manager`.
async fn apply(
    server: &ApiServer,
    manager: &PatchParams,
    metadata: Value,
    status: Value,
) -> kube::Result<DynamicObject> {
    let mut metadata = metadata;
    metadata["name"] = "web".into();
    let body = json!({
        "apiVersion": "app.example.com/v1alpha1",
        "kind": "PodSet",
        "metadata": metadata,
        "status": status,
    });
    podsets(server).patch_status("web", manager, &Patch::Apply(body)).await
}

fn with_set() -> ApiServer {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    server
}

fn operator() -> PatchParams {
    PatchParams::apply("podset-operator").force()
}

#[tokio::test(start_paused = true)]
async fn what_a_manager_leaves_out_is_taken_away() {
    let server = with_set();
    let ready = json!({ "type": "Ready", "status": "False", "reason": "PodsNotReady" });
    let failure = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate" });
    let first = json!({
        "availableReplicas": 1, "podNames": ["a"], "readyReplicas": 0, "terminatingReplicas": 0,
        "updatedReplicas": 0, "updatedReadyReplicas": 0, "updatedAvailableReplicas": 0, "conditions": [ready, failure],
    });
    let set = apply(&server, &operator(), json!({}), first.clone()).await.expect("applied");
    assert_eq!(set.data["status"], first);
    assert_eq!(set.metadata.generation, Some(1));

    let mut ready = json!({ "type": "Ready", "status": "True", "reason": "AllPodsReady" });
    let second = json!({ "availableReplicas": 2, "podNames": ["a", "b"], "readyReplicas": 1, "terminatingReplicas": 0,
        "updatedReplicas": 0, "updatedReadyReplicas": 0, "updatedAvailableReplicas": 0, "conditions": [ready] });
    let set = apply(&server, &operator(), json!({}), second.clone()).await.expect("applied");
    assert_eq!(set.data["status"], second, "the list is atomic, the condition gone");

    ready.as_object_mut().map(|map| map.remove("reason"));
    let third = json!({ "availableReplicas": 2, "conditions": [ready] });
    let set = apply(&server, &operator(), json!({}), third.clone()).await.expect("applied");
    let defaults = json!({ "availableReplicas": 2, "podNames": [], "readyReplicas": 0, "terminatingReplicas": 0,
        "updatedReplicas": 0, "updatedReadyReplicas": 0, "updatedAvailableReplicas": 0, "conditions": [ready] });
    assert_eq!(set.data["status"], defaults, "what has a default in the schema gets it");
    let again = apply(&server, &operator(), json!({}), third).await.expect("applied");
    assert_eq!(again.resource_version(), set.resource_version(), "nothing changed");
    let none = apply(&server, &operator(), json!({}), json!({})).await.expect("applied");
    let defaults = json!({ "availableReplicas": 0, "podNames": [], "readyReplicas": 0, "terminatingReplicas": 0, "conditions": [] });
    assert!(none.data["status"].is_null() || none.data["status"] == defaults, "{}", none.data["status"]);
}

#[tokio::test(start_paused = true)]
async fn what_another_manager_owns_is_kept_and_defended() {
    let server = with_set();
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    apply(&server, &operator(), json!({}), ready).await.expect("applied");
    let other = PatchParams::apply("other");
    let theirs = json!({ "conditions": [{ "type": "Seen", "status": "True" }] });
    apply(&server, &other, json!({}), theirs).await.expect("applied");
    let mine = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
    let set = apply(&server, &operator(), json!({}), mine).await.expect("applied");
    let types: Vec<&str> = set.data["status"]["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .filter_map(|c| c["type"].as_str())
        .collect();
    assert_eq!(types, ["Ready", "Seen"]);

    let grab = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let status = refusal(apply(&server, &other, json!({}), grab.clone()).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let causes = status.details.expect("details").causes;
    assert_eq!(causes[0].reason, "FieldManagerConflict");
    assert_eq!(causes[0].field, ".status.conditions[type=\"Ready\"].status");
    let forced = apply(&server, &other.force(), json!({}), grab).await.expect("forced");
    assert_eq!(forced.data["status"]["conditions"][0]["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn the_version_is_a_precondition_and_the_uid_is_none() {
    let server = with_set();
    let status = json!({ "availableReplicas": 1 });
    let late = apply(&server, &operator(), json!({ "resourceVersion": "1" }), status.clone()).await;
    let late = refusal(late);
    assert_eq!((late.code, late.reason.as_str()), (409, "Conflict"));
    // As kube-apiserver 1.36.3 answers: the UID in the body is not looked at.
    let foreign = apply(&server, &operator(), json!({ "uid": "other" }), status.clone()).await;
    let foreign = foreign.expect("accepted");
    assert_ne!(foreign.uid().as_deref(), Some("other"));
    let present = json!({ "resourceVersion": foreign.resource_version() });
    assert!(apply(&server, &operator(), present, status).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_apply_needs_a_manager_and_a_status_needs_its_object() {
    let server = with_set();
    let nameless = http::Request::patch("/apis/app.example.com/v1alpha1/namespaces/default/podsets/web/status")
        .header("content-type", "application/apply-patch+yaml")
        .body(br#"{"status":{}}"#.to_vec())
        .expect("a request");
    let status = refusal(server.client("test").request::<Value>(nameless).await);
    let text = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required \
                for apply patch";
    assert_eq!((status.code, status.message.as_str()), (422, text));
    server.delete_podset("default", "web");
    let gone = apply(&server, &operator(), json!({}), json!({ "availableReplicas": 1 })).await;
    assert_eq!(refusal(gone).code, 404);
}

#[tokio::test(start_paused = true)]
async fn an_apply_to_the_object_creates_it() {
    let server = ApiServer::new(1);
    let body = |spec: Value, metadata: Value| {
        Patch::Apply(json!({
            "apiVersion": "app.example.com/v1alpha1",
            "kind": "PodSet",
            "metadata": metadata,
            "spec": spec,
        }))
    };
    let manager = PatchParams::apply("kubectl");
    let api = podsets(&server);
    let insisting = body(json!({}), json!({ "name": "new", "uid": "gone" }));
    let status = refusal(api.patch("new", &manager, &insisting).await);
    assert!(status.message.contains("uid mismatch: the provided object specified uid gone"));
    let template = json!({ "replicas": 3, "template": { "metadata": { "labels": { "a": "b" } } } });
    let made = api.patch("new", &manager, &body(template, json!({ "name": "new" }))).await;
    assert_eq!(made.expect("created").metadata.generation, Some(1));
    let smaller = body(json!({ "replicas": 3 }), json!({ "name": "new" }));
    let set = api.patch("new", &manager, &smaller).await.expect("applied");
    assert!(set.data["spec"]["template"].is_null(), "left out, taken away");
    assert_eq!(set.metadata.generation, Some(2));
}
