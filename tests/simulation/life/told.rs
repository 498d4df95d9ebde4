//! Statuses and events of sets, and how many requests they cost. When a lost pod must not be replaced.

use super::*;

/// Creates, deletes, status patches and events since this mark.
fn sent_since(server: &ApiServer, mark: usize) -> [usize; 4] {
    let kinds = [
        Requests::creates("pods"),
        Requests::deletes("pods"),
        Requests::status_patches("podsets"),
        Requests::creates("events"),
    ];
    let sent = server.requests_since(mark);
    kinds.map(|kind| sent.iter().filter(|entry| kind.matches(&entry.request)).count())
}

#[tokio::test(start_paused = true)]
async fn a_scale_costs_its_pods_two_patches_and_one_event() {
    let (server, _operator) = server_and_leader();
    sleep(seconds(1)).await;
    let mark = server.mark();
    server.create_podset(NS, "web", 10);
    settled(&server, "web", 10).await;
    assert_silent(&server, 60).await;
    assert_eq!(sent_since(&server, mark), [10, 0, 2, 1], "up to 10");
    let mark = server.mark();
    server.scale(NS, "web", 4);
    settled(&server, "web", 4).await;
    assert_silent(&server, 60).await;
    let down = sent_since(&server, mark);
    assert_eq!(down, [0, 6, 2, 1], "down to 4, and another patch when no pod terminates any more");
    let mark = server.mark();
    server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
    sleep(seconds(2)).await;
    settled(&server, "web", 4).await;
    assert_silent(&server, 600).await;
    assert_eq!(sent_since(&server, mark), [1, 0, 3, 1], "one pod is replaced, and the former one terminates later");
}

