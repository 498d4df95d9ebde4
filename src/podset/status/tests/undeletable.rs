//! The conditions for pods that cannot be deleted.

use super::*;

/// The conditions for these pods, of which some cannot be deleted.
fn conditions_with(pods: Vec<PodBuilder>, undeletable: &[&str], other: Plan) -> Vec<String> {
    let (view, mut state) = (view(pods), SetState::default());
    let mut plan = Plan { count: planned(&view, Hold::Nothing).count, ..other };
    for name in undeletable {
        let uid = testing::pod(name).0.uid;
        state.retry.rejected_deletes.note(uid.clone(), 20, "no".to_owned(), testing::now(), |wait| wait);
        plan.rejected.insert(uid);
    }
    let conditions = status(&view, &plan, &state, testing::now()).conditions;
    conditions.iter().map(|held| format!("{}={}/{}: {}", held.type_, held.status, held.reason, held.message)).collect()
}

#[test]
fn undeletable_pods_are_reported_and_do_not_make_the_set_unready() {
    let ready = |name| testing::pod(name).ready(9);
    let three = || vec![ready("a"), ready("b"), ready("c")];
    let conditions = conditions_with(three(), &["a"], Plan::default());
    let expected = [
        "Ready=True/AllPodsReady: 3 of 2 pods are ready; pods cannot be deleted: no",
        "Reconciling=True/Retrying: pods cannot be deleted; next try within about 90 s",
        "ReplicaFailure=True/FailedDelete: no",
    ];
    assert_eq!(conditions, expected);
    let finished = vec![ready("a"), ready("b"), testing::pod("c").failed(900)];
    assert_eq!(conditions_with(finished, &["c"], Plan::default())[2], expected[2]);
    let first = |pods, undeletable: &[&str], other| conditions_with(pods, undeletable, other).swap_remove(0);
    for (pods, what) in [
        (vec![ready("a"), testing::pod("b"), testing::pod("c")], "not enough are ready"),
        (vec![ready("a"), ready("b"), ready("c"), ready("d")], "another one must still be deleted"),
    ] {
        assert!(first(pods, &["a"], Plan::default()).starts_with("Ready=False/PodsNotReady"), "{what}");
    }
    let failing = Plan { hold: BACKOFF, ..Plan::default() };
    let conditions = conditions_with(three(), &["a"], failing);
    assert!(conditions[0].starts_with("Ready=False/PodsFailing"));
    assert_eq!(conditions[2], expected[2]);
}
