//! The requests, in the order in which both servers get them.

use kube::Client;
use serde_json::{Value, json};

use super::{JSON, Recorder};
use crate::apiserver::object::meta;

const NAMESPACE: &str = "conformance";
const PODS: &str = "/api/v1/namespaces/conformance/pods";
const SETS: &str = "/apis/app.example.com/v1alpha1/namespaces/conformance/podsets";
pub const MERGE: &str = "application/merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

pub fn pod(metadata: Value) -> Value {
    let containers = json!([{ "name": "main", "image": "example.com/main" }]);
    // No scheduler has this name, so nothing else writes to the pod.
    let spec = json!({ "containers": containers, "schedulerName": "nobody" });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
}

pub fn set(metadata: Value, rest: Value) -> Value {
    let mut set = json!({ "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": metadata });
    for (field, value) in rest.as_object().into_iter().flatten() {
        set[field] = value.clone();
    }
    set
}

/// Sends creates and reads. Returns the first PodSet as it was created.
async fn custom_resources(r: &mut Recorder) -> Value {
    let web = json!({ "name": "web" });
    let spec = json!({ "replicas": 3 });
    let with_status = json!({ "spec": spec, "status": { "availableReplicas": 9 } });
    let made = r.send("POST", SETS, JSON, set(web.clone(), with_status)).await;
    r.send("POST", SETS, JSON, set(web.clone(), json!({ "spec": spec }))).await;
    r.send("POST", SETS, JSON, set(json!({ "name": "empty" }), json!({ "spec": {} }))).await;
    r.send("GET", &format!("{SETS}/web"), JSON, Value::Null).await;
    r.send("GET", &format!("{SETS}/web?partial"), JSON, Value::Null).await;
    r.send("GET", &format!("{SETS}/nobody"), JSON, Value::Null).await;
    r.send("GET", SETS, JSON, Value::Null).await;
    r.send("GET", &format!("{SETS}?limit=1"), JSON, Value::Null).await;
    r.send("GET", &format!("{SETS}?limit=1&continue=zz"), JSON, Value::Null).await;
    made
}

async fn updates(r: &mut Recorder, made: &Value) {
    let both = json!({ "spec": { "replicas": 2 }, "status": { "availableReplicas": 1 } });
    let (path, status) = (format!("{SETS}/web"), format!("{SETS}/web/status"));
    r.send("PATCH", &path, MERGE, both.clone()).await;
    r.send("PATCH", &status, MERGE, both).await;
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "labels": { "a": "b" } } })).await;
    let old = json!({ "resourceVersion": meta(made, "resourceVersion") });
    r.send("PATCH", &path, MERGE, json!({ "metadata": old, "spec": { "replicas": 4 } })).await;
    r.send("PATCH", &status, MERGE, json!({ "metadata": old, "status": {} })).await;
    let foreign = json!({ "uid": "11111111-2222-3333-4444-555555555555" });
    r.send("PATCH", &status, MERGE, json!({ "metadata": foreign, "status": { "availableReplicas": 8 } })).await;
    // A patch that changes nothing, one of the generation, an unknown kind of patch, and one of a set that does not exist.
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "labels": { "a": "b", "c": null } } })).await;
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "generation": 9 } })).await;
    r.send("PATCH", &path, "application/strategic-merge-patch+json", json!({ "spec": { "replicas": 3 } })).await;
    r.send("PATCH", &format!("{SETS}/nobody"), MERGE, json!({ "spec": { "replicas": 3 } })).await;
}

async fn leases(r: &mut Recorder) {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/conformance/leases";
    let path = format!("{leases}/podset-operator");
    let lease = |holder: &str| {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15 });
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "podset-operator" }, "spec": spec })
    };
    let made = r.send("POST", leases, JSON, lease("a")).await;
    r.send("POST", leases, JSON, lease("b")).await;
    // Of two patches with the same resourceVersion, the second conflicts. One without is accepted.
    let seen = json!({ "resourceVersion": meta(&made, "resourceVersion") });
    for (holder, metadata) in [("b", seen.clone()), ("a", seen), ("c", json!({}))] {
        let patch = json!({ "metadata": metadata, "spec": { "holderIdentity": holder } });
        r.send("PATCH", &path, MERGE, patch).await;
    }
    r.send("GET", &format!("{leases}?fieldSelector=metadata.name%3Dpodset-operator"), JSON, Value::Null).await;
}

async fn unknown_paths(r: &mut Recorder) {
    r.send("GET", "/api/v1/namespaces/conformance/nothings", JSON, Value::Null).await;
    r.send("GET", "/apis/nothing.example.com/v1/nothings", JSON, Value::Null).await;
}

