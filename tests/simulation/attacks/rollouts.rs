//! A change of the template reaches the pods, step by step. The table in docs/user-guide.md lists the situations.

use podset_operator::podset::plan::RolloutRules;

use super::*;

/// The template of this version. Its pods become ready, unless the version is `broken`.
pub(super) fn template(version: &str) -> Value {
    json!({ "spec": { "containers": [{ "name": "app", "image": version }] } })
}

pub(super) fn version(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// A server with a set of version `a` whose pods are all ready.
pub(super) async fn running(replicas: usize, spec: Value) -> (ApiServer, Operator) {
    running_with(replicas, spec, Rules::default()).await
}

async fn running_with(replicas: usize, mut spec: Value, rules: Rules) -> (ApiServer, Operator) {
    spec["template"] = template("a");
    with_spec(replicas, spec, rules).await
}

pub(super) fn change(server: &ApiServer, spec: Value) {
    server.patch(&PODSETS, NS, "web", json!({ "spec": spec }));
}

pub(super) fn change_template(server: &ApiServer, to: &str) {
    change(server, json!({ "template": template(to) }));
}

/// Changes the template. Checks the versions of the pods after so many seconds.
pub(super) async fn changed_to(server: &ApiServer, template: &str, after: u64, expected: &str) {
    change_template(server, template);
    sleep(after).await;
    assert_eq!(versions(server), expected);
}

/// The versions of the live pods, sorted.
pub(super) fn versions(server: &ApiServer) -> String {
    let live = server.pods(NS, "web").into_iter().filter(object::is_live);
    let mut versions: Vec<String> = live.map(|pod| version(&pod).to_owned()).collect();
    versions.sort();
    versions.join(" ")
}

pub(super) fn delete_one(server: &ApiServer, of: &str) {
    let pods = server.pods(NS, "web");
    let pod = pods.iter().find(|pod| object::is_live(pod) && version(pod) == of).unwrap();
    server.delete_pod(NS, object::name(pod));
}

/// Waits until all pods have this version and are ready. Checks that the status says so, and that nothing more is sent.
pub(super) async fn rolled_out(server: &ApiServer, to: &str, n: usize) {
    at_rest(server, "web", n).await;
    assert_eq!(versions(server), vec![to; n].join(" "));
    let status = &server.podset(NS, "web")["status"];
    assert_eq!(status["updatedAvailableReplicas"], n);
    assert_eq!(status["currentRevision"], status["updateRevision"]);
}

/// As [`rolled_out`], with one event about it, and none about a lost pod.
pub(super) async fn completed(server: &ApiServer, to: &str, n: usize) {
    rolled_out(server, to, n).await;
    sleep(10).await;
    assert_eq!(["PodsReplaced", "RolloutComplete"].map(|reason| server.events(NS, reason).len()), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_template_change_reaches_all_pods_one_by_one() {
    let (server, _operator) = running(5, json!({})).await;
    let mark = server.mark();
    change_template(&server, "b");
    sleep(1).await;
    assert!(condition(&server, "Ready").starts_with("False/RolloutInProgress"), "{}", condition(&server, "Ready"));
    let mut least = 5;
    while versions(&server) != "b b b b b" {
        least = least.min(server.ready_pods(NS, "web").len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(least, 4);
    rolled_out(&server, "b", 5).await;
    let lines: Vec<String> = server.requests_since(mark).iter().map(|entry| entry.line()).collect();
    assert_eq!(server.requests_since(mark).iter().filter(|r| r.request.query("dryRun") == "All").count(), 1);
    let statuses = server.requests_since(mark).iter().filter(|r| r.request.subresource == "status").count();
    assert!(statuses <= 8, "{statuses}: {lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("controllerrevisions")).count(), 1, "{lines:#?}");
    assert_eq!(lines.len() - statuses, 5 + 5 + 1 + 1 + 2, "deletes, creates, dry run, revision, events: {lines:#?}");
    let events = ["RolloutStarted", "RolloutComplete", "PodsReplaced"].map(|reason| server.events(NS, reason).len());
    assert_eq!(events, [1, 1, 0]);
}

/// kubernetes/kubernetes#67250: the rollout recovers although nobody deletes a pod by hand.
#[tokio::test(start_paused = true)]
async fn a_broken_template_takes_max_unavailable_pods_and_can_be_replaced() {
    let (server, _operator) =
        running(5, json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 2 } } })).await;
    change_template(&server, "broken");
    sleep(600).await;
    assert_eq!((versions(&server), server.ready_pods(NS, "web").len()), ("a a a broken broken".to_owned(), 3));
    change_template(&server, "c");
    rolled_out(&server, "c", 5).await;
}

/// Either of the two bounds alone limits a broken template to one pod of five. Without both, it takes all pods.
#[tokio::test(start_paused = true)]
async fn without_its_bounds_a_rollout_of_a_broken_template_takes_all_pods() {
    let bound = RolloutRules::default();
    let most_updated = |most, _, _| most;
    let unbounded = RolloutRules { most_updated, may_delete_available: |_, _| true, ..bound };
    for (rollout, left) in [(RolloutRules { most_updated, ..bound }, 4), (unbounded, 0)] {
        let (server, _operator) = running_with(5, json!({}), Rules { rollout, ..Rules::default() }).await;
        change_template(&server, "broken");
        sleep(60).await;
        assert_eq!((server.ready_pods(NS, "web").len(), server.has_also_broken("without a reason")), (left, left == 0));
    }
}

/// The former template can no longer be created, for example because its ServiceAccount is gone.
#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_a_former_one_that_is_rejected() {
    let refuse = |code| Fault::Refuse(Status::of_code(code));
    for answer in [refuse(403), refuse(400), Fault::Delay(seconds(3600))] {
        let (server, _operator) = running(3, json!({})).await;
        server.fault(Requests::creates("pods").when(|request| version(&request.body) == "a"), answer);
        change_template(&server, "b");
        for _ in 0..2 {
            delete_one(&server, "a");
        }
        sleep(300).await;
        rolled_out(&server, "b", 3).await;
    }
}

/// Neither pods of the former template nor of the new one can be created.
#[tokio::test(start_paused = true)]
async fn a_rejected_former_template_does_not_hide_an_invalid_new_one() {
    let (server, _operator) = running(3, json!({})).await;
    let [_former, new] = [("a", 403), ("b", 400)].map(|(of, code)| {
        let creates = Requests::creates("pods").when(move |request| version(&request.body) == of);
        server.fault(creates, Fault::Refuse(Status::of_code(code)))
    });
    change_template(&server, "b");
    for _ in 0..2 {
        delete_one(&server, "a");
    }
    sleep(300).await;
    assert!(condition(&server, "Ready").starts_with("False/InvalidTemplate"), "{}", condition(&server, "Ready"));
    assert_eq!(server.events(NS, "FailedCreate").len(), 1);
    // A webhook made the pods invalid, for example.
    new.remove();
    rolled_out(&server, "b", 3).await;
}

/// A webhook takes the owner of new pods away. One such pod is enough to stop the creates of both templates.
#[tokio::test(start_paused = true)]
async fn a_stray_of_one_template_stops_the_creates_of_both() {
    let (server, _operator) = running(4, json!({})).await;
    server.change_new_pods(|pod| pod["metadata"]["ownerReferences"] = json!([]));
    terminate_slowly(&server, 3);
    change_template(&server, "b");
    for _ in 0..3 {
        delete_one(&server, "a");
    }
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let is_stray = |pod: &&Value| pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
        assert!(server.all(&PODS, NS).iter().filter(is_stray).count() <= 1);
    }
}

/// A lost pod gets the new template.
#[tokio::test(start_paused = true)]
async fn without_the_former_template_every_pod_that_dies_comes_back_broken() {
    let rollout = RolloutRules { is_careful: false, ..RolloutRules::default() };
    let (server, _operator) = running_with(5, json!({}), Rules { rollout, ..Rules::default() }).await;
    change_template(&server, "broken");
    sleep(60).await;
    for pod in server.ready_pods(NS, "web") {
        server.delete_pod(NS, &pod);
    }
    sleep(60).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 0);
    assert!(server.has_also_broken("2 pods have a broken template, but at most 1"));
}

