//! Decodes a PodSet as the cache does, and compares it with the type of the API. A spec that cannot be read is an
//! error: the number of pods is never guessed.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use podset_operator::{
    api::{PodReplacementPolicy, PodSetSpec, PodSetStatus, UpdateStrategyType},
    podset::observe::{PodsLike, Set, Whole},
};
use podset_operator_fuzz::{Edit, POD, edited};
use serde_json::{Value, json};

static SET: LazyLock<Value> = LazyLock::new(|| {
    let times = &POD["metadata"];
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "set-1", "resourceVersion": "17", "generation": 3,
            "annotations": { "kubernetes.io/change-cause": "another image" },
            "creationTimestamp": times["creationTimestamp"], "deletionTimestamp": times["deletionTimestamp"],
        },
        "spec": {
            "replicas": 3, "podReplacementPolicy": "TerminationStarted", "minReadySeconds": 5,
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxUnavailable": "25%", "partition": 1, "paused": false },
            },
            "template": {
                "metadata": { "labels": { "tier": "front" }, "annotations": { "note": "x" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx", "args": [1.5, null] }] },
            },
        },
        "status": {
            "podNames": ["web-podbcdfg"], "availableReplicas": 1, "readyReplicas": 1, "terminatingReplicas": 0,
            "currentRevision": "njg4qh94mc", "updateRevision": "njg4qh94mc", "collisionCount": 1, "observedGeneration": 3,
            "selector": "app=web", "writtenBy": "podset-system/podset-operator",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "AllAvailable", "message": "",
                "lastTransitionTime": "2026-01-01T12:00:03Z",
            }],
        },
    })
});

fuzz_target!(|edits: Vec<Edit>| {
    let json = edited(&SET, &edits);
    let text = json.to_string();
    let Ok(set) = serde_json::from_str::<Set>(&text) else {
        assert!(!edits.is_empty(), "the set cannot be read");
        return;
    };
    // serde takes a list for the fields of an object. The API server never sends one there.
    if !json["metadata"].is_object() {
        return;
    }
    let field = |name: &str| json["metadata"][name].as_str().unwrap_or_default();
    assert_eq!((&*set.key.namespace, &*set.key.name, &*set.uid), (field("namespace"), field("name"), field("uid")));
    assert_eq!(set.version, field("resourceVersion").parse().unwrap_or(0));
    assert_eq!(set.is_deleting, !json["metadata"]["deletionTimestamp"].is_null());
    // The API server writes the fields of a template in its own order, with its own spaces.
    let Whole(whole) = serde_json::from_str(&format!("{json:#}")).expect("spaces mean nothing");
    assert_eq!(
        (whole.revision(), whole.replicas(), whole.waits_from),
        (set.revision(), set.replicas(), set.waits_from)
    );
    match set.wanted.as_ref().map(|wanted| &wanted.template) {
        Ok(PodsLike::Template(Some(template))) => assert!(template.bytes() <= 1 << 10),
        Ok(PodsLike::Large(bytes)) => assert!(*bytes > 1 << 10),
        Ok(PodsLike::Template(None)) | Err(_) => {}
    }

    if let Ok(status) = serde_json::from_value::<PodSetStatus>(json["status"].clone()) {
        assert_eq!(set.status, status);
    }
    let spec = serde_json::from_value::<PodSetSpec>(json["spec"].clone());
    match (&set.wanted, spec) {
        (Ok(wanted), spec) => {
            let replicas = json["spec"].get("replicas").map_or(Some(1), Value::as_u64);
            assert_eq!(u64::try_from(wanted.replicas).ok(), replicas, "it wants as many as its spec says");
            assert!(wanted.update.partition <= wanted.replicas && wanted.update.max_unavailable != Some(0));
            // What is passed on as text may be no object.
            let Ok(spec) = spec else { return };
            assert_eq!(
                (wanted.update.min_ready, wanted.update.deadline),
                (spec.min_ready_seconds, spec.progress_deadline_seconds)
            );
            let is_rolling = spec.update_strategy.type_ == UpdateStrategyType::RollingUpdate;
            assert_eq!(wanted.update.max_unavailable.is_some(), is_rolling);
            assert_eq!(wanted.update.is_paused, spec.update_strategy.rolling_update.paused);
            let waits = spec.pod_replacement_policy == PodReplacementPolicy::TerminationComplete;
            assert_eq!(set.waits_for_termination(), waits);
        }
        (Err(_), spec) => assert!(spec.map_or(true, |spec| spec.replicas < 0), "the API's type can read it"),
    }
});
