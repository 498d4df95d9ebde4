//! A13: with `podReplacementPolicy: TerminationComplete`, pods that are being deleted may still run. The table in docs/user-guide.md
//! lists the situations. The tests of the plan cover those without a test here.

use super::*;

/// A set that waits for terminations. Its pods take 20 s to terminate.
async fn running(replicas: usize, rules: Rules) -> (ApiServer, Operator) {
    let (server, operator) = with_spec(replicas, json!({ "podReplacementPolicy": "TerminationComplete" }), rules).await;
    terminate_slowly(&server, 20);
    (server, operator)
}

/// A set that waits for terminations. The scheduler has bound none of its pods yet.
pub(super) async fn unscheduled(replicas: i64, script: PodScript) -> (ApiServer, Operator) {
    let (server, operator) = server_and_leader();
    server.set_pod_script(script);
    server.create_podset(NS, "web", replicas);
    server.wait_for_termination(NS, "web");
    sleep(5).await;
    (server, operator)
}

fn creates(server: &ApiServer) -> usize {
    server.effects(&Requests::creates("pods"))
}

fn status(server: &ApiServer) -> Value {
    server.podset(NS, "web")["status"].clone()
}

/// A pod is deleted, and its containers run for another 20 s.
async fn one_is_deleted(rules: Rules) -> (ApiServer, Operator, String) {
    let (server, operator) = running(3, rules).await;
    let deleted = server.live_pods(NS, "web")[0].clone();
    server.delete_pod(NS, &deleted);
    (server, operator, deleted)
}

#[tokio::test(start_paused = true)]
async fn a13_a_deleted_pod_is_replaced_when_it_is_gone() {
    let (server, _operator, deleted) = one_is_deleted(Rules::default()).await;
    sleep(19).await;
    assert_eq!(creates(&server), 3);
    let node = server.pod(NS, &deleted)["spec"]["nodeName"].as_str().unwrap().to_owned();
    let message = format!("2 of 3 pods are ready; waiting for {deleted} on {node} to terminate");
    assert_eq!(condition(&server, "Ready"), format!("False/WaitingForTermination: {message}"));
    assert_eq!(status(&server)["terminatingReplicas"], 1);
    server.wait_until(|s| creates(s) == 4, Duration::from_millis(1_100)).await;
    at_rest(&server, "web", 3).await;
    assert_eq!(status(&server)["terminatingReplicas"], 0);
    assert!(server.events(NS, "WaitingForTermination").is_empty(), "the pod did not exceed its grace period");
}