#[tokio::test(start_paused = true)]
async fn a_change_back_is_not_complete_while_a_pod_has_another_template_or_is_missing() {
    let on_delete = json!({ "updateStrategy": { "type": "OnDelete" } });
    for (replicas, spec) in [(5, on_delete), (1, json!({ "podReplacementPolicy": "TerminationComplete" }))] {
        let (server, _operator) = running(replicas, spec).await;
        terminate_slowly(&server, 60);
        change_template(&server, "broken");
        delete_one(&server, "a");
        sleep(30).await;
        change_template(&server, "a");
        sleep(10).await;
        assert!(server.events(NS, "RolloutComplete").is_empty());
    }
}

/// openkruise/kruise#376
#[tokio::test(start_paused = true)]
async fn a_change_back_within_a_quota_replaces_only_the_broken_pods_and_ends_with_an_event() {
    let (server, _operator) = running(3, json!({})).await;
    let before = server.live_pods(NS, "web");
    server.set_quota(NS, 3);
    changed_to(&server, "broken", 60, "a a broken").await;
    terminate_slowly(&server, 40);
    change_template(&server, "a");
    sleep(30).await;
    assert!(condition(&server, "Ready").starts_with("False/RolloutInProgress"), "{}", condition(&server, "Ready"));
    completed(&server, "a", 3).await;
    assert_eq!(server.live_pods(NS, "web").iter().filter(|pod| before.contains(pod)).count(), 2);
}

