//! Plans for sets with pods that cannot be deleted.

use super::*;

/// The delete of the pod with this index was rejected so many seconds ago.
fn rejected(state: &mut SetState, index: u32, ago: i64) {
    let uid = testing::pod(&nth(index)).0.uid;
    let at = testing::now() - SignedDuration::from_secs(ago);
    state.retry.rejected_deletes.note(uid, 20, "no".to_owned(), at, |wait| wait);
}

/// Pods whose deletion cost rises with the index, so that the lowest index is deleted first.
fn running(count: u32) -> Vec<PodBuilder> {
    (0..count).map(|index| testing::pod(&nth(index)).ready(9).delete_cost(i32::try_from(index).unwrap())).collect()
}

#[test]
fn other_pods_are_deleted_in_place_of_an_undeletable_one() {
    let mut state = SetState::default();
    assert_eq!(deleted(&planned(&view(2, running(4)), &state)), [nth(0), nth(1)]);
    for ago in [0, 1] {
        rejected(&mut state, 0, ago);
        let plan = planned(&view(2, running(4)), &state);
        assert_eq!(deleted(&plan), [nth(1), nth(2)]);
        assert_eq!((plan.rejected.len(), plan.hold), (1, Hold::Nothing));
    }
    assert_eq!(planned(&view(4, running(4)), &state).rejected.len(), 0, "it does not need to be deleted");
    state.fates.deletes.insert(testing::pod(&nth(0)).0.uid, testing::now() + QUARANTINE);
    assert_eq!(deleted(&planned(&view(2, running(4)), &state)), [nth(1)], "an earlier delete may still take effect");
}

#[test]
fn an_undeletable_pod_is_retried_after_the_others() {
    let mut state = SetState::default();
    rejected(&mut state, 0, 0);
    let plan = planned(&view(0, running(2)), &state);
    assert_eq!((deleted(&plan), plan.wake), (vec![&*nth(1)], Some(testing::now() + SignedDuration::from_secs(1))));

    let mut later = SetState::default();
    rejected(&mut later, 0, 1);
    assert_eq!(deleted(&planned(&view(0, running(2)), &later)), [nth(1), nth(0)]);
    let changed = |pods: Vec<PodBuilder>| pods.into_iter().map(|pod| pod.version(21)).collect();
    for ago in [9, 5, 2] {
        rejected(&mut later, 0, ago);
    }
    assert_eq!(deleted(&planned(&view(0, running(2)), &later)), [nth(1)]);
    let plan = planned(&view(0, changed(running(2))), &later);
    assert_eq!(deleted(&plan), [nth(1), nth(0)], "its protection may be gone");
}

#[test]
fn a_set_of_undeletable_pods_waits_and_can_still_grow() {
    let mut state = SetState::default();
    for index in 0..3 {
        rejected(&mut state, index, 0);
    }
    let plan = planned(&view(1, running(3)), &state);
    assert!(!plan.has_work());
    assert_eq!((plan.rejected.len(), plan.count.surplus()), (3, 2));
    assert_eq!(plan.wake, Some(testing::now() + SignedDuration::from_secs(1)));
    assert_eq!(created(&planned(&view(4, running(3)), &state)), [nth(3)], "a scale-up creates pods");
    state.retry.back_off(testing::now(), 1, false, |wait| wait);
    assert_eq!(planned(&view(1, running(3)), &state).rejected.len(), 3, "also after another failure");
}

#[test]
fn a_finished_pod_with_a_rejected_delete_does_not_block_others() {
    let finished = (0..6).map(|index| testing::pod(&nth(index)).failed(1000 - i64::from(index)));
    let view = view(1, finished.collect());
    let mut state = SetState::default();
    rejected(&mut state, 0, 0);
    let plan = planned(&view, &state);
    assert_eq!((deleted(&plan), plan.create.len()), (vec![&*nth(1), &*nth(2)], 1));
    assert_eq!(plan.rejected.len(), 1);
}

#[test]
fn one_or_two_undeletable_strays_do_not_block_creates() {
    let mut state = SetState::default();
    let stray = testing::pod(&nth(0)).0;
    state.fates.strays.insert(stray.uid.clone(), nth(0));
    assert_eq!(created(&planned(&view(2, vec![]), &state)).len(), 0);
    rejected(&mut state, 0, 0);
    let plan = planned(&view(2, vec![]), &state);
    assert_eq!((created(&plan).len(), deleted(&plan).len(), plan.rejected.len()), (2, 0, 1));
    for (index, creates) in [(1, 2), (2, 0)] {
        state.fates.strays.insert(testing::pod(&nth(index)).0.uid, nth(index));
        rejected(&mut state, index, 0);
        assert_eq!(created(&planned(&view(2, vec![]), &state)).len(), creates, "{index}");
    }
    // A stray with an owner reference counts, so another pod is deleted in its place.
    let mut state = SetState::default();
    state.fates.strays.insert(stray.uid, nth(0));
    assert_eq!(deleted(&planned(&view(2, running(3)), &state)), [nth(0)]);
    rejected(&mut state, 0, 0);
    assert_eq!(deleted(&planned(&view(2, running(3)), &state)), [nth(1)]);
    let mut later =
        SetState { fates: Fates { strays: state.fates.strays.clone(), ..Fates::default() }, ..SetState::default() };
    rejected(&mut later, 0, 1);
    assert_eq!(deleted(&planned(&view(2, running(3)), &later)), [nth(0)], "its delete is retried");
}