#[tokio::test(start_paused = true)]
async fn a13_a_terminal_phase_frees_the_slot_despite_a_finalizer() {
    let (server, _operator) = running(3, Rules::default()).await;
    let deleted = server.live_pods(NS, "web")[0].clone();
    server.patch(&PODS, NS, &deleted, json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    server.delete_pod(NS, &deleted);
    sleep(5).await;
    assert_eq!(creates(&server), 3);
    server.succeed_pod(NS, &deleted);
    server.wait_until(|s| creates(s) == 4, Duration::from_millis(200)).await;
    at_rest(&server, "web", 3).await;
    assert!(!server.pod(NS, &deleted).is_null());
}

#[tokio::test(start_paused = true)]
async fn a13_a_scale_down_is_observed_when_the_pods_have_ended() {
    let (server, _operator) = running(5, Rules::default()).await;
    server.scale(NS, "web", 2);
    sleep(10).await;
    let generation = server.podset(NS, "web")["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(status(&server)["observedGeneration"], generation - 1);
    assert_eq!((&status(&server)["terminatingReplicas"], &status(&server)["readyReplicas"]), (&json!(3), &json!(2)));
    server.scale(NS, "web", 5);
    sleep(5).await;
    assert_eq!(creates(&server), 5, "the three deleted pods still run");
    at_rest(&server, "web", 5).await;
}

/// A pod that is being deleted loses the watched label, and the watch reports it as deleted.
async fn label_lost(rules: Rules) -> (ApiServer, Operator, String) {
    let (server, operator, deleted) = one_is_deleted(rules).await;
    sleep(2).await;
    server.strip_label(NS, &deleted);
    sleep(10).await;
    (server, operator, deleted)
}

#[tokio::test(start_paused = true)]
async fn a13_a_pod_that_is_being_deleted_counts_without_its_label() {
    let (server, _operator, deleted) = label_lost(Rules::default()).await;
    assert_eq!(creates(&server), 3);
    assert_eq!(server.pod(NS, &deleted)["metadata"]["labels"][LABEL], "podset-operator");
    server.wait_until(|s| creates(s) == 4, seconds(9)).await;
}

/// Another process takes over while a pod that no watch shows terminates.
#[tokio::test(start_paused = true)]
async fn a13_a_new_leader_counts_pods_that_are_being_deleted() {
    let (server, operator, deleted) = one_is_deleted(Rules::default()).await;
    sleep(1).await;
    drop(operator);
    server.strip_label(NS, &deleted);
    let _operator = Operator::leader(&server, "b", Rules::default());
    sleep(10).await;
    assert_eq!(creates(&server), 3);
    ready(&server, "web", 3).await;
}

/// The API server removes a pod without a node at once, even if the scheduler binds it at the same moment.
#[tokio::test(start_paused = true)]
async fn a13_a_pod_without_a_node_is_deleted_only_in_the_version_seen() {
    let script = PodScript { bound_after: Some(seconds(10)), ..PodScript::default() };
    let (server, _operator) = unscheduled(2, script).await;
    server.fault(Requests::deletes("pods").first(1), Fault::Delay(seconds(8)));
    server.scale(NS, "web", 1);
    at_rest(&server, "web", 1).await;
    let deletes = server.requests(&Requests::deletes("pods"));
    assert_eq!(deletes.iter().map(|delete| delete.answered).collect::<Vec<_>>(), [Some(409), Some(200)]);
}

/// Pods of a lost node terminate only when they are deleted by force.
#[tokio::test(start_paused = true)]
async fn a13_pods_of_a_lost_node_hold_their_slots_and_cause_one_event() {
    let (server, _operator) = running(3, Rules::default()).await;
    server.set_pod_script(PodScript { gone_after: None, ..PodScript::default() });
    let lost = server.live_pods(NS, "web")[0].clone();
    let disruption = json!({ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager" });
    server.set_pod_condition(NS, &lost, disruption);
    server.delete_pod(NS, &lost);
    sleep(35).await;
    assert!(server.events(NS, "WaitingForTermination").is_empty());
    sleep(3_600).await;
    assert_eq!(creates(&server), 3);
    let why = condition(&server, "Ready");
    assert!(why.contains(" (DisruptionTarget/DeletionByTaintManager) to terminate"), "{why}");
    let events = server.events(NS, "WaitingForTermination");
    let [event] = &events[..] else { panic!("{events:#?}") };
    assert_eq!(event["type"], "Warning");
    assert!(event["note"].as_str().unwrap().contains(&lost), "{event}");
    let second = server.live_pods(NS, "web")[0].clone();
    server.delete_pod(NS, &second);
    sleep(60).await;
    let events = server.events(NS, "WaitingForTermination");
    let named = |pod: &str| events.iter().filter(|event| event["note"].as_str().unwrap().contains(pod)).count();
    assert_eq!((events.len(), named(&lost), named(&second)), (2, 1, 1), "another pod has another event");
    server.kill_pod(NS, &second);
    server.kill_pod(NS, &lost);
    server.wait_until(|s| creates(s) == 5, Duration::from_millis(200)).await;
}

/// While pods terminate, `terminatingReplicas` is not exact: writing each step would cost a request per pod.
#[tokio::test(start_paused = true)]
async fn pods_that_terminate_one_by_one_cost_few_statuses_by_default() {
    let (server, _operator) = with_set(10, Rules::default()).await;
    let statuses = || server.count(&Requests::status_patches("podsets"));
    let before = statuses();
    let ages = AtomicU64::new(0);
    server.choose_pod_scripts(move |_| PodScript::gone_after(seconds(7 * ages.fetch_add(1, Ordering::Relaxed))));
    server.scale(NS, "web", 2);
    at_rest(&server, "web", 2).await;
    sleep(120).await;
    assert_eq!(status(&server)["terminatingReplicas"], 0);
    assert_eq!(statuses() - before, 2);
}

/// Replaced pods that still run count as surplus under the new policy until they end.
#[tokio::test(start_paused = true)]
async fn a13_a_policy_change_is_observed_when_no_surplus_may_run() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    terminate_slowly(&server, 20);
    server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
    ready(&server, "web", 3).await;
    sleep(5).await;
    let former = status(&server)["observedGeneration"].clone();
    server.wait_for_termination(NS, "web");
    sleep(5).await;
    assert_eq!(status(&server)["observedGeneration"], former);
    assert!(condition(&server, "Ready").contains("/WaitingForTermination: "));
    at_rest(&server, "web", 3).await;
    server.patch(&PODSETS, NS, "web", json!({ "spec": { "podReplacementPolicy": "TerminationStarted" } }));
    sleep(1).await;
    server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
    server.wait_until(|s| creates(s) == 5, seconds(1)).await;
}

/// A pod lost its label while it was being deleted and did not count. Under the new policy it counts, but no watch shows it.
async fn unseen_when_the_policy_changes(rules: Rules) -> (ApiServer, Operator) {
    let (server, operator) = with_set(3, rules).await;
    terminate_slowly(&server, 20);
    let deleted = server.live_pods(NS, "web")[0].clone();
    server.delete_pod(NS, &deleted);
    server.strip_label(NS, &deleted);
    ready(&server, "web", 3).await;
    server.wait_for_termination(NS, "web");
    sleep(5).await;
    (server, operator)
}

#[tokio::test(start_paused = true)]
async fn a13_a_policy_change_finds_pods_that_no_watch_shows() {
    let (server, _operator) = unseen_when_the_policy_changes(Rules::default()).await;
    assert_eq!(status(&server)["observedGeneration"], 1);
    assert!(condition(&server, "Ready").contains("/WaitingForTermination: "));
    at_rest(&server, "web", 3).await;
}

/// The policy changes while a pod is being created under the former policy.
#[tokio::test(start_paused = true)]
async fn a13_a_policy_change_during_a_create_is_not_observed_too_early() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    terminate_slowly(&server, 60);
    let deleted = server.live_pods(NS, "web")[0].clone();
    server.fault(Requests::creates("pods").first(1), Fault::Delay(seconds(2)));
    server.delete_pod(NS, &deleted);
    server.strip_label(NS, &deleted);
    sleep(1).await;
    server.wait_for_termination(NS, "web");
    sleep(5).await;
    assert_eq!(status(&server)["observedGeneration"], 1);
}

#[tokio::test(start_paused = true)]
async fn a13_succeeds_without_each_of_its_rules() {
    let (server, operator, _) = one_is_deleted(Rules { counts_terminating: false, ..Rules::default() }).await;
    sleep(10).await;
    assert!(exceeded_bound(&server), "pods that are being deleted do not count");
    drop((server, operator));
    let forgetful = cached(CacheRules { may_count: |pod, _| !pod.is_terminating, ..CacheRules::default() });
    assert!(exceeded_bound(&label_lost(forgetful).await.0), "pods that no watch shows do not count");
    let blind = Rules { reads_first: false, ..Rules::default() };
    assert!(exceeded_bound(&unseen_when_the_policy_changes(blind).await.0), "nothing is read when the policy changes");
}
