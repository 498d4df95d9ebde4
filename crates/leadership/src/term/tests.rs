use std::time::Duration;

use super::*;
use crate::env::testing::virtual_env;

fn timing(lease: u64, deadline: u64, period: u64) -> Timing {
    let [lease, deadline, period] = [lease, deadline, period].map(Duration::from_secs);
    Timing::new(lease, deadline, period).unwrap()
}

fn timeout(leadership: &Leadership) -> Option<Duration> {
    leadership.begin_write().map(|write| write.timeout())
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_ends_before_its_lease() {
    let env = virtual_env();
    let mut leader_state = LeaderState::vacant(env.clone());
    let leadership = leader_state.leadership();
    assert_eq!(timeout(&leadership), None, "no term has begun yet");

    leader_state.begin(Some(Ends::after(env.now(), &timing(15, 10, 2))));
    // 15 s of lease, 2 s in the kernel, 1 s to leave; and never more than 10 s.
    assert_eq!(timeout(&leadership), Some(Duration::from_secs(10)));
    pass(5).await;
    assert_eq!(timeout(&leadership), Some(Duration::from_secs(7)));
    let write = leadership.begin_write().unwrap();
    pass(1).await;
    assert!(write.permit().is_valid(), "it has a second to leave");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!write.permit().is_valid(), "now it would outlive the lease");
    leader_state.prolong(Ends::after(env.now(), &timing(15, 10, 2)));
    assert!(write.permit().is_valid(), "the lease was renewed");
    pass(10).await;
    assert_eq!(timeout(&leadership), None, "the gate closes at the deadline");
    assert!(!write.permit().is_valid());
}

#[test]
fn writes_may_start_until_the_deadline_and_never_outlive_the_lease() {
    let at = |seconds: f64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs_f64(seconds);
    for (lease, deadline, period) in [(15, 10, 2), (3, 2, 1), (137, 107, 26), (60, 3, 2), (1000, 999, 5)] {
        let timing = timing(lease, deadline, period);
        let ends = Ends::after(Timestamp::UNIX_EPOCH, &timing);
        assert_eq!(ends.gate, at(deadline as f64));
        assert!(ends.slack().is_positive() && ends.writes - ends.slack() > ends.gate, "{timing:?}");
        // Sent at the last moment, retried by the kernel for as long as possible, and executed just before its timeout.
        let landed = ends.writes + timing.unacknowledged();
        assert!(landed <= at(lease as f64), "{timing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_over_stays_over() {
    let env = virtual_env();
    let mut leader_state = LeaderState::vacant(env.clone());
    let term = leader_state.begin(Some(Ends::after(env.now(), &timing(15, 10, 2))));
    let write = leader_state.leadership().begin_write().unwrap();
    pass(10).await;
    assert!(
        !leader_state.prolong(Ends::after(env.now(), &timing(15, 10, 2))),
        "a late renewal does not revive the term"
    );
    assert_eq!(leader_state.leadership().term(), None);
    let next = leader_state.begin(Some(Ends::after(env.now(), &timing(15, 10, 2))));
    assert!(next.number > term.number);
    assert!(!write.permit().is_valid(), "a write of one term does not leave in another");
}

#[tokio::test(start_paused = true)]
async fn waiting_tasks_see_the_beginning_and_the_end_of_a_term() {
    let mut leader_state = LeaderState::vacant(virtual_env());
    let leadership = leader_state.leadership();
    let mut waiting = tokio_test::task::spawn(async { leadership.clone().elected().await.number });
    tokio_test::assert_pending!(waiting.poll());
    let term = leader_state.begin(None);
    assert!(waiting.is_woken());
    assert_eq!(tokio_test::assert_ready!(waiting.poll()), 1);

    let mut ending = tokio_test::task::spawn(async { leadership.clone().lost(term).await });
    tokio_test::assert_pending!(ending.poll());
    leader_state.resign();
    tokio_test::assert_ready!(ending.poll());
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_at_its_deadline_by_itself() {
    let env = virtual_env();
    let mut leader_state = LeaderState::vacant(env.clone());
    let term = leader_state.begin(Some(Ends::after(env.now(), &timing(15, 10, 2))));
    leader_state.leadership().lost(term).await;
    assert_eq!(env.now().duration_since(Timestamp::UNIX_EPOCH).as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_write_may_take_effect_for_a_minute() {
    let mut leader_state = LeaderState::vacant(virtual_env());
    leader_state.begin(None);
    let leadership = leader_state.leadership();
    let write = leadership.begin_write().unwrap();
    assert!(!leader_state.is_settled(), "a write is in flight");
    write.answered();
    assert!(leader_state.is_settled());
    let write = leadership.begin_write().unwrap();
    assert!(write.permit().try_leave());
    drop(write);
    assert!(!leader_state.is_settled(), "a write got no response");
    pass(59).await;
    assert!(!leader_state.is_settled());
    pass(1).await;
    assert!(leader_state.is_settled());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_left_cannot_take_effect() {
    let mut leader_state = LeaderState::vacant(virtual_env());
    leader_state.begin(None);
    let leadership = leader_state.leadership();
    let write = leadership.begin_write().unwrap();
    let permit = write.permit();
    assert!(!leader_state.is_settled(), "it may still leave");
    assert!(!write.has_left());
    assert!(!permit.try_leave(), "it was given up, so none of its bytes leaves any more");
    drop(write);
    assert!(leader_state.is_settled());
    let permit = leadership.begin_write().unwrap().permit();
    assert!(!permit.try_leave(), "a write that is dropped is given up as well");
    let write = leadership.begin_write().unwrap();
    assert!(write.permit().try_leave());
    assert!(write.has_left() && write.permit().try_leave(), "once its first byte has left, more bytes may leave");
}

#[tokio::test(start_paused = true)]
async fn without_election_a_write_has_ten_seconds() {
    assert_eq!(timeout(&Leadership::always(virtual_env())), Some(Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn the_stream_yields_each_election() {
    use futures::StreamExt;

    let mut leader_state = LeaderState::vacant(virtual_env());
    let mut elections = Box::pin(leader_state.leadership().elections());
    let mut next = tokio_test::task::spawn(elections.next());
    tokio_test::assert_pending!(next.poll());
    leader_state.begin(None);
    tokio_test::assert_ready!(next.poll());
    drop(next);
    let mut next = tokio_test::task::spawn(elections.next());
    tokio_test::assert_pending!(next.poll());
    leader_state.resign();
    leader_state.begin(None);
    tokio_test::assert_ready!(next.poll());
}