/// The new pods are rejected, so the change back finds a missing pod and no pod of another template.
#[tokio::test(start_paused = true)]
async fn a_change_back_from_a_rejected_template_ends_with_an_event() {
    let (server, _operator) = running(3, json!({ "minReadySeconds": 20 })).await;
    sleep(30).await;
    let rejection = Status::forbidden(&PODS, "web-pod", "it violates PodSecurity");
    let creates = Requests::creates("pods").when(|request| version(&request.body) == "b");
    server.fault(creates, Fault::Refuse(rejection));
    changed_to(&server, "b", 60, "a a").await;
    changed_to(&server, "a", 15, "a a a").await;
    assert!(condition(&server, "Ready").starts_with("False/RolloutInProgress"), "{}", condition(&server, "Ready"));
    completed(&server, "a", 3).await;
}

/// The dry run passes, but no pod is created.
#[tokio::test(start_paused = true)]
async fn a_template_that_only_the_dry_run_accepts_is_retried_with_backoff() {
    for policy in ["TerminationStarted", "TerminationComplete"] {
        let (server, _operator) = running(3, json!({ "podReplacementPolicy": policy })).await;
        let invalid = Status::invalid(&PODS, "web-pod", "spec.containers[0].image", "FieldValueRequired", "empty");
        let creates = Requests::creates("pods").when(|request| version(&request.body) == "b");
        let rule = server.fault(creates, Fault::Refuse(invalid));
        change_template(&server, "b");
        sleep(300).await;
        assert!(rule.hits() < 20, "{policy}: {}", rule.hits());
        rule.remove();
        rolled_out(&server, "b", 3).await;
    }
}

