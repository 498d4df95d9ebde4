//! How leadership passes to another replica, and how many requests it costs.

use leadership::Lost;

use super::*;

async fn sound_two(store: Store) -> (Server, Replica, Replica) {
    let (server, _, a, b) = two(sound(store), sound(store)).await;
    (server, a, b)
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_hands_over_at_once() {
    for store in stores() {
        let (server, a, b) = sound_two(store).await;
        let began = Instant::now();
        // The last creates are answered.
        sleep(Duration::from_millis(95)).await;
        a.end().await.expect("an orderly end");
        b.leads_within(seconds(1)).await;
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        sleep(seconds(1)).await;
        assert!(server.creates().iter().any(|create| create.by == "b"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_when_the_lease_of_a_dead_leader_expires() {
    for store in stores() {
        let (_server, a, b) = sound_two(store).await;
        a.kill();
        sleep(seconds(12)).await;
        assert!(!b.leads(), "the lease may still be held");
        b.leads_within(seconds(4)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_leader_stops_at_its_deadline() {
    for store in stores() {
        let (server, a, b) = sound_two(store).await;
        cut(&server, "a");
        assert_eq!(a.ended().await, Err(Lost::Deadline(10)));
        assert!(!b.leads());
        b.leads_within(seconds(8)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_sends_two_requests_in_each_period_and_a_standby_none() {
    for store in stores() {
        let (server, _a, _b) = sound_two(store).await;
        server.requests();
        sleep(seconds(60)).await;
        let requests = server.requests();
        let count = |request: &str| requests.iter().filter(|sent| *sent == request).count();
        assert_eq!((count("GET a"), count("PATCH a"), requests.len()), (30, 30, 60), "{requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_while_the_api_server_is_away_for_a_second_still_releases_its_lease() {
    for store in stores() {
        let (server, a, b) = sound_two(store).await;
        // The last creates are answered.
        sleep(Duration::from_millis(95)).await;
        server.set("a", |faults| faults.lease_cut = true);
        let end = tokio::spawn(a.end());
        sleep(seconds(1)).await;
        server.set("a", |faults| faults.lease_cut = false);
        end.await.unwrap().expect("an orderly end");
        b.leads_within(seconds(1)).await;
    }
}
