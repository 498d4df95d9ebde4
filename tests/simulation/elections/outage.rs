//! Outages of the API server, and writes that are long in transit. Requests that never left do not keep the lease.

use super::*;

/// The API server is away for this long, and pods are lost during that time.
async fn outage(server: &ApiServer, time: Duration) {
    server.become_unreachable();
    kill_pods(server, time).await;
    server.become_reachable();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_left_does_not_keep_the_lease() {
    let server = cluster();
    // A create is rejected, and retried during the outage.
    server.set_webhook(|_| Err(Status::of_code(403)));
    let a = leader(&server, "a").await;
    let b = Replica::start(&server, "b", Model::default());
    let creates = Requests::creates("pods");
    server.wait_until(|server| server.count(&creates) == 1, seconds(1)).await;
    // No request is in flight when the outage begins.
    sleep(Duration::from_millis(500)).await;
    outage(&server, seconds(4)).await;
    assert_eq!(server.count(&creates), 1, "no other create has arrived");
    server.lift_webhook();
    converged(&server).await;
    let errors = r#"controller_runtime_reconcile_total{controller="podset",result="error"}"#;
    assert!(a.shows(errors).is_some_and(|errors| (3.0..10.0).contains(&errors)), "{:?}", a.shows(errors));
    a.end().await.expect("an orderly end");
    leads(&b, seconds(1)).await;
    converged(&server).await;
}

/// The process is stopped during an outage that is longer than the lease.
#[tokio::test(start_paused = true)]
async fn a_stop_during_an_outage_longer_than_the_lease() {
    for (stop_after, is_orderly) in [(2, true), (7, true), (12, false)] {
        let (server, a, b) = leader_and_standby().await;
        let ending = async {
            sleep(seconds(stop_after)).await;
            a.end().await
        };
        let (end, ()) = tokio::join!(ending, outage(&server, seconds(40)));
        match end {
            Ok(()) => assert!(is_orderly, "stopped after {stop_after} s"),
            Err(Failure::Lost(Lost::Deadline(10))) => assert!(!is_orderly, "stopped after {stop_after} s"),
            other => panic!("stopped after {stop_after} s: {other:?}"),
        }
        leads(&b, seconds(5)).await;
        converged(&server).await;
        b.end().await.expect("an orderly end");
    }
}

/// The leader cannot reach its Lease. Just before its term ends, its writes are delayed in transit by this time.
async fn late_writes(time: Duration) -> ApiServer {
    let server = cluster();
    let _a = leader(&server, "a").await;
    let _b = Replica::start(&server, "b", Model::default());
    sleep(seconds(5)).await;
    server.watches().of("a").on("leases").stall();
    server.fault(Requests::all().of("leases").from("a"), Fault::CutBefore);
    kill_pods(&server, seconds(7)).await;
    server.fault(Requests::mutating().of("pods").from("a"), Fault::ArriveLate(time));
    kill_pods(&server, seconds(30)).await;
    server.heal();
    server
}

/// The promise holds up to the margin between the timeout of a write and the end of the lease, and not beyond, as the documentation says.
#[tokio::test(start_paused = true)]
async fn a_write_that_arrives_late_ends_before_the_lease_only_within_the_margin() {
    // Written bytes may stay unacknowledged for this long.
    converged(&late_writes(Duration::from_millis(1_990)).await).await;
    let violations = late_writes(seconds(12)).await.violations();
    assert!(violations.iter().any(|violation| violation.starts_with(ONE_WRITER)), "{violations:?}");
}
