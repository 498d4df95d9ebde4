//! Create, get, update: names, versions, refusals.

use http_body_util::BodyExt;
use kube::{
    ResourceExt,
    api::{Api, DynamicObject, PostParams},
};
use serde_json::json;

use super::{pod, pods, podset, podsets, refusal};
use crate::apiserver::ApiServer;

#[tokio::test(start_paused = true)]
async fn a_create_sets_the_system_fields() {
    let server = ApiServer::new(1);
    let created = pods(&server).create(&PostParams::default(), &pod(json!({ "name": "a" }))).await;
    let created = created.expect("created");
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(created.uid().expect("a uid").len(), 36);
    let time = created.metadata.creation_timestamp.expect("a time").0;
    assert_eq!(time.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(created.status.expect("a status").phase.as_deref(), Some("Pending"));
    let stored = pods(&server).get("a").await.expect("stored");
    assert_eq!(stored.metadata.resource_version, created.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn a_create_may_be_answered_with_the_metadata_alone() {
    let server = ApiServer::new(1);
    let client = server.client("a");
    let answer = async || {
        let kind = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let request = http::Request::post("/api/v1/namespaces/default/pods").header("accept", kind);
        let body = serde_json::to_vec(&pod(json!({ "name": "a" }))).expect("a body");
        let (head, body) =
            client.send(request.body(body.into()).expect("a request")).await.expect("an answer").into_parts();
        let kind = head.headers["content-type"].to_str().expect("a kind").to_owned();
        (head.status.as_u16(), kind, body.collect().await.expect("a body").to_bytes())
    };
    let (code, kind, body) = answer().await;
    assert_eq!((code, kind.as_str()), (201, "application/json"));
    assert!(body.windows(21).any(|window| window == b"PartialObjectMetadata"));
    assert!(!body.windows(7).any(|window| window == b"Pending"), "no status");
    let (code, kind, _) = answer().await;
    assert_eq!((code, kind.as_str()), (409, "application/json"));
}

#[tokio::test(start_paused = true)]
async fn a_name_wins_over_generate_name() {
    let server = ApiServer::new(1);
    let pods = pods(&server);
    let named = pod(json!({ "name": "web-1", "generateName": "web-" }));
    let created = pods.create(&PostParams::default(), &named).await.expect("created");
    assert_eq!(created.name_any(), "web-1");

    let status = refusal(pods.create(&PostParams::default(), &named).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
    let text = "pods \"web-1\" already exists, the server was not able to generate a unique name \
                for the object";
    assert_eq!(status.message, text);
    let details = status.details.expect("details");
    assert_eq!((details.name.as_str(), details.kind.as_str()), ("web-1", "pods"));
    assert_eq!(details.retry_after_seconds, 1);
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_has_five_characters_of_the_known_alphabet() {
    let server = ApiServer::new(7);
    let pods = pods(&server);
    let generated = pod(json!({ "generateName": "web-pod" }));
    let first = pods.create(&PostParams::default(), &generated).await.expect("created").name_any();
    let second = pods.create(&PostParams::default(), &generated).await.expect("created").name_any();
    assert_ne!(first, second);
    let suffix = first.strip_prefix("web-pod").expect("the base");
    assert_eq!(suffix.len(), 5);
    assert!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{suffix}");

    let long = pod(json!({ "generateName": "x".repeat(80) }));
    let cut = pods.create(&PostParams::default(), &long).await.expect("created").name_any();
    assert_eq!(cut.len(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_refused_also_while_its_object_terminates() {
    let server = ApiServer::new(1);
    let pods = pods(&server);
    let named = pod(json!({ "name": "a" }));
    pods.create(&PostParams::default(), &named).await.expect("created");
    let status = refusal(pods.create(&PostParams::default(), &named).await);
    assert_eq!(status.message, "pods \"a\" already exists");

    let bound = |s: &ApiServer| s.pod("default", "a")["spec"]["nodeName"].is_string();
    server.wait_until(bound, std::time::Duration::from_secs(1)).await;
    server.delete_pod("default", "a");
    let status = refusal(pods.create(&PostParams::default(), &named).await);
    assert_eq!(status.message, "object is being deleted: pods \"a\" already exists");
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_are_refused_with_the_field() {
    let server = ApiServer::new(1);
    let unnamed = pods(&server).create(&PostParams::default(), &pod(json!({}))).await;
    let status = refusal(unnamed);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let text = "Pod \"\" is invalid: metadata.name: Required value: name or generateName is required";
    assert_eq!(status.message, text);
    let misnamed = pods(&server).create(&PostParams::default(), &pod(json!({ "name": "A_" }))).await;
    assert!(refusal(misnamed).message.contains("a lowercase RFC 1123 subdomain must consist of"));

    let big = podset("big", json!({ "replicas": 11 }));
    let status = refusal(podsets(&server).create(&PostParams::default(), &big).await);
    let text = "PodSet.app.example.com \"big\" is invalid: [spec.replicas: Invalid value: 11: \
                spec.replicas in body should be less than or equal to 10, spec.replicas: Invalid value: 11: \
                a PodSet keeps 1 to 10 pods: to keep none, delete the PodSet; to keep more, create another PodSet]";
    assert_eq!((status.code, status.message.as_str()), (422, text));
    let causes = status.details.expect("details").causes;
    assert_eq!(causes[0].field, "spec.replicas");
    server.settings(|s| s.max_replicas = 5000);
    assert!(podsets(&server).create(&PostParams::default(), &big).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_not_found() {
    let server = ApiServer::new(1);
    let status = refusal(pods(&server).get("a").await);
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
    assert_eq!(status.message, "pods \"a\" not found");
    let status = refusal(podsets(&server).get("a").await);
    assert_eq!(status.message, "podsets.app.example.com \"a\" not found");

    let elsewhere: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(server.client("test"), "nowhere");
    let status = refusal(elsewhere.create(&PostParams::default(), &pod(json!({ "name": "a" }))).await);
    assert_eq!(status.message, "namespaces \"nowhere\" not found");

    let unknown = http::Request::get("/api/v1/namespaces/default/services").body(vec![]);
    let unknown = unknown.expect("a request");
    let status = refusal(server.client("test").request::<serde_json::Value>(unknown).await);
    assert_eq!(status.message, "the server could not find the requested resource");

    // A CRD that is not installed is no path at all: plain text, no Status.
    server.settings(|s| s.unserved = ["podsets.app.example.com"].into());
    let status = refusal(podsets(&server).get("a").await);
    assert_eq!(status.code, 404);
    assert!(status.message.contains("404 page not found"), "{}", status.message);
}

#[tokio::test(start_paused = true)]
async fn the_podset_crd_defaults_one_replica_and_keeps_status_out() {
    let server = ApiServer::new(1);
    let mut new = podset("web", json!({}));
    new.data["status"] = json!({ "selector": "x" });
    let created = podsets(&server).create(&PostParams::default(), &new).await.expect("created");
    assert_eq!(created.data["spec"]["replicas"], 1);
    assert!(created.data["status"].is_null());
    assert_eq!(created.metadata.generation, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_put_needs_the_present_version_and_the_right_uid() {
    let server = ApiServer::new(1);
    server.create_podset("default", "web", 2);
    let api = podsets(&server);
    let stored = api.get("web").await.expect("stored");
    let put = async |change: &dyn Fn(&mut DynamicObject)| {
        let mut new = stored.clone();
        change(&mut new);
        api.replace("web", &PostParams::default(), &new).await
    };
    let status = refusal(put(&|new| new.metadata.resource_version = None).await);
    assert!(status.message.ends_with("Invalid value: 0: must be specified for an update"));
    let status = refusal(put(&|new| new.metadata.resource_version = Some("1".into())).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let text = "Operation cannot be fulfilled on podsets.app.example.com \"web\": the object has \
                been modified; please apply your changes to the latest version and try again";
    assert_eq!(status.message, text);
    let status = refusal(put(&|new| new.metadata.uid = Some("other".into())).await);
    assert!(status.message.contains("Precondition failed: UID in precondition: other"));
    assert_eq!(status.code, 409);

    let same = put(&|_| {}).await.expect("an equal object is accepted");
    assert_eq!(same.resource_version(), stored.resource_version(), "and changes nothing");
    let changed = put(&|new| new.data["spec"]["replicas"] = 3.into()).await.expect("accepted");
    assert_eq!(changed.metadata.generation, Some(2));
}