/// kubernetes/kubernetes#137409: broken pods of the former template do not use up `maxUnavailable`.
#[tokio::test(start_paused = true)]
async fn broken_pods_of_the_former_template_do_not_stop_a_rollout() {
    let (server, _operator) = running(5, json!({})).await;
    for pod in &server.live_pods(NS, "web")[1..] {
        server.set_ready(NS, pod, false);
    }
    let healthy = server.ready_pods(NS, "web");
    change_template(&server, "b");
    let is_last = |s: &ApiServer| versions(s) == "a b b b b";
    server.wait_until(is_last, seconds(60)).await;
    assert!(server.ready_pods(NS, "web").contains(&healthy[0]), "the healthy pod is deleted last");
    rolled_out(&server, "b", 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_lost_during_a_broken_rollout_gets_the_former_template() {
    let (server, _operator) = running(5, json!({})).await;
    change_template(&server, "broken");
    sleep(60).await;
    for _ in 0..3 {
        delete_one(&server, "a");
        sleep(60).await;
        assert_eq!(versions(&server), "a a a a broken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_completes_a_rollout_after_a_broken_first_template() {
    let (server, operator) = server_and_leader();
    let spec = json!({ "replicas": 2, "template": template("broken"), "minReadySeconds": 30 });
    server.create(&PODSETS, NS, json!({ "metadata": { "name": "web" }, "spec": spec }));
    sleep(10).await;
    changed_to(&server, "b", 40, "b b").await;
    operator.end().await;
    let _operator = Operator::leader(&server, "new", Rules::default());
    sleep(5).await;
    assert!(condition(&server, "Ready").starts_with("False/RolloutInProgress"), "{}", condition(&server, "Ready"));
    completed(&server, "b", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_the_api_server_rejects_costs_no_pod() {
    let (server, operator) = running(3, json!({})).await;
    let invalid = Status::invalid(&PODS, "web-pod", "spec.containers[0].image", "FieldValueRequired", "it is empty");
    let rule = server.fault(Requests::all().when(|r| r.query("dryRun") == "All"), Fault::Refuse(invalid));
    let before = server.live_pods(NS, "web");
    change_template(&server, "b");
    sleep(120).await;
    assert_eq!(server.live_pods(NS, "web"), before);
    assert!(condition(&server, "Stalled").starts_with("True/InvalidTemplate"), "{}", condition(&server, "Stalled"));
    operator.end().await;
    let _operator = Operator::leader(&server, "new", Rules::default());
    sleep(60).await;
    assert_eq!(server.count(&Requests::status_patches("podsets").from("new")), 0);
    // The quota counts the pod that terminates.
    server.set_quota(NS, 3);
    terminate_slowly(&server, 600);
    delete_one(&server, "a");
    sleep(120).await;
    assert!(condition(&server, "Stalled").starts_with("True/InvalidTemplate"), "{}", condition(&server, "Stalled"));
    assert_eq!(server.events(NS, "FailedCreate").len(), 2, "the template and the quota");
    rule.remove();
    server.lift_quota(NS);
    server.fault(Requests::creates("pods").when(|request| version(&request.body) == "a"), Fault::CutBefore);
    rolled_out(&server, "b", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_rollout_deletes_nothing_is_reported_once_and_goes_on_later() {
    let (server, operator) = running(4, json!({})).await;
    change(&server, json!({ "template": template("b"), "updateStrategy": { "rollingUpdate": { "paused": true } } }));
    sleep(60).await;
    assert_eq!((versions(&server), condition(&server, "Reconciling")), ("a a a a".to_owned(), String::new()));
    assert!(condition(&server, "Ready").starts_with("True/RolloutPaused"), "{}", condition(&server, "Ready"));
    server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
    ready(&server, "web", 4).await;
    assert_eq!(versions(&server), "a a a a", "no updated pod is live");
    server.set_ready(NS, &server.live_pods(NS, "web")[0], false);
    sleep(5).await;
    operator.end().await;
    let _operator = Operator::leader(&server, "b", Rules::default());
    sleep(60).await;
    assert!(condition(&server, "Ready").starts_with("False/PodsNotReady"), "{}", condition(&server, "Ready"));
    assert_eq!(server.events(NS, "RolloutPaused").len(), 1);
    change(&server, json!({ "updateStrategy": { "rollingUpdate": { "paused": false } } }));
    rolled_out(&server, "b", 4).await;
}

/// openkruise/kruise#1153.
#[tokio::test(start_paused = true)]
async fn a_rollout_that_is_paused_halfway_stops_there() {
    let (server, _operator) = running(4, json!({ "minReadySeconds": 10 })).await;
    change_template(&server, "b");
    server.wait_until(|s| versions(s) == "a a b b", seconds(120)).await;
    change(&server, json!({ "updateStrategy": { "rollingUpdate": { "paused": true } } }));
    sleep(120).await;
    assert_eq!(versions(&server), "a a b b");
    server.scale(NS, "web", 6);
    ready(&server, "web", 6).await;
    sleep(60).await;
    assert!(versions(&server).starts_with("a a b b"), "{}", versions(&server));
    change_template(&server, "c");
    sleep(120).await;
    assert!(versions(&server).starts_with("a a b b"), "{}", versions(&server));
    change(&server, json!({ "updateStrategy": { "rollingUpdate": { "paused": false } } }));
    rolled_out(&server, "c", 6).await;
}

pub(super) fn partition(kept: impl Into<Value>) -> Value {
    json!({ "updateStrategy": { "rollingUpdate": { "partition": kept.into() } } })
}

#[tokio::test(start_paused = true)]
async fn on_delete_leaves_existing_pods_as_they_are() {
    let (server, operator) = running(3, json!({ "updateStrategy": { "type": "OnDelete" } })).await;
    let unstored = server.fault(Requests::creates("controllerrevisions"), Fault::Refuse(Status::of_code(500)));
    changed_to(&server, "b", 60, "a a a").await;
    let ready_but = "True/AllPodsReady: 3 of 3 pods are ready; the template cannot be stored: InternalError";
    assert!(condition(&server, "Ready").starts_with(ready_but));
    server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
    ready(&server, "web", 3).await;
    assert_eq!(versions(&server), "a a b");
    drop(operator);
    unstored.remove();
    let _operator = Operator::leader(&server, "b", Rules::default());
    server.wait_until(|s| s.all(&REVISIONS, NS).len() == 2, seconds(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_goes_on_after_a_scale_and_under_a_new_leader() {
    let (server, operator) = running(4, json!({ "minReadySeconds": 5 })).await;
    change_template(&server, "b");
    for replicas in [6, 3] {
        sleep(1).await;
        server.scale(NS, "web", replicas);
    }
    sleep(5).await;
    drop(operator);
    let _operator = Operator::leader(&server, "b", Rules::default());
    rolled_out(&server, "b", 3).await;
}

/// Other statuses wait while pods of another set are created.
#[tokio::test(start_paused = true)]
async fn each_stage_of_a_rollout_is_reported_at_once() {
    let (server, _operator) = running(3, json!({})).await;
    let other = Requests::creates("pods").when(|request| request.body["metadata"]["generateName"] == "other-pod");
    let answer = server.fault(other.first(1), Fault::HoldAnswer);
    server.create_podset(NS, "other", 1);
    answer.wait_for_hits(1).await;
    change_template(&server, "b");
    server.wait_until(|s| versions(s) == "b b b" && s.ready_pods(NS, "web").len() == 3, seconds(3)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let status = &server.podset(NS, "web")["status"];
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    // Back to the former template in the middle of a rollout.
    change_template(&server, "broken");
    server.wait_until(|s| versions(s) == "b b broken", seconds(10)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(condition(&server, "Ready").starts_with("False/RolloutInProgress"), "{}", condition(&server, "Ready"));
    sleep(5).await;
    change_template(&server, "b");
    server.wait_until(|s| versions(s) == "b b b" && s.ready_pods(NS, "web").len() == 3, seconds(3)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(condition(&server, "Ready").starts_with("True/AllPodsReady"), "{}", condition(&server, "Ready"));
    answer.release();
}

#[tokio::test(start_paused = true)]
async fn a_rollout_waits_for_min_ready_seconds() {
    let (server, _operator) = running(3, json!({ "minReadySeconds": 20 })).await;
    sleep(30).await;
    let began = tokio::time::Instant::now();
    change_template(&server, "b");
    let is_done =
        |s: &ApiServer| versions(s) == "b b b" && s.podset(NS, "web")["status"]["updatedAvailableReplicas"] == 3;
    server.wait_until(is_done, seconds(200)).await;
    assert!(began.elapsed() >= seconds(60), "{:?}", began.elapsed());
    rolled_out(&server, "b", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_without_progress_is_reported_and_goes_on() {
    let (server, _operator) = running(3, json!({ "progressDeadlineSeconds": 60 })).await;
    change_template(&server, "broken");
    sleep(50).await;
    assert_eq!(condition(&server, "Stalled"), "");
    sleep(30).await;
    let stalled = condition(&server, "Stalled");
    assert!(stalled.starts_with("True/ProgressDeadlineExceeded: the rollout makes no progress; 1 of 3"), "{stalled}");
    sleep(600).await;
    assert_eq!(server.events(NS, "RolloutStalled").len(), 1);
    // A new strategy gets a new progress deadline.
    change(&server, partition(1));
    sleep(30).await;
    assert_eq!(condition(&server, "Stalled"), "");
    sleep(60).await;
    assert!(condition(&server, "Stalled").starts_with("True/ProgressDeadlineExceeded"));
    let strategy = json!({ "rollingUpdate": { "partition": 0 } });
    change(&server, json!({ "template": template("c"), "updateStrategy": strategy }));
    rolled_out(&server, "c", 3).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_scale_adds_are_no_progress() {
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": "50%" } });
    let (server, _operator) = running(2, json!({ "progressDeadlineSeconds": 60, "updateStrategy": strategy })).await;
    change_template(&server, "broken");
    for replicas in [4, 2, 4] {
        sleep(20).await;
        server.scale(NS, "web", replicas);
    }
    sleep(20).await;
    assert!(condition(&server, "Stalled").starts_with("True/ProgressDeadlineExceeded"));
}

/// Slow pods cost no additional statuses: one for each step, and three more.
#[tokio::test(start_paused = true)]
async fn a_slow_rollout_costs_one_status_for_each_step() {
    for policy in ["TerminationStarted", "TerminationComplete"] {
        let (server, _operator) = running(4, json!({ "podReplacementPolicy": policy, "minReadySeconds": 10 })).await;
        sleep(60).await;
        let slow = PodScript { ready_after: Some(seconds(8)), gone_after: Some(seconds(15)), ..PodScript::default() };
        server.set_pod_script(slow);
        let mark = server.mark();
        change_template(&server, "b");
        rolled_out(&server, "b", 4).await;
        let requests = server.requests_since(mark);
        let lines: Vec<String> =
            requests.iter().filter(|r| r.request.subresource == "status").map(|r| r.line()).collect();
        assert!(lines.len() <= 7, "{policy}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_template_does_not_block_pods_of_the_former_one() {
    for code in [403, 422] {
        let (server, _operator) = running(5, json!({})).await;
        let rejection = match code {
            403 => Status::forbidden(&PODS, "web-pod", "it violates PodSecurity"),
            _ => Status::invalid(&PODS, "web-pod", "spec.containers[0].image", "FieldValueRequired", "it is empty"),
        };
        let creates = Requests::all().verb(Verb::Create).of("pods").when(|r| version(&r.body) == "b");
        server.fault(creates, Fault::Refuse(rejection));
        for pod in &server.live_pods(NS, "web")[..3] {
            server.delete_pod(NS, pod);
        }
        change_template(&server, "b");
        sleep(120).await;
        let expected = if code == 403 { "a a a a" } else { "a a a a a" };
        assert_eq!(versions(&server), expected, "{code}");
        // By now, creates of some names have failed.
        server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
        sleep(120).await;
        assert_eq!(versions(&server), expected, "{code}");
    }
}

/// The label is removed, first by a user and then by a webhook.
#[tokio::test(start_paused = true)]
async fn a_missing_revision_label_does_not_create_pods_endlessly() {
    let (server, _operator) = running(3, json!({})).await;
    for pod in server.live_pods(NS, "web") {
        server.patch(&PODS, NS, &pod, json!({ "metadata": { "labels": { "controller-revision-hash": null } } }));
    }
    sleep(60).await;
    assert_eq!(server.count(&Requests::creates("pods")), 3, "the operator knows what it created");
    server.change_new_pods(|pod| {
        pod["metadata"]["labels"].as_object_mut().map(|labels| labels.remove("controller-revision-hash"));
    });
    // The dry run shows the missing label.
    changed_to(&server, "b", 120, "a a a").await;
    assert!(
        condition(&server, "Ready").contains("an admission webhook or policy changed the pod while it was created")
    );
    server.lift_webhook();
    rolled_out(&server, "b", 3).await;
}

#[tokio::test(start_paused = true)]
async fn failing_pods_of_the_former_template_do_not_delay_a_rollout() {
    let (server, _operator) = running(4, json!({})).await;
    server.choose_pod_scripts(|pod| match version(pod) {
        "a" => PodScript::fails_after(seconds(1)),
        _ => PodScript::default(),
    });
    for pod in server.live_pods(NS, "web") {
        server.fail_pod(NS, &pod);
    }
    sleep(600).await;
    changed_to(&server, "b", 30, "b b b b").await;
    rolled_out(&server, "b", 4).await;
}
