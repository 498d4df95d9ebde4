//! Reports about failing pods, and about pods that become unready and ready again.

use super::*;

#[tokio::test(start_paused = true)]
async fn pods_that_keep_failing_are_replaced_with_backoff_and_named_in_conditions_and_in_one_event() {
    let (server, operator) = server_and_leader();
    server.set_pod_script(PodScript::fails_after(seconds(1)));
    server.create_podset(NS, "web", 2);
    // The waits are 0, 1, 2, 4, 8, 16, 32 and 64 s. This is during the last one.
    sleep(seconds(100)).await;
    let reconciling = condition(&server, "Reconciling");
    let why = reconciling.strip_prefix("True/BackingOff: ").unwrap();
    let [facts, next_try] = why.split("; ").collect::<Vec<_>>()[..] else { panic!("{why}") };
    assert!(facts.starts_with("2 pods failed, most recently web-pod") && facts.ends_with("with exit code 1"), "{why}");
    assert_eq!(next_try, "next try 64 s later");
    assert_eq!(condition(&server, "Ready"), format!("False/PodsFailing: 0 of 2 pods are ready: {why}"));
    let patches = server.count(&Requests::status_patches("podsets"));
    sleep(seconds(30)).await;
    assert_eq!(server.count(&Requests::status_patches("podsets")), patches, "the message does not count down");

    let events = server.events(NS, "PodsFailing");
    let [event] = &events[..] else { panic!("{events:?}") };
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("most recently web-pod") && note.ends_with("with exit code 1; next try 1 s later"), "{note}");
    assert_eq!(event["type"], "Warning");

    sleep(seconds(170)).await;
    let creates = server.count(&Requests::creates("pods"));
    assert!((14..=22).contains(&creates), "two pods after each wait of 0, 1, 2, 4, … s: {creates}");
    assert!(!server.events(NS, "PodsReplaced").is_empty());
    let kept = server.pods(NS, "web");
    assert_eq!(kept.len(), 3, "the newest three");
    for pod in kept {
        let replacements = pod["metadata"]["annotations"]["app.example.com/replacements"].as_str().unwrap();
        assert!(replacements.parse::<u32>().unwrap() >= 5, "{replacements}");
    }

    // The next leader continues the backoff and does not repeat the event. A new spec is tried at once.
    operator.end().await;
    let _operator = Operator::leader(&server, "b", Rules::default());
    sleep(seconds(5)).await;
    assert_eq!(server.count(&Requests::creates("pods").from("b")), 0);
    server.set_pod_script(PodScript::default());
    let fixed = json!({ "spec": { "template": { "metadata": { "labels": { "fixed": "yes" } } } } });
    server.patch(&PODSETS, NS, "web", fixed);
    sleep(seconds(2)).await;
    assert_eq!(server.ready_pods(NS, "web").len(), 2);
    settled(&server, "web", 2).await;

    // After the pods have recovered, other failures cause another event.
    sleep(seconds(1500)).await;
    assert_eq!(server.events(NS, "PodsFailing").len(), 1);
    server.set_pod_script(PodScript::fails_after(seconds(1)));
    server.fail_pod(NS, &server.live_pods(NS, "web")[0]);
    sleep(seconds(20)).await;
    assert_eq!(server.events(NS, "PodsFailing").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_ready_is_reported_at_once_even_by_the_next_leader() {
    let (server, operator) = server_and_leader();
    server.set_pod_script(PodScript::never_ready());
    server.create_podset(NS, "web", 3);
    sleep(seconds(30)).await;
    operator.end().await;
    let mut operator = Operator::standby(&server, "b", Rules::default());
    sleep(seconds(5)).await;
    for pod in server.live_pods(NS, "web") {
        server.set_ready(NS, &pod, true);
    }
    assert_eq!(ready_reason(&server, "web"), "PodsNotReady");
    operator.lead();
    server.wait_until(|s| ready_reason(s, "web") == "AllPodsReady", seconds(1)).await;

    let pod = server.live_pods(NS, "web").remove(0);
    for (ready, reason) in [(false, "PodsNotReady"), (true, "AllPodsReady")].repeat(4) {
        sleep(seconds(2)).await;
        server.set_ready(NS, &pod, ready);
        server.wait_until(|s| ready_reason(s, "web") == reason, seconds(1)).await;
    }
}
