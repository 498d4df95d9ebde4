//! How long a write may be in transit. The promise holds up to the margin between the timeout of a write and the end of the lease. It cannot
//! hold beyond that, as the documentation says.

use super::*;

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

/// How long written bytes may stay unacknowledged.
const WITHIN: Duration = Duration::from_millis(1_990);

#[tokio::test(start_paused = true)]
async fn a_write_that_arrives_late_ends_before_the_lease_only_within_the_margin() {
    converged(&late_writes(WITHIN).await).await;
    assert!(had_two_writers(&late_writes(seconds(12)).await));
}
