//! How leadership passes from one replica to the next, and what probes and metrics show of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_hands_over_at_once() {
    let (server, a, b) = leader_and_standby().await;
    let releases = Requests::mutating().of("leases").when(|request| request.body["spec"]["holderIdentity"] == "");
    // A renewal took effect in between.
    let conflict = server.fault(releases.first(1), Fault::Refuse(Status::of_code(409)));
    let handing_over = async {
        sleep(seconds(1)).await;
        a.end().await.expect("an orderly end");
        assert_eq!(conflict.hits(), 1);
        leads(&b, Duration::from_millis(500)).await;
    };
    tokio::join!(kill_pods(&server, seconds(5)), handing_over);
    converged(&server).await;
}

/// Only the leader exports these metrics, so a sum over all replicas counts each set once. A new leader knows how long a set has waited.
#[tokio::test(start_paused = true)]
async fn only_the_leader_exports_metrics_of_the_sets() {
    let (server, a, b) = leader_and_standby().await;
    let ready = r#"podset_sets{reason="AllPodsReady"}"#;
    // The status is written after the pods.
    sleep(seconds(6)).await;
    assert_eq!((a.shows(ready), b.shows(ready)), (Some(1.0), None));
    assert_eq!(a.shows("podset_longest_unconverged_seconds"), Some(0.0));
    server.set_pod_script(PodScript::never_ready());
    server.create_podset(NS, "waiting", 2);
    sleep(seconds(100)).await;
    a.end().await.expect("an orderly end");
    leads(&b, seconds(1)).await;
    sleep(seconds(100)).await;
    assert_eq!(b.shows(r#"podset_sets{reason="PodsNotReady"}"#), Some(1.0));
    assert_eq!((b.shows("podset_pods_desired"), b.shows("podset_pods_ready")), (Some(12.0), Some(10.0)));
    let waited = b.shows("podset_longest_unconverged_seconds").expect("a value");
    assert!((195.0..205.0).contains(&waited), "{waited}");
    let leads = r#"leader_election_master_status{name="podset-operator"}"#;
    assert_eq!((b.shows(leads), b.shows("podset_sets_refused")), (Some(1.0), Some(0.0)));
}

#[tokio::test(start_paused = true)]
async fn leader_and_partitioned_standby_are_live_and_ready() {
    let (server, a, b) = leader_and_standby().await;
    server.partition("b");
    let assert_healthy = async |minutes: u64| {
        for _ in 0..12 * minutes {
            sleep(seconds(5)).await;
            for replica in [&a, &b] {
                let live = replica.context.health.liveness();
                for check in ["leader-election", "podset-worker", "mycustomresource-worker"] {
                    assert!(live.contains_key(check), "{check} of {}: {live:?}", replica.name);
                }
                assert_ok(&live);
                assert_ok(&replica.context.health.readiness());
            }
        }
    };
    assert_healthy(10).await;
    server.heal();
    assert_healthy(10).await;
}

#[tokio::test(start_paused = true)]
async fn an_unready_replica_names_what_it_waits_for() {
    let server = ApiServer::new(1);
    server.settings(|settings| {
        settings.unserved.insert("podsets");
    });
    let mut operator = Operator::standby(&server, "a", Rules::default());
    sleep(seconds(60)).await;
    let readiness = operator.context.health.readiness();
    let why = readiness["podset-caches"].clone().unwrap_err();
    assert!(why.contains("podsets.app.example.com") && why.contains("install its CRD"), "{why}");
    assert_eq!(readiness["mycustomresource-caches"], Ok(()), "its own CRD is there");

    operator.lead();
    sleep(seconds(60)).await;
    server.settings(|settings| settings.unserved.clear());
    sleep(seconds(5)).await;
    assert_eq!(operator.context.health.readiness()["podset-caches"], Ok(()));
    server.create_podset(NS, "web", 2);
    ready(&server, "web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn flags_take_effect() {
    let server = cluster();
    let flags = &["--default-image=example.com/another", "--leader-elect-resource-name=another"];
    let replica = Replica::start(&server, "a", Model { flags, ..Model::default() });
    leads(&replica, seconds(1)).await;
    converged(&server).await;
    for pod in server.pods(NS, "web") {
        assert_eq!(pod["spec"]["containers"][0]["image"], "example.com/another");
    }
    assert_eq!(replica.shows(r#"leader_election_master_status{name="another"}"#), Some(1.0));
    assert!(server.get(&LEASES, LEASE.0, LEASE.1).is_null());
    replica.end().await.expect("an orderly end");
}

/// The API server does not serve Leases yet: the 404 does not name the Lease. Or no request arrives.
#[tokio::test(start_paused = true)]
async fn a_few_seconds_of_lease_errors_do_not_end_a_term() {
    let leases = || Requests::all().of("leases");
    let unserved = Fault::Refuse(Status::of_code(404));
    for (requests, fault) in [(leases().verb(Verb::Get), unserved), (leases().from("a"), Fault::CutBefore)] {
        let (server, a, b) = leader_and_standby().await;
        let failing = server.fault(requests, fault);
        sleep(seconds(6)).await;
        assert!(failing.hits() > 0);
        failing.remove();
        sleep(seconds(60)).await;
        assert!(a.leads() && !b.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_with_a_stalled_watch_takes_over() {
    let (server, a, b) = leader_and_standby().await;
    server.watches().of("b").on("leases").stall();
    sleep(seconds(30)).await;
    assert!(a.leads() && !b.leads());
    a.kill();
    leads(&b, seconds(15 + 2 * 2 + 1)).await;
    kill_pods(&server, seconds(2)).await;
    converged(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_released_during_an_attempt_is_taken_at_once() {
    let server = cluster();
    let a = Replica::start(&server, "a", Model::default());
    converged(&server).await;
    let held = server.fault(Requests::all().of("leases").from("b").verb(Verb::Get), Fault::HoldAnswer);
    // Without its watch, the candidate must read the Lease.
    let watch = server.watches().of("b").on("leases");
    watch.hold();
    let b = Replica::start(&server, "b", Model::default());
    held.wait_for_hits(1).await;
    watch.release();
    a.end().await.expect("an orderly end");
    sleep(Duration::from_millis(100)).await;
    held.release();
    leads(&b, Duration::from_millis(900)).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_exit_when_the_version_of_the_lease_goes_back() {
    let (server, a, b) = leader_and_standby().await;
    let old = server.get(&LEASES, LEASE.0, LEASE.1);
    sleep(seconds(5)).await;
    // As when a backup of etcd is restored: watches show no event.
    server.with(|state| state.objects.insert((LEASES.plural, LEASE.0.to_owned(), LEASE.1.to_owned()), old.into()));
    sleep(seconds(8)).await;
    for replica in [a, b] {
        assert!(replica.has_ended(), "{}", replica.name);
        assert!(matches!(replica.ended().await, Err(Failure::Lost(Lost::WentBack(_)))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_recovered_from_failed_reads_takes_a_released_lease_at_once() {
    for fault in [Fault::CutBefore, Fault::Refuse(Status::of_code(403)), Fault::Delay(seconds(6))] {
        let (server, a, b) = leader_and_standby().await;
        let watch = server.watches().of("b").on("leases");
        // After some time without events, the standby reads the Lease.
        watch.hold();
        let cut = server.fault(Requests::all().of("leases").from("b").verb(Verb::Get), fault);
        cut.wait_for_hits(2).await;
        cut.remove();
        watch.release();
        sleep(seconds(10)).await;
        a.end().await.expect("an orderly end");
        leads(&b, Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_retried_before_the_deadline() {
    for (timing, latency) in [((3, 2, 1), 50), ((8, 7, 5), 50), ((15, 10, 8), 50), ((60, 40, 5), 3_500)] {
        let server = cluster();
        server.settings(|settings| settings.request_latency = Duration::from_millis(latency));
        let a = Replica::start(&server, "a", Model { timing, ..Model::default() });
        leads(&a, seconds(60)).await;
        for _ in 0..5 {
            server.fault(Requests::all().of("leases").first(1), Fault::CutBefore).wait_for_hits(1).await;
            sleep(seconds(20)).await;
        }
        assert!(a.leads(), "{timing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_ends_at_once_and_a_leader_does_not_wait_for_a_renewal() {
    let (server, a, b) = leader_and_standby().await;
    let before = Instant::now();
    b.end().await.expect("an orderly end");
    assert!(before.elapsed() < seconds(1));
    assert!(a.leads());
    let held = server.fault(Requests::all().of("leases").from("a").verb(Verb::Get), Fault::HoldAnswer);
    held.wait_for_hits(1).await;
    let before = Instant::now();
    a.end().await.expect("an orderly end");
    assert!(before.elapsed() < seconds(6), "{:?}", before.elapsed());
}