async fn applied_statuses(r: &mut Recorder) {
    let path = format!("{SETS}/web/status?fieldManager=podset-operator&force=true");
    let condition = |kind: &str, status: &str, reason: &str| {
        let since = "2026-01-01T00:00:00Z";
        json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since })
    };
    let ready = condition("Ready", "False", "PodsNotReady");
    let failure = condition("ReplicaFailure", "True", "FailedCreate");
    let body = |metadata: Value, status: Value| {
        let mut metadata = metadata;
        metadata["name"] = "web".into();
        set(metadata, json!({ "status": status }))
    };
    let first = json!({ "availableReplicas": 1, "podNames": ["a"], "conditions": [ready, failure] });
    let stored = r.send("PATCH", &path, APPLY, body(json!({}), first)).await;
    let second = json!({ "availableReplicas": 2, "conditions": [ready] });
    r.send("PATCH", &path, APPLY, body(json!({}), second.clone())).await;
    r.send("PATCH", &path, APPLY, body(json!({ "resourceVersion": meta(&stored, "resourceVersion") }), second)).await;
    let foreign = json!({ "uid": "11111111-2222-3333-4444-555555555555" });
    let stored = r.send("PATCH", &path, APPLY, body(foreign, json!({ "availableReplicas": 3 }))).await;
    let present = json!({ "uid": meta(&stored, "uid"), "resourceVersion": meta(&stored, "resourceVersion") });
    r.send("PATCH", &path, APPLY, body(present, json!({ "availableReplicas": 2 }))).await;
    let nameless = format!("{SETS}/web/status?force=true");
    r.send("PATCH", &nameless, APPLY, body(json!({}), json!({}))).await;
    let nobody = format!("{SETS}/nobody/status?fieldManager=podset-operator&force=true");
    r.send("PATCH", &nobody, APPLY, set(json!({ "name": "nobody" }), json!({ "status": {} }))).await;
    // Fewer fields, the same again, and an empty status.
    let same = json!({ "availableReplicas": 2, "podNames": ["a"] });
    r.send("PATCH", &path, APPLY, body(json!({}), same.clone())).await;
    r.send("PATCH", &path, APPLY, body(json!({}), same)).await;
    r.send("PATCH", &path, APPLY, body(json!({}), json!({}))).await;
}

async fn pods(r: &mut Recorder) {
    let named = json!({ "name": "a-1", "generateName": "a-", "labels": { "x": "y" } });
    let made = r.send("POST", PODS, JSON, pod(named.clone())).await;
    r.send("POST", PODS, JSON, pod(named)).await;
    r.send("POST", PODS, JSON, pod(json!({ "name": "a-1" }))).await;
    r.send("POST", PODS, JSON, pod(json!({ "name": "A_" }))).await;
    r.send("POST", PODS, JSON, pod(json!({ "name": "b", "namespace": "default" }))).await;
    for _ in 0..2 {
        r.send("POST", &format!("{PODS}?partial"), JSON, pod(json!({ "name": "partial" }))).await;
    }
    r.send("POST", "/api/v1/namespaces/nowhere/pods", JSON, pod(json!({ "name": "b" }))).await;
    let path = format!("{PODS}/a-1");
    let foreign = "11111111-2222-3333-4444-555555555555";
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "resourceVersion": "1", "labels": { "z": "1" } } })).await;
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "resourceVersion": "1", "uid": foreign } })).await;
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "uid": foreign } })).await;
    let present = json!({ "uid": meta(&made, "uid"), "resourceVersion": meta(&made, "resourceVersion") });
    r.send("PATCH", &path, MERGE, json!({ "metadata": present })).await;
    r.send("PATCH", &path, MERGE, json!({ "metadata": { "labels": { "x": null } } })).await;
    r.send("DELETE", &path, JSON, json!({ "preconditions": { "uid": foreign } })).await;
    r.send("DELETE", &path, JSON, json!({ "preconditions": { "resourceVersion": "1" } })).await;
    r.send("DELETE", &format!("{PODS}/nobody"), JSON, json!({})).await;
    r.send("DELETE", &path, JSON, json!({ "preconditions": { "uid": meta(&made, "uid") } })).await;
    r.send("GET", &path, JSON, Value::Null).await;
}

/// A pod with a node ends with grace, which can only be shortened.
async fn grace(r: &mut Recorder) {
    let mut bound = pod(json!({ "name": "bound" }));
    bound["spec"]["nodeName"] = "node".into();
    r.send("POST", PODS, JSON, bound).await;
    let path = format!("{PODS}/bound");
    for options in [json!({}), json!({}), json!({ "gracePeriodSeconds": 20 }), json!({ "gracePeriodSeconds": 60 })] {
        r.send("DELETE", &path, JSON, options).await;
    }
    r.send("DELETE", &path, JSON, json!({ "gracePeriodSeconds": 0 })).await;
    r.send("GET", &path, JSON, Value::Null).await;
}