#[tokio::test(start_paused = true)]
async fn lost_pods_are_reported_at_once_until_the_bucket_is_empty() {
    let (server, _operator) = with_set(10, Rules::default()).await;
    sleep(seconds(60)).await;
    server.set_pod_script(PodScript::never_ready());
    let patches = || server.count(&Requests::status_patches("podsets"));
    let is_reported = || server.podset(NS, "web")["status"]["podNames"] == json!(server.live_pods(NS, "web"));
    let before = patches();
    for lost in 1..=10 {
        server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
        sleep(Duration::from_millis(100)).await;
        assert_eq!((patches(), is_reported()), (before + lost, true));
    }
    for _ in 0..25 {
        server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(patches(), before + 10, "the bucket is empty");
    sleep(seconds(5)).await;
    assert_eq!((patches(), is_reported()), (before + 11, true));
    assert_silent(&server, 60).await;
}

#[tokio::test(start_paused = true)]
async fn pods_lost_while_creates_are_rejected_are_no_scale() {
    for (pods, lost, scaled_up, replaced) in
        [(10, 2, &["Scaled up from 0 to 10"][..], 1), (5, 1, &["Scaled up from 0 to 5", "Scaled up from 4 to 10"], 0)]
    {
        let (server, _operator) = with_set(pods, Rules::default()).await;
        let rejected = server.fault(Requests::creates("pods"), Fault::Refuse(Status::of_code(403)));
        for _ in 0..lost {
            server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
            sleep(seconds(10)).await;
        }
        server.scale(NS, "web", 10);
        rejected.remove();
        settled(&server, "web", 10).await;
        let notes: Vec<_> = server.events(NS, "ScaledUp").iter().map(|event| event["note"].clone()).collect();
        assert_eq!(notes, scaled_up);
        let sent = ["FailedCreate", "PodsReplaced", "ScaledDown"].map(|reason| server.events(NS, reason).len());
        assert_eq!(sent, [1, replaced, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_pods_are_reported_apart_from_a_later_scale() {
    let (server, _operator) = with_set(10, Rules::default()).await;
    // A pass takes so long that the set is scaled between two passes.
    server.settings(|settings| settings.answer_latency = seconds(3));
    for name in &server.live_pods(NS, "web")[..8] {
        server.kill_pod(NS, name);
    }
    sleep(seconds(8)).await;
    server.scale(NS, "web", 1);
    server.settings(|settings| settings.answer_latency = Duration::ZERO);
    settled(&server, "web", 1).await;
    sleep(seconds(1)).await;
    let notes = |reason| server.events(NS, reason).iter().map(|event| event["note"].clone()).collect::<Vec<_>>();
    assert_eq!(notes("PodsReplaced"), ["Created 3 pods to replace lost ones"]);
    assert_eq!(notes("ScaledDown"), ["Scaled down from 5 to 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_template_is_not_reported_as_a_scale() {
    for hands_over in [false, true] {
        let (server, mut operator) = with_set(2, Rules::default()).await;
        server.set_pod_script(PodScript::fails_after(seconds(1)));
        server.fail_pod(NS, &server.live_pods(NS, "web")[0]);
        sleep(seconds(30)).await;
        assert_eq!(ready_reason(&server, "web"), "PodsFailing");
        if hands_over {
            operator.end().await;
            operator = Operator::leader(&server, "b", Rules::default());
            // The new leader has not seen the set with all pods. It tells replacements by the annotation of the pods.
            sleep(seconds(60)).await;
        }
        server.set_pod_script(PodScript::default());
        let fixed = json!({ "spec": { "template": { "metadata": { "labels": { "fixed": "yes" } } } } });
        server.patch(&PODSETS, NS, "web", fixed);
        settled(&server, "web", 2).await;
        // An event may come after the status.
        sleep(seconds(1)).await;
        assert_eq!(server.events(NS, "ScaledUp").len(), 1, "from 0 to 2");
        drop(operator);
    }
}

/// A pod that becomes ready while a status is written is reported within the same 5 s.
#[tokio::test(start_paused = true)]
async fn pods_that_become_ready_one_by_one_cost_one_patch_per_five_seconds() {
    for latency in [1, 450].map(Duration::from_millis) {
        let (server, _operator) = server_and_leader();
        server.settings(|settings| {
            settings.request_latency = latency;
            settings.answer_latency = latency;
        });
        server.choose_pod_scripts(|pod| {
            let place = pod["metadata"]["name"].as_str().unwrap().bytes().map(u64::from).sum::<u64>() % 40;
            PodScript { ready_after: Some(seconds(place)), ..PodScript::default() }
        });
        server.create_podset(NS, "web", 10);
        for second in 1..60_usize {
            sleep(seconds(1)).await;
            let patches = server.count(&Requests::status_patches("podsets"));
            assert!(patches <= 2 + second / 5, "{patches} patches after {second} s");
            let reported = server.podset(NS, "web")["status"]["readyReplicas"].as_u64().unwrap_or(0);
            let now = server.with(|state| state.clock.elapsed());
            let is_quiet = server
                .with(|state| state.history.iter().all(|change| *change.kind != PODS || change.at + seconds(6) <= now));
            assert!(!is_quiet || reported == server.ready_pods(NS, "web").len() as u64, "wrong for more than 5 s");
        }
        settled(&server, "web", 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_ready_together_cost_one_status() {
    let (server, _operator) = server_and_leader();
    server.choose_pod_scripts(|pod| {
        let place = pod["metadata"]["name"].as_str().unwrap().bytes().map(u64::from).sum::<u64>() % 3;
        PodScript { ready_after: Some(seconds(8) + Duration::from_millis(900) * place as u32), ..PodScript::default() }
    });
    sleep(seconds(1)).await;
    let mark = server.mark();
    server.create_podset(NS, "web", 10);
    settled(&server, "web", 10).await;
    assert_silent(&server, 60).await;
    assert_eq!(sent_since(&server, mark), [10, 0, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_spec_change_is_observed_within_a_second() {
    let (server, _operator) = server_and_leader();
    server.set_pod_script(PodScript { ready_after: Some(seconds(60)), ..PodScript::default() });
    server.create_podset(NS, "web", 2);
    for (generation, replicas) in [(1, 2), (2, 4), (3, 5)] {
        server.scale(NS, "web", replicas);
        sleep(seconds(1)).await;
        let status = &server.podset(NS, "web")["status"];
        let reported = (status["observedGeneration"].as_i64(), status["availableReplicas"].as_i64());
        assert_eq!(reported, (Some(generation), Some(replicas)), "after a second");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_of_a_thousand_pods_costs_at_most_three_patches_and_two_events() {
    let (server, _operator) = server_and_leader();
    sleep(seconds(1)).await;
    let mark = server.mark();
    server.create_podset(NS, "web", 1_000);
    settled(&server, "web", 1_000).await;
    assert_silent(&server, 60).await;
    let [creates, deletes, patches, events] = sent_since(&server, mark);
    assert_eq!((creates, deletes), (1_000, 0));
    assert!(patches <= 3 && events <= 2, "{patches} patches, {events} events");
}

#[tokio::test(start_paused = true)]
async fn a_complete_large_set_is_reported_at_once() {
    let (server, _operator) = server_and_leader();
    server.settings(|settings| settings.request_latency = Duration::from_millis(200));
    server.set_pod_script(PodScript { ready_after: Some(seconds(60)), ..PodScript::default() });
    sleep(seconds(2)).await;
    server.create_podset(NS, "web", 3_000);
    let began = Instant::now();
    while server.pods(NS, "web").len() < 3_000 {
        sleep(Duration::from_millis(100)).await;
    }
    let took = began.elapsed();
    assert!(seconds(5) < took && took < seconds(9), "one status was written on the way, less than 5 s ago: {took:?}");
    sleep(seconds(1)).await;
    let status = &server.podset(NS, "web")["status"];
    assert_eq!(status["availableReplicas"], 3_000, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_not_written_to_a_recreated_set() {
    let (server, _operator) = with_set(3, Rules::default()).await;
    let pod = server.live_pods(NS, "web")[0].clone();
    // The former pods stay, and the operator does not see that their set is gone.
    server.settings(|settings| settings.collect_after = seconds(600));
    server.watches().on("podsets").hold();
    server.delete_podset(NS, "web");
    server.create_podset(NS, "web", 1);
    let mark = server.mark();
    server.set_ready(NS, &pod, false);
    sleep(seconds(20)).await;
    let sent = server.requests_since(mark);
    let statuses = sent.iter().filter(|entry| Requests::status_patches("podsets").matches(&entry.request));
    let took_effect: Vec<_> = statuses.map(|entry| entry.took_effect()).collect();
    assert_eq!(took_effect, [false], "the status of the former set is sent once and rejected");
    server.watches().on("podsets").release();
    settled(&server, "web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_always_rejected_is_retried_with_backoff() {
    for code in [404, 409] {
        let (server, _operator) = server_and_leader();
        for kind in ["podsets", "mycustomresources"] {
            server.fault(Requests::status_patches(kind), Fault::Refuse(Status::of_code(code)));
        }
        server.create_podset(NS, "web", 3);
        server.create_mycustomresource(NS, "lonely", "friend");
        sleep(seconds(120)).await;
        for kind in ["podsets", "mycustomresources"] {
            let patches = server.count(&Requests::status_patches(kind));
            assert!((4..=8).contains(&patches), "5 s, 10 s, 20 s, 30 s, …: {patches} of {kind}, {code}");
        }
    }
}

/// The watch of the pods shows the deletions before the watch of the sets shows the reason. The set is deleted after the lost pod was
/// replaced, or while the create is in flight.
#[tokio::test(start_paused = true)]
async fn a_set_deleted_unseen_after_a_pod_loss_gets_no_new_pods() {
    for fault in [Fault::Delay(Duration::ZERO), Fault::HoldAnswer] {
        let case = format!("{fault:?}");
        let (server, _operator) = with_set(5, Rules::default()).await;
        sleep(seconds(60)).await;
        server.set_pod_script(PodScript::never_ready());
        let rejected = server.fault(Requests::creates("pods").first(1), Fault::Refuse(Status::of_code(403)));
        let create = server.fault(Requests::creates("pods"), fault);
        server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
        create.wait_for_hits(1).await;
        server.wait_until(|s| s.live_pods(NS, "web").len() == 5, seconds(3)).await;
        rejected.remove();
        // The stored status says that one pod is missing, and the watch of the sets does not show the deletion yet.
        assert_eq!(server.podset(NS, "web")["status"]["availableReplicas"], 4);
        server.watches().on("podsets").delay(seconds(10));
        server.settings(|settings| settings.collect_after = seconds(60));
        let pods = server.live_pods(NS, "web");
        server.delete_podset(NS, "web");
        server.kill_pod(NS, &pods[0]);
        let creates = server.count(&Requests::creates("pods"));
        // The response arrives before the new pod is garbage-collected.
        sleep(Duration::from_millis(20)).await;
        create.release();
        sleep(seconds(5)).await;
        assert_eq!(server.count(&Requests::creates("pods")), creates, "{case}");
    }
}

/// A pod is lost while nobody leads. Another one terminates across the change of the leader.
#[tokio::test(start_paused = true)]
async fn pods_lost_during_a_leader_change_are_reported_as_replaced() {
    let (server, operator) = with_set(5, Rules::default()).await;
    operator.end().await;
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    let operator = Operator::leader(&server, "b", Rules::default());
    sleep(seconds(2)).await;
    settled(&server, "web", 5).await;
    server.wait_for_termination(NS, "web");
    sleep(seconds(5)).await;
    server.set_pod_script(PodScript::gone_after(seconds(20)));
    server.delete_pod(NS, &server.live_pods(NS, "web")[0]);
    sleep(seconds(5)).await;
    operator.end().await;
    let _operator = Operator::leader(&server, "c", Rules::default());
    sleep(seconds(40)).await;
    settled(&server, "web", 5).await;
    let events = ["ScaledUp", "PodsReplaced"].map(|reason| server.events(NS, reason).len());
    assert_eq!(events, [1, 2]);
}

/// While pods of another set are created, the status after a replacement waits up to four seconds. A later change of readiness does not wait.
#[tokio::test(start_paused = true)]
async fn pods_of_other_sets_come_before_a_report() {
    let (server, _operator) = with_set(2, Rules::default()).await;
    let pods = server.live_pods(NS, "web");
    let until = async |reason: &str| {
        let began = Instant::now();
        server.wait_until(|s| ready_reason(s, "web") == reason, seconds(5)).await;
        began.elapsed()
    };
    let answer = server.fault(Requests::creates("pods").first(1), Fault::HoldAnswer);
    server.create_podset(NS, "other", 1);
    answer.wait_for_hits(1).await;
    server.set_pod_script(PodScript::never_ready());
    server.kill_pod(NS, &pods[0]);
    let of_a_lost_pod = until("PodsNotReady").await;
    assert!((seconds(4)..Duration::from_millis(4_300)).contains(&of_a_lost_pod), "{of_a_lost_pod:?}");
    let replacement = server.live_pods(NS, "web").into_iter().find(|pod| *pod != pods[1]).unwrap();
    server.set_ready(NS, &replacement, true);
    let of_readiness = until("AllPodsReady").await;
    assert!(of_readiness < Duration::from_millis(300), "{of_readiness:?}");
    answer.release();
    sleep(seconds(2)).await;
    server.kill_pod(NS, &pods[1]);
    let of_the_only_busy_set = until("PodsNotReady").await;
    assert!(of_the_only_busy_set < Duration::from_millis(300), "{of_the_only_busy_set:?}");
}

/// While pods of another set are created, the event about a replacement waits as the status does: until those pods are created, or the
/// operator ends.
#[tokio::test(start_paused = true)]
async fn an_event_waits_with_its_status() {
    for is_shutdown in [false, true] {
        let (server, operator) = with_set(2, Rules::default()).await;
        let answer = server.fault(Requests::creates("pods").first(1), Fault::HoldAnswer);
        server.create_podset(NS, "other", 1);
        answer.wait_for_hits(1).await;
        let version = server.podset(NS, "web")["metadata"]["resourceVersion"].clone();
        let has_status = |s: &ApiServer| s.podset(NS, "web")["metadata"]["resourceVersion"] != version;
        server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
        sleep(seconds(2)).await;
        let reports = |s: &ApiServer| (s.events(NS, "PodsReplaced").len(), has_status(s));
        assert_eq!((server.live_pods(NS, "web").len(), reports(&server)), (2, (0, false)));
        answer.release();
        if is_shutdown {
            operator.end().await;
            assert_eq!(reports(&server).0, 1);
        } else {
            server.wait_until(|s| reports(s) == (1, true), Duration::from_millis(100)).await;
        }
    }
}

/// While pods of another set are created, a set is scaled up, and then loses a pod.
#[tokio::test(start_paused = true)]
async fn work_after_unreported_work_gets_its_own_event() {
    let (server, _operator) = server_and_leader();
    let answer = server.fault(Requests::creates("pods").first(1), Fault::HoldAnswer);
    server.create_podset(NS, "other", 1);
    answer.wait_for_hits(1).await;
    server.create_podset(NS, "web", 2);
    let has_pods = |s: &ApiServer| s.live_pods(NS, "web").len() == 2;
    server.wait_until(has_pods, seconds(1)).await;
    sleep(seconds(1)).await;
    server.kill_pod(NS, &server.live_pods(NS, "web")[0]);
    sleep(seconds(1)).await;
    let reports = || ["ScaledUp", "PodsReplaced"].map(|reason| server.events(NS, reason).len());
    assert_eq!((has_pods(&server), reports()), (true, [0, 0]));
    answer.release();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(reports(), [2, 1], "one ScaledUp for each set");
}
