use super::*;
use crate::podset::{observe::QUARANTINE, testing};

#[test]
fn only_a_read_after_the_quarantine_settles_an_unknown_fate() {
    let mut fates = Fates::default();
    let start = testing::now();
    let end = start + QUARANTINE;
    fates.create_unanswered("a", end);
    fates.create_answered("a");
    fates.create_rejected("a", end + SignedDuration::from_secs(9));
    let expire = |fates: &mut Fates, at| fates.expire(at, false, |_| false);
    expire(&mut fates, start + SignedDuration::from_secs(59));
    assert!(fates.unknown.contains_key("a"));
    assert_eq!(fates.next_overdue(start), Some(end));
    expire(&mut fates, end);
    assert!(fates.unknown.contains_key("a"), "until it is read");
    assert_eq!(fates.overdue(end - SignedDuration::from_secs(1)).count(), 0);
    assert_eq!(fates.overdue(end).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_rejected_name_is_remembered_but_does_not_count() {
    let mut fates = Fates::default();
    fates.create_rejected("a", testing::now());
    assert!(fates.unknown.is_empty() && fates.has_failed("a"));
    fates.create_answered("a");
    assert!(!fates.has_failed("a"));
}

#[test]
fn waits_double_up_to_thirty_seconds_and_restart_with_a_new_spec() {
    let mut retry = Retry::default();
    let now = testing::now();
    let waits: Vec<i64> = (0..7)
        .map(|_| {
            retry.back_off(now, 1, false, |wait| wait);
            retry.waits(1, now).unwrap().until.duration_since(now).as_secs()
        })
        .collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(retry.waits(2, now), None, "a new spec is tried at once");
    retry.back_off(now, 2, false, |wait| wait);
    assert_eq!(retry.waits(2, now).unwrap().until.duration_since(now).as_secs(), 1);
}

#[test]
fn a_terminating_namespace_is_retried_a_few_times_and_then_rarely() {
    let (mut retry, start) = (Retry::default(), testing::now());
    let mut wait = |generation| {
        retry.back_off(start, generation, true, |wait| wait);
        retry.waits(generation, start).unwrap().until.duration_since(start).as_secs()
    };
    let waits: Vec<i64> = (0..7).map(|_| wait(1)).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 600, 600]);
    assert_eq!(wait(2), 1, "a new spec restarts the backoff");
}

#[test]
fn undeletable_strays_block_creates_only_from_three_on() {
    let mut state = SetState::default();
    for (uid, holds) in [("a", false), ("b", false), ("c", true)] {
        state.fates.strays.insert(uid.into(), uid.to_owned());
        assert!(state.strays_hold(), "{uid} may still be deleted");
        state.retry.rejected_deletes.note(uid.into(), 0, "no".to_owned(), testing::now(), |wait| wait);
        assert_eq!(state.strays_hold(), holds, "{uid}");
    }
}