async fn lists(r: &mut Recorder) {
    for (name, labels) in [
        ("l-1", json!({ "app": "web", "tier": "x" })),
        ("l-2", json!({ "app": "web" })),
        ("l-3", json!({ "app": "web" })),
        ("l-5", json!({ "app": "db" })),
    ] {
        r.send("POST", PODS, JSON, pod(json!({ "name": name, "labels": labels }))).await;
    }
    let elsewhere = pod(json!({ "name": "l-4", "labels": { "app": "web" } }));
    r.send("POST", "/api/v1/namespaces/default/pods", JSON, elsewhere).await;
    r.send("GET", "/api/v1/pods?labelSelector=app%3Dweb", JSON, Value::Null).await;
    for selector in ["app%3Dweb", "app%3Dnothing"] {
        r.send("GET", &format!("{PODS}?labelSelector={selector}"), JSON, Value::Null).await;
    }
    r.send("GET", &format!("{PODS}?fieldSelector=metadata.name%3Dl-2"), JSON, Value::Null).await;
    r.send("GET", &format!("{PODS}?labelSelector=app%3Dweb&partials"), JSON, Value::Null).await;
    // All pages show the same version.
    let first = r.send("GET", &format!("{PODS}?labelSelector=app%3Dweb&limit=2"), JSON, Value::Null).await;
    r.send("DELETE", &format!("{PODS}/l-3"), JSON, json!({})).await;
    let next = format!("{PODS}?labelSelector=app%3Dweb&limit=2&continue={}", meta(&first, "continue"));
    r.send("GET", &next, JSON, Value::Null).await;
    if let Some(answer) = r.answers.last_mut() {
        answer["request"] = "the next page".into();
    }
}

async fn finalizers(r: &mut Recorder) {
    let kept = json!({ "name": "kept", "finalizers": ["example.com/keep"] });
    r.send("POST", PODS, JSON, pod(kept.clone())).await;
    r.send("DELETE", &format!("{PODS}/kept"), JSON, json!({})).await;
    r.send("POST", PODS, JSON, pod(kept)).await;
    r.send("PATCH", &format!("{PODS}/kept"), MERGE, json!({ "metadata": { "finalizers": null } })).await;
    r.send("GET", &format!("{PODS}/kept"), JSON, Value::Null).await;
}

/// Watches from a known resourceVersion, and records the events that follow it.
async fn watches(r: &mut Recorder) {
    r.send("POST", PODS, JSON, pod(json!({ "name": "before", "labels": { "m": "1" } }))).await;
    let list = r.send("GET", PODS, JSON, Value::Null).await;
    let from = meta(&list, "resourceVersion");
    let elsewhere = pod(json!({ "name": "elsewhere", "labels": { "m": "1" } }));
    r.send("POST", "/api/v1/namespaces/default/pods", JSON, elsewhere).await;
    let labels = |value: Value| json!({ "metadata": { "labels": { "m": value } } });
    let path = format!("{PODS}/w");
    r.send("POST", PODS, JSON, pod(json!({ "name": "w", "labels": { "m": "1" } }))).await;
    r.send("PATCH", &path, MERGE, labels(Value::Null)).await;
    r.send("PATCH", &path, MERGE, labels(json!("1"))).await;
    r.send("DELETE", &path, JSON, json!({})).await;
    let watch = format!(
        "{PODS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1&labelSelector=m%3D1&resourceVersion={from}"
    );
    r.send("GET", &watch, JSON, Value::Null).await;
    let watched = r.answers.pop().expect("just recorded");
    // The server decides when it sends bookmarks.
    let events = watched["answer"].as_array().expect("lines").iter().filter(|event| event["type"] != "BOOKMARK");
    let events: Vec<String> =
        events.map(|e| format!("{} {}", e["type"].as_str().unwrap_or_default(), e["object"]["metadata"])).collect();
    r.answers.push(json!({ "request": "the watch", "answer": events }));
}

async fn deletions(r: &mut Recorder) {
    r.send("DELETE", &format!("{SETS}/empty"), JSON, Value::Null).await;
    for policy in ["Orphan", "Foreground"] {
        let name = policy.to_lowercase();
        r.send("POST", SETS, JSON, set(json!({ "name": name }), json!({ "spec": {} }))).await;
        r.send("DELETE", &format!("{SETS}/{name}"), JSON, json!({ "propagationPolicy": policy })).await;
    }
    r.send("POST", PODS, JSON, pod(json!({ "name": "stays", "finalizers": ["example.com/keep"] }))).await;
    r.send("DELETE", "/api/v1/namespaces/conformance", JSON, Value::Null).await;
    r.send("POST", PODS, JSON, pod(json!({ "name": "late" }))).await;
    r.send("POST", PODS, JSON, pod(json!({ "name": "stays" }))).await;
    let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "late" } });
    r.send("POST", "/apis/events.k8s.io/v1/namespaces/conformance/events", JSON, event).await;
    r.send("PATCH", &format!("{PODS}/stays"), MERGE, json!({ "metadata": { "finalizers": null } })).await;
}

pub async fn run(client: Client) -> Vec<Value> {
    let mut recorder = Recorder::new(client);
    let r = &mut recorder;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    r.send("POST", "/api/v1/namespaces", JSON, namespace).await;
    let made = custom_resources(r).await;
    updates(r, &made).await;
    applied_statuses(r).await;
    leases(r).await;
    pods(r).await;
    grace(r).await;
    lists(r).await;
    finalizers(r).await;
    unknown_paths(r).await;
    watches(r).await;
    deletions(r).await;
    recorder.answers
}
