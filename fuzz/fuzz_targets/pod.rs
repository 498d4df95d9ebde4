//! Decodes a pod as the caches do, and compares it with k8s-openapi's pod from the same text.
#![no_main]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod as Full},
    apimachinery::pkg::apis::meta::v1::Time,
};
use libfuzzer_sys::fuzz_target;
use podset_operator::podset::observe::{Phase, Pod};
use podset_operator_fuzz::{Edit, POD, edited};

fuzz_target!(|edits: Vec<Edit>| {
    let text = edited(&POD, &edits).to_string();
    let (Ok(pod), Ok(full)) = (serde_json::from_str::<Pod>(&text), serde_json::from_str::<Full>(&text)) else {
        assert!(!edits.is_empty(), "the recorded pod cannot be read");
        return;
    };
    check(&pod, full);
});

fn microseconds(time: impl Into<Timestamp>) -> i64 {
    time.into().as_microsecond()
}

fn check(pod: &Pod, full: Full) {
    let Full { metadata, spec, status } = full;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let time = |time: &Option<Time>| time.as_ref().map(|Time(time)| time.as_microsecond());
    let named = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
    assert_eq!((&*pod.key.namespace, &*pod.key.name, &*pod.uid), (&*named.0, &*named.1, &*named.2));
    assert_eq!(pod.version, text(&metadata.resource_version).parse().unwrap_or(0));
    let controller = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let is_podset = |group: &str, kind: &str| kind == "PodSet" && group.split('/').next() == Some("app.example.com");
    let owner =
        controller.filter(|owner| is_podset(&owner.api_version, &owner.kind) && owner.api_version.contains('/'));
    assert_eq!(pod.owner.as_deref(), owner.map(|owner| &*owner.uid).filter(|uid| (1..=64).contains(&uid.len())));

    // Whether it counts.
    let phase = match &*text(&status.phase) {
        "" | "Pending" => Phase::Pending,
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        _ => Phase::Unknown,
    };
    let is_finished = phase == Phase::Succeeded || phase == Phase::Failed;
    assert_eq!((pod.phase, pod.is_finished()), (phase, is_finished));
    assert_eq!(pod.is_terminating, metadata.deletion_timestamp.is_some());
    let node = spec.node_name.filter(|node| !node.is_empty());
    assert_eq!(pod.node.as_deref(), node.as_deref());
    assert_eq!(pod.may_run(), !is_finished && (node.is_some() || metadata.deletion_timestamp.is_none()));

    let entry = |entries: &Option<std::collections::BTreeMap<String, String>>, key| entries.as_ref()?.get(key).cloned();
    let label = |key| entry(&metadata.labels, key);
    assert_eq!(pod.is_labelled, label("app.kubernetes.io/managed-by").as_deref() == Some("podset-operator"));
    let revision = pod.revision.map(|revision| revision.to_string());
    assert!(revision.is_none() || revision == label("controller-revision-hash"));
    let number = |key| entry(&metadata.annotations, key).and_then(|text| text.parse::<i64>().ok());
    let cost = number("controller.kubernetes.io/pod-deletion-cost").and_then(|cost| i32::try_from(cost).ok());
    assert_eq!(pod.deletion_cost, cost.unwrap_or_default());
    let replacements = number("app.example.com/replacements").and_then(|number| u32::try_from(number).ok());
    assert_eq!(pod.replacements, replacements.unwrap_or_default());

    let condition = |type_| status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
    let is_true = |type_| condition(type_).filter(|condition| condition.status == "True");
    let turned = is_true("Ready").map(|ready| time(&ready.last_transition_time).unwrap_or_default());
    assert_eq!(pod.ready_since.map(microseconds), turned);
    let disruption = is_true("DisruptionTarget").map(|target| text(&target.reason)).filter(|reason| !reason.is_empty());
    assert!(disruption.unwrap_or_default().starts_with(pod.disruption.as_deref().unwrap_or_default()));
    assert!(pod.disruption.as_ref().or(pod.waits_for.as_ref()).is_none_or(|text| !text.is_empty()));

    assert_eq!(microseconds(pod.created), time(&metadata.creation_timestamp).unwrap_or_default());
    assert_eq!(pod.started.map(microseconds), time(&status.start_time));
    let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
    let asked =
        metadata.deletion_timestamp.and_then(|Time(end)| end.checked_sub(SignedDuration::from_secs(grace)).ok());
    assert_eq!(pod.deleted.map(microseconds), asked.map(microseconds));
    let containers = status.container_statuses.unwrap_or_default();
    let restarts: i64 = containers.iter().map(|container| i64::from(container.restart_count)).sum();
    if containers.iter().all(|container| container.restart_count >= 0) {
        assert_eq!(i64::from(pod.restarts), restarts.min(i32::MAX.into()));
    }
    let codes = |containers: &[ContainerStatus]| -> Vec<i32> {
        let ends = containers.iter().filter_map(|container| container.state.as_ref()?.terminated.as_ref());
        ends.map(|end| end.exit_code).collect()
    };
    let codes = [codes(&status.init_container_statuses.unwrap_or_default()), codes(&containers)].concat();
    match pod.exit_code {
        Some(0) => assert!(is_finished && codes.iter().all(|code| *code == 0) && !codes.is_empty()),
        Some(code) => assert!(is_finished && codes.contains(&code)),
        None => assert!(!is_finished || codes.is_empty()),
    }
}
