use serde_json::{Value, json};

use super::*;
use crate::objects::testing;

fn seen(patch: &str, pods: Value) -> Seen {
    let pods = serde_json::from_value(pods).unwrap();
    let stored = [("old", 2), ("other", 7)].map(|(revision, number)| {
        let stored = json!({ "metadata": { "name": format!("web-{revision}") }, "revision": number });
        serde_json::from_value(stored).unwrap()
    });
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    Seen { set: testing::set(patch), pods, revisions: stored.into(), events: Vec::new(), now }
}

/// A pod, and the sentence about it.
const PODS: &str = r#"
{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:59:50Z"}]}}
web-1 (former template) on n has been ready for 10s; spec.minReadySeconds is 30

{"status":{"conditions":[{"type":"PodScheduled","status":"False","message":"0/3 nodes"}]}}
web-1 (former template) on n cannot be scheduled: 0/3 nodes

{"status":{"containerStatuses":[{"state":{"waiting":{"reason":"ErrImagePull","message":"no image"}}}]}}
web-1 (former template) on n is in ErrImagePull: no image

{"status":{"containerStatuses":[{"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":1,"reason":"Error"}}}]}}
web-1 (former template) on n is in CrashLoopBackOff (exit code 1, 4 restarts)

{"status":{"containerStatuses":[{"state":{"running":{}},"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}
web-1 (former template) on n runs, but its container app is not ready (OOMKilled, exit code 137, 4 restarts)

{"status":{"phase":"Failed","message":"evicted","containerStatuses":[{"state":{"terminated":{"exitCode":7}}}]}}
web-1 (former template) on n has finished with exit code 7: evicted

{"status":{"phase":"Failed","initContainerStatuses":[{"state":{"terminated":{"exitCode":0}}}],"containerStatuses":[{"state":{"terminated":{"exitCode":3}}}]}}
web-1 (former template) on n has finished with exit code 3

{"status":{}}
web-1 (former template) on n has not started

{"metadata":{"deletionTimestamp":"2026-01-01T00:55:00Z"}}
web-1 (former template) on n should have terminated 5m ago

{"metadata":{"deletionTimestamp":"2026-01-01T01:00:30Z"}}
web-1 (former template) on n is terminating, for 30s more at most
"#;

#[test]
fn a_pod_says_what_it_waits_for() {
    for (pod, expected) in PODS.trim().split("\n\n").map(|case| case.split_once('\n').unwrap()) {
        let mut pod: Value = serde_json::from_str(pod).unwrap();
        pod["metadata"]["name"] = json!("web-1");
        pod["spec"] = json!({ "nodeName": "n", "containers": [] });
        for container in pod["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
            for (field, value) in
                [("name", json!("app")), ("image", json!("")), ("ready", json!(false)), ("restartCount", json!(4))]
            {
                container[field] = value;
            }
        }
        let seen = seen(r#"{"spec":{"minReadySeconds":30}}"#, json!([pod]));
        let status = seen.set.status.clone().unwrap();
        assert_eq!(problem(&seen.pods[0], &seen, &status).as_deref(), Some(expected));
    }
}

/// The difference of a set from the usual one, and the text about it.
const SETS: &str = r#"
{}
web is ready and up to date (AllPodsReady): 2 of 2

{"spec":{"updateStrategy":{"rollingUpdate":{"paused":true}}},"status":{"updatedReplicas":1,"conditions":{"ready":{"reason":"RolloutPaused"}}}}
web is ready, but not up to date (RolloutPaused): 2 of 2
- 1 pod has a former template: the rollout is paused
Next: kubectl podset rollout resume web --namespace a

{"spec":{"updateStrategy":{"rollingUpdate":{"partition":"90%"}}},"status":{"updatedReplicas":0,"conditions":{"ready":{"reason":"PartitionReached"}}}}
web is ready, but not up to date (PartitionReached): 2 of 2
- 2 pods have a former template: the partition keeps 2
Next: to update the other pods, lower spec.updateStrategy.rollingUpdate.partition

{"spec":{"updateStrategy":{"type":"OnDelete"}},"status":{"updatedReplicas":0}}
web is ready, but not up to date (AllPodsReady): 2 of 2
- 2 pods have a former template: with the strategy OnDelete they are not replaced
Next: delete the pods with a former template, one by one

{"spec":{"updateStrategy":{"type":"OnDelete"}},"status":{"updatedReplicas":1,"conditions":{"ready":{"status":"False","reason":"PodsNotReady"}}}}
web has been unready for 3m (PodsNotReady): 2 of 2
- 1 pod has a former template: with the strategy OnDelete they are not replaced

{"status":{"conditions":{"ready":{"status":"False","reason":"InvalidTemplate","message":"0 of 2: no"}}}}
web has been unready for 3m (InvalidTemplate): 0 of 2: no
Next: fix spec.template, or go back to the former one: kubectl podset rollout undo web --namespace a --to-revision=2

{"status":{"currentRevision":"not stored","conditions":{"ready":{"status":"False","reason":"InvalidTemplate","message":"0 of 2: no"}}}}
web has been unready for 3m (InvalidTemplate): 0 of 2: no
Next: fix spec.template

{"status":{"currentRevision":"njg4qh94mc","conditions":{"ready":{"status":"False","reason":"InvalidTemplate","message":"0 of 2: no"}}}}
web has been unready for 3m (InvalidTemplate): 0 of 2: no
Next: fix spec.template, or remove it to go back to the default pod

{"status":{"conditions":{"ready":{"status":"False","reason":"PodsNotReady"},"failure":{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"quota","lastTransitionTime":"2026-01-01T00:57:00Z"}}}}
web has been unready for 3m (PodsNotReady): 2 of 2
Next: the message says why no pods can be created, for example a quota, a webhook or a policy; the operator tries again within about 30 seconds

{"status":null}
web is not ready: it has no status
- the operator has not looked at it yet: check that the operator runs, leads and watches this namespace (kubectl get lease podset-operator --namespace podset-operator-system)

{"status":{"observedGeneration":2}}
web may not be ready (AllPodsReady): 2 of 2
- the operator has not acted on the last change yet: check that the operator runs, leads and watches this namespace (kubectl get lease leader --namespace ops)

{"spec":{"replicas":1},"status":{"observedGeneration":2}}
web may not be ready (AllPodsReady): 2 of 2
- 2 pods live, 1 are wanted: the surplus pods are not deleted yet

{"spec":{"replicas":1},"status":{"observedGeneration":2,"conditions":{"failure":{"type":"ReplicaFailure","status":"True","reason":"FailedDelete","message":"no","lastTransitionTime":"2026-01-01T00:57:00Z"}}}}
web may not be ready (AllPodsReady): 2 of 2
- 2 pods live, 1 are wanted: the surplus pods are not deleted yet
Next: the message says why pods cannot be deleted, for example a webhook, a policy or no response; the operator tries again within about 90 seconds

{"spec":{"podReplacementPolicy":"TerminationComplete"},"status":{"observedGeneration":2,"terminatingReplicas":1,"conditions":{"ready":{"reason":"WaitingForTermination"}}}}
web may not be ready (WaitingForTermination): 2 of 2
- the last change is observed once its terminating pods have ended: 1
Next: wait; if the node of the pod is lost for good, delete the Node object or taint it with node.kubernetes.io/out-of-service

{"status":{"currentRevision":"new","conditions":{"ready":{"status":"False","reason":"PodsFailing","message":"0 of 2: no"}}}}
web has been unready for 3m (PodsFailing): 0 of 2: no
Next: fix spec.template

{"status":{"availableReplicas":3}}
web may not be ready (AllPodsReady): 2 of 2
- 2 pods live, but the status says 3; if that is so for more than 5 seconds: check that the operator runs, leads and watches this namespace (kubectl get lease leader --namespace ops)
- 1 pod has a former template: they are replaced as new pods become available

{"status":{"updateRevision":null}}
web is ready and up to date (AllPodsReady): 2 of 2
- the operator that wrote the status does not know rolling updates: upgrade it

{"metadata":{"deletionTimestamp":"2026-01-01T00:58:00Z","finalizers":["a/b"]}}
web is ready and up to date (AllPodsReady): 2 of 2
- its deletion began 2m ago and waits for a/b
"#;

#[test]
fn each_state_has_its_reason_and_its_advice() {
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:59:50Z" }]);
    let pod = json!({ "metadata": {}, "status": { "conditions": ready } });
    for (patch, expected) in SETS.trim().split("\n\n").map(|case| case.split_once('\n').unwrap()) {
        assert_eq!(why(&seen(patch, json!([pod, pod]))), expected);
    }
}

const ADD: &str = "add nodes, or change what spec.template requests or selects";
const FORMER: &str = "or go back to the former one: kubectl podset rollout undo web --namespace a --to-revision=2";

/// The advice for a patched set with one pod. The condition Ready has this reason and message.
fn advice_for(patch: &str, reason: &str, message: &str, pod: &Value) -> String {
    let mut seen = seen(patch, json!([pod]));
    let status = seen.set.status.as_mut().unwrap();
    let ready = &mut status.conditions[0];
    (ready.status, ready.reason, ready.message) = ("False".to_owned(), reason.to_owned(), message.to_owned());
    advice(&seen, &seen.set.status.clone().unwrap()).unwrap_or_default()
}

#[test]
fn the_advice_depends_on_the_pods_and_on_what_the_operator_says() {
    let unscheduled = json!([{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes" }]);
    let unscheduled = json!({ "metadata": {}, "status": { "conditions": unscheduled } });
    let overdue = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:55:00Z" } });
    let waits = r#"{"spec":{"podReplacementPolicy":"TerminationComplete"},"status":{"terminatingReplicas":1}}"#;
    let late = |patch, message, pod| advice_for(patch, "ProgressDeadlineExceeded", message, pod);
    assert_eq!(advice_for("{}", "PodsNotReady", "", &unscheduled), ADD);
    assert_eq!(late("{}", "", &unscheduled), format!("{ADD}, {FORMER}"));
    assert_eq!(late("{}", "", &overdue), format!("fix spec.template, {FORMER}"));
    assert_eq!(late(waits, "", &overdue), WAIT);
    let on_hold = late("{}", "0 of 2; the rollout is on hold: no", &json!({ "metadata": {} }));
    assert_eq!(on_hold, "fix the cause of the hold, which the message above names");
    let gated = json!([{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }]);
    let spec = json!({ "containers": [], "schedulingGates": [{ "name": "a/b" }, { "name": "c" }] });
    let gated = json!({ "metadata": {}, "spec": spec, "status": { "conditions": gated } });
    let what = unready(&serde_json::from_value(gated.clone()).unwrap(), 0, Timestamp::UNIX_EPOCH);
    assert_eq!(what.as_deref(), Some("waits for its scheduling gates: a/b, c"));
    assert_eq!(advice_for("{}", "PodsNotReady", "", &gated), "", "nodes do not help");
    let paused = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"paused":true}}}}"#;
    let resume = FORMER.replace(": kubectl", ": kubectl podset rollout resume web --namespace a && kubectl");
    assert_eq!(advice_for(paused, "PodsFailing", "", &overdue), format!("fix spec.template, {resume}"));
}

#[test]
fn the_newest_warnings_are_shown_once() {
    let mut seen =
        seen(r#"{"status":{"conditions":{"ready":{"lastTransitionTime":"2026-01-01T00:35:00Z"}}}}"#, json!([]));
    for (minute, message) in [(50, "a"), (59, "b"), (57, "b"), (40, "c"), (30, "d"), (58, "also: to  ld")] {
        let at = format!("2026-01-01T00:{minute}:00Z");
        let event =
            json!({ "metadata": {}, "involvedObject": {}, "reason": "R", "message": message, "lastTimestamp": at });
        seen.events.push(serde_json::from_value(event).unwrap());
    }
    let warnings = warnings(&seen, &seen.set.status.clone().unwrap(), "to ld");
    assert_eq!(warnings, ["warning 60s ago: R: b", "warning 10m ago: R: a", "warning 20m ago: R: c"]);
    let times = ["2025-12-31T20:00:00Z", "2025-12-20T00:00:00Z"].map(|at| since(at.parse().unwrap(), seen.now));
    assert_eq!(times, ["5h", "12d"]);
}
