//! Plans for tables of cases, and for random sets of pods in all phases and fates.

use std::{collections::BTreeSet, sync::Arc};

use jiff::SignedDuration;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::podset::{
    names::pod_name,
    observe::{Phase, QUARANTINE},
    set_state::{Fates, Retry},
    testing::{self, PodBuilder},
};

mod rejected_deletes;
mod rollout;

/// Known and resting names, set by a test.
#[derive(Debug, Default)]
struct Known {
    known: BTreeSet<String>,
    resting: BTreeSet<String>,
}

/// The name of the pod of this index in the set of the fixtures.
fn nth(index: u32) -> String {
    pod_name("web", "set-uid", index)
}

fn view(wanted: usize, pods: Vec<PodBuilder>) -> View {
    let pods = pods.into_iter().map(PodBuilder::seen).collect();
    View { set: Arc::new(testing::set(wanted)), pods, is_unread: false }
}

fn known(view: &View) -> Known {
    Known { known: view.pods.iter().map(|seen| seen.pod.key.name.to_string()).collect(), ..Known::default() }
}

fn planned(view: &View, state: &SetState) -> Plan {
    let mut state = state.clone();
    state.retry.finishes.update(view, testing::now());
    plan_with(view, &state, &known(view))
}

fn plan_with(view: &View, state: &SetState, names: &Known) -> Plan {
    let (is_known, is_resting) = (|name: &str| names.known.contains(name), |name: &str| names.resting.contains(name));
    plan(&Input {
        view,
        state,
        names: Names { nth: &nth, is_known: &is_known, is_resting: &is_resting },
        counts_terminating: true,
        rollout: RolloutRules::default(),
        now: testing::now(),
    })
}

fn created(plan: &Plan) -> Vec<&str> {
    plan.create.iter().map(|creation| creation.name.as_str()).collect()
}

fn deleted(plan: &Plan) -> Vec<&str> {
    plan.delete.iter().map(|deletion| &*deletion.key.name).collect()
}

#[test]
fn a_new_set_takes_its_first_names() {
    let plan = planned(&view(3, vec![]), &SetState::default());
    assert_eq!(created(&plan), [nth(0), nth(1), nth(2)]);
    assert_eq!((plan.hold, plan.wake), (Hold::Nothing, None));
}

#[test]
fn every_pod_that_may_live_counts() {
    let running = |index: u32| testing::pod(&nth(index)).ready(9);
    let cases: [(&str, PodBuilder, usize); 6] = [
        ("a ready pod", running(0), 0),
        ("a pod whose node does not answer", running(0).phase(Phase::Unknown), 0),
        ("a pod without the watched label", running(0).unlabelled(), 0),
        ("a terminating pod", running(0).terminating(), 1),
        ("a failed pod", running(0).failed(700), 1),
        ("a pod that succeeded", running(0).failed(700).phase(Phase::Succeeded), 1),
    ];
    for (what, pod, creates) in cases {
        assert_eq!(planned(&view(1, vec![pod]), &SetState::default()).create.len(), creates, "{what}");
    }
}

#[test]
fn a_missing_pod_counts_but_no_other_is_deleted_for_it() {
    let mut view = view(1, vec![testing::pod(&nth(0)).ready(9), testing::pod(&nth(1)).ready(9)]);
    view.pods[0].is_missing = true;
    let plan = planned(&view, &SetState::default());
    assert_eq!((created(&plan).len(), deleted(&plan).len(), plan.look.len()), (0, 0, 1));
}

fn patient(wanted: usize, pods: Vec<PodBuilder>) -> View {
    View { set: Arc::new(testing::patient_set(wanted)), ..view(wanted, pods) }
}

#[test]
fn every_pod_that_may_run_counts_if_the_set_waits_for_terminations() {
    let running = || testing::pod(&nth(0)).ready(9);
    let cases: [(&str, PodBuilder, usize, bool); 7] = [
        ("a ready pod", running(), 0, false),
        ("a pod that is being deleted", running().deleted(5), 0, false),
        ("a pod that outlives its grace period", running().deleted(41), 0, true),
        ("a pod that is being deleted on a lost node", running().deleted(5).phase(Phase::Unknown), 0, false),
        ("a pod that is being deleted and has no node", running().unscheduled().deleted(5), 1, false),
        ("a pod that finished while it is being deleted", running().deleted(99).failed(700), 1, false),
        ("a failed pod", running().failed(700), 1, false),
    ];
    for (what, pod, creates, is_overdue) in cases {
        let plan = planned(&patient(1, vec![pod]), &SetState::default());
        assert_eq!((plan.create.len(), !plan.overdue.is_empty()), (creates, is_overdue), "{what}");
        let is_ending = what.contains("being deleted") && creates == 0;
        let overdue_at = testing::now() + SignedDuration::from_secs(35);
        assert_eq!(plan.wake, is_ending.then_some(overdue_at), "{what}");
    }
}

#[test]
fn pods_that_are_being_deleted_are_no_surplus() {
    let running = |index: u32| testing::pod(&nth(index)).ready(9);
    let pods = || vec![running(0), running(1), running(2).deleted(1), running(3).deleted(1)];
    let plan = planned(&patient(2, pods()), &SetState::default());
    assert_eq!((created(&plan).len(), deleted(&plan).len(), plan.count.occupied()), (0, 0, 4));
    let plan = planned(&patient(1, pods()), &SetState::default());
    assert_eq!(deleted(&plan).len(), 1, "terminating pods do not change this");
    let plan = planned(&patient(5, pods()), &SetState::default());
    assert_eq!(created(&plan), [nth(4)]);
}

#[test]
fn a_create_of_unknown_fate_and_its_terminating_pod_count_once() {
    let mut state = SetState::default();
    state.fates.create_unanswered(&nth(0), testing::now() + QUARANTINE);
    let pods = vec![testing::pod(&nth(0)).ready(9).deleted(1)];
    assert_eq!(planned(&patient(2, pods), &state).count.occupied(), 1);
}

/// Otherwise the watch would not show its end, and it would be read until then.
#[test]
fn a_pod_gets_its_label_back_while_it_is_being_deleted() {
    let pods = vec![testing::pod(&nth(0)).deleted(1).unlabelled()];
    assert_eq!(planned(&patient(1, pods.clone()), &SetState::default()).relabel.len(), 1);
    assert_eq!(planned(&view(1, pods), &SetState::default()).relabel.len(), 1);
}

/// A create whose response was lost (attack A1).
#[test]
fn a_create_of_unknown_fate_counts_and_is_repeated_under_its_name() {
    let mut state = SetState::default();
    let now = testing::now();
    state.fates.create_unanswered(&nth(2), now + QUARANTINE);
    let two = vec![testing::pod(&nth(0)).ready(9), testing::pod(&nth(1)).ready(9)];

    let step_1 = planned(&view(3, two.clone()), &state);
    assert_eq!(created(&step_1), [nth(2)], "the create is repeated with the same name");

    let step_2 = planned(&view(2, two.clone()), &state);
    assert_eq!((created(&step_2).len(), deleted(&step_2).len()), (0, 0), "scaled down: the create is not repeated");

    let landed = [two.clone(), vec![testing::pod(&nth(2)).ready(9)]].concat();
    assert_eq!(deleted(&planned(&view(2, landed.clone()), &state)).len(), 1, "it landed: one is surplus");
    assert_eq!(planned(&view(3, landed), &state).count.occupied(), 3, "the pod and its unknown create count once");

    let died = [two, vec![testing::pod(&nth(2)).terminating()]].concat();
    let step_3 = planned(&view(3, died), &state);
    assert_eq!(created(&step_3).len(), 0, "its pod is terminating, but the first create may still land");
    assert_eq!(step_3.wake, Some(now + SignedDuration::from_secs(60)));
}

#[test]
fn a_rejected_name_is_tried_again_after_the_others() {
    let mut state = SetState::default();
    state.fates.create_rejected(&nth(5), testing::now() + QUARANTINE);
    assert_eq!(created(&planned(&view(1, vec![]), &state)), [nth(5)]);
    assert_eq!(created(&planned(&view(2, vec![]), &state)), [nth(0), nth(5)]);
}

#[test]
fn names_of_strangers_and_of_recently_ended_pods_are_skipped() {
    let view = view(2, vec![]);
    let names = Known { known: [nth(0)].into(), resting: [nth(1)].into() };
    let plan = plan_with(&view, &SetState::default(), &names);
    assert_eq!(created(&plan), [nth(2), nth(3)]);
}

#[test]
fn an_unanswered_delete_is_repeated_before_another_pod_is_chosen() {
    let mut state = SetState::default();
    let pods: Vec<_> = (0..3).map(|index| testing::pod(&nth(index)).ready(9)).collect();
    state.fates.deletes.insert(pods[1].0.uid.clone(), testing::now() + QUARANTINE);
    assert_eq!(deleted(&planned(&view(2, pods.clone()), &state)), [nth(1)]);
    let two = deleted(&planned(&view(1, pods.clone()), &state)).last().map(|name| name.to_string());
    assert_eq!(two, Some(nth(1)), "the unanswered delete comes last");
    assert_eq!(planned(&view(3, pods), &state).create.len(), 0, "it counts as live for creating");
}

#[test]
fn finished_pods_are_replaced_with_backoff_unless_the_template_changes() {
    let failed = testing::pod(&nth(0)).failed(1).replacements(3);
    let mut view = view(1, vec![failed]);
    let plan = planned(&view, &SetState::default());
    let until = testing::now() + SignedDuration::from_secs(3);
    let waits = Hold::RestartBackoff { pods: 1, until, template: view.set.revision() };
    assert_eq!((plan.create.len(), plan.hold, plan.wake), (0, waits, Some(until)));

    let set = Arc::make_mut(&mut view.set);
    set.generation = 2;
    assert_eq!(planned(&view, &SetState::default()).hold, waits, "a scale repairs nothing");
    Arc::make_mut(&mut view.set).status.update_revision = None;
    let plan = planned(&view, &SetState::default());
    assert_eq!(plan.create.iter().map(|creation| creation.replacements).collect::<Vec<_>>(), [4]);
    let tried = SetState { retry: Retry { tried_generation: Some(2), ..Retry::default() }, ..SetState::default() };
    assert_eq!(planned(&view, &tried).hold, waits, "only once after a change");
}

#[test]
fn a_failing_pod_does_not_delay_others() {
    let view = |ago: i64| {
        let failed = testing::pod(&nth(0)).failed(ago).replacements(3);
        view(4, vec![failed, testing::pod(&nth(1)).ready(9)])
    };
    let counts = |plan: &Plan| plan.create.iter().map(|creation| creation.replacements).collect::<Vec<_>>();
    let plan = planned(&view(1), &SetState::default());
    let until = testing::now() + SignedDuration::from_secs(3);
    let waits = Hold::RestartBackoff { pods: 1, until, template: view(1).set.revision() };
    assert_eq!((counts(&plan), plan.hold, plan.wake), (vec![0, 0], waits, Some(until)), "two were deleted");
    let plan = planned(&view(4), &SetState::default());
    assert_eq!((counts(&plan), plan.hold), (vec![0, 0, 4], Hold::Nothing));

    let mut state = SetState::default();
    state.fates.create_unanswered(&nth(2), testing::now() + QUARANTINE);
    let plan = planned(&view(1), &state);
    assert_eq!((created(&plan)[1].to_owned(), plan.create.len()), (nth(2), 2), "one of the creates is repeated");
}

#[test]
fn three_finished_pods_are_kept() {
    let finished = (0..5).map(|index| testing::pod(&nth(index)).failed(1000 + i64::from(index)));
    let pods = finished.chain([testing::pod(&nth(9)).ready(9)]).collect();
    let plan = planned(&view(1, pods), &SetState::default());
    assert_eq!(deleted(&plan), [nth(4), nth(3)]);
    assert!(plan.delete.iter().all(|deletion| deletion.why == Why::Finished));
}

#[test]
fn a_finished_pod_whose_delete_was_not_answered_is_deleted_last() {
    let finished = (0..5).map(|index| testing::pod(&nth(index)).failed(1000 + i64::from(index)));
    let view = view(1, finished.collect());
    let mut state = SetState::default();
    let plan = planned(&view, &state);
    state.fates.deletes.insert(plan.delete[0].uid.clone(), testing::now() + QUARANTINE);
    let plan = planned(&view, &state);
    assert_eq!((deleted(&plan).len(), plan.create.len()), (2, 1));
    assert_eq!(deleted(&plan)[1], nth(4));
}

#[test]
fn a_failure_is_retried_with_backoff_unless_the_spec_changes() {
    let mut state = SetState::default();
    state.retry.back_off(testing::now(), 1, false, |wait| wait);
    let mut view = view(3, vec![]);
    let plan = planned(&view, &state);
    assert_eq!((plan.create.len(), plan.hold), (0, Hold::Failure));
    assert_eq!(plan.wake, Some(testing::now() + SignedDuration::from_secs(1)));
    Arc::make_mut(&mut view.set).generation = 2;
    assert_eq!(planned(&view, &state).create.len(), 3);
}

#[test]
fn nothing_is_created_for_a_deleting_or_unreadable_set() {
    let mut deleting = view(3, vec![]);
    Arc::make_mut(&mut deleting.set).is_deleting = true;
    let mut unreadable = view(3, vec![testing::pod(&nth(0))]);
    Arc::make_mut(&mut unreadable.set).wanted = Err("no".to_owned());
    for view in [deleting, unreadable] {
        let plan = planned(&view, &SetState::default());
        assert_eq!((plan.create.len(), plan.delete.len(), plan.hold), (0, 0, Hold::Blocked));
    }
}

#[test]
fn creates_pause_in_a_terminating_namespace_until_the_spec_changes() {
    let mut state = SetState::default();
    state.retry.back_off(testing::now(), 1, true, |wait| wait);
    let plan = planned(&view(3, vec![]), &state);
    let in_a_second = testing::now() + SignedDuration::from_secs(1);
    assert_eq!((plan.create.len(), plan.wake), (0, Some(in_a_second)));
    state.fates.strays.insert("stray-uid".into(), nth(0));
    assert_eq!(planned(&view(3, vec![]), &state).delete.len(), 1, "only creates wait");
    state.fates.strays.clear();
    state.retry.back_off(testing::now() - SignedDuration::from_secs(2), 1, true, |wait| wait);
    assert_eq!(planned(&view(3, vec![]), &state).create.len(), 3, "the namespace may have been recreated");
    state.retry.back_off(testing::now(), 0, true, |wait| wait);
    assert_eq!(planned(&view(3, vec![]), &state).create.len(), 3);
}

#[test]
fn nothing_is_created_while_a_stray_is_left() {
    let mut state = SetState::default();
    state.fates.strays.insert("stray-uid".into(), nth(0));
    let plan = planned(&view(2, vec![]), &state);
    assert_eq!(created(&plan).len(), 0);
    assert_eq!(deleted(&plan), [nth(0)]);
}

#[test]
fn a_stray_that_may_be_bound_unseen_is_deleted_at_its_version_if_the_set_waits_for_terminations() {
    for (set, pod, is_exact) in [
        (testing::patient_set(1), testing::pod(&nth(0)).unscheduled(), true),
        (testing::patient_set(1), testing::pod(&nth(0)), false),
        (testing::set(1), testing::pod(&nth(0)).unscheduled(), false),
    ] {
        let mut state = SetState::default();
        state.fates.strays.insert(pod.0.uid.clone(), nth(0));
        let plan = planned(&View { set: Arc::new(set), ..view(1, vec![pod]) }, &state);
        assert_eq!((plan.delete[0].version, plan.delete[0].is_exact), (20, is_exact));
    }
}

#[test]
fn an_expired_create_is_looked_up_before_it_is_forgotten() {
    let mut state = SetState::default();
    state.fates.create_unanswered(&nth(1), testing::now());
    let plan = planned(&view(1, vec![testing::pod(&nth(0)).ready(9)]), &state);
    let looks: Vec<&str> = plan.look.iter().map(|look| &*look.key.name).collect();
    assert_eq!((looks, plan.count.occupied()), (vec![&*nth(1)], 2));
}

/// A pod of the set in any phase and fate.
fn any_pod(index: u32) -> impl Strategy<Value = (PodBuilder, bool)> {
    (0..8_u8, 0..400_i64, 0..3_u32, any::<bool>()).prop_map(move |(kind, seconds, count, is_missing)| {
        let pod = testing::pod(&nth(index)).uid(&format!("uid-{index}"));
        let pod = match kind {
            0 => pod.unscheduled(),
            1 => pod.phase(Phase::Pending),
            2 => pod.phase(Phase::Unknown),
            3 => pod,
            4 => pod.terminating(),
            5 => pod.failed(seconds).replacements(count),
            6 => pod.ready(seconds).unlabelled(),
            _ => pod.ready(seconds).restarts(i32::try_from(count).unwrap()),
        };
        (pod, is_missing && kind == 3)
    })
}

#[derive(Clone, Debug)]
struct Case {
    view: View,
    state: SetState,
    names: (BTreeSet<String>, BTreeSet<String>),
}

fn any_case() -> impl Strategy<Value = Case> {
    let indices = proptest::sample::subsequence((0..24_u32).collect::<Vec<_>>(), 0..16);
    let pods = indices.prop_flat_map(|indices| indices.into_iter().map(any_pod).collect::<Vec<_>>());
    let creates = vec((0..24_u32, any::<bool>(), 0..70_i64), 0..4);
    let going = (vec(0..24_u32, 0..3), vec(0..24_u32, 0..6));
    let taken = (vec(0..24_u32, 0..4), vec(0..24_u32, 0..4));
    (0..20_usize, pods, creates, going, taken).prop_map(
        |(wanted, pods, creates, (going, rejected), (known, resting))| {
            let mut view = view(wanted, pods.iter().map(|(pod, _)| pod.clone()).collect());
            for (seen, (_, is_missing)) in view.pods.iter_mut().zip(&pods) {
                seen.is_missing = *is_missing;
            }
            let mut state = SetState::default();
            let now = testing::now();
            for (index, is_unknown, ago) in creates {
                let until = now - SignedDuration::from_secs(ago) + QUARANTINE;
                match is_unknown {
                    true => state.fates.create_unanswered(&nth(index), until),
                    false => state.fates.create_rejected(&nth(index), until),
                }
            }
            state.fates.expire(now, false, |_| true);
            for index in going {
                state.fates.deletes.insert(format!("uid-{index}").into(), now + QUARANTINE);
            }
            for index in rejected {
                state.retry.rejected_deletes.note(format!("uid-{index}").into(), 20, "no".to_owned(), now, |wait| wait);
            }
            let own = view.pods.iter().map(|seen| seen.pod.key.name.to_string());
            let known = own.chain(known.into_iter().map(nth)).collect();
            state.retry.finishes.update(&view, now);
            Case { view, state, names: (known, resting.into_iter().map(nth).collect()) }
        },
    )
}

impl Case {
    fn plan(&self) -> Plan {
        let names = Known { known: self.names.0.clone(), resting: self.names.1.clone() };
        plan_with(&self.view, &self.state, &names)
    }

    /// The world after the plan was carried out, every pod became ready and every fate is known.
    fn carried_out(&self, plan: &Plan) -> Case {
        let deleted: BTreeSet<&str> = deleted(plan).into_iter().collect();
        let stays = |seen: &&Seen| !deleted.contains(&*seen.pod.key.name) && !seen.is_terminating() && !seen.is_missing;
        let mut pods: Vec<Seen> = self.view.pods.iter().filter(stays).cloned().collect();
        for seen in &mut pods {
            Arc::make_mut(&mut seen.pod).is_labelled = true;
        }
        for creation in &plan.create {
            let made = testing::pod(&creation.name).uid(&format!("uid-of-{}", creation.name)).ready(1);
            pods.push(made.replacements(creation.replacements).seen());
        }
        let mut set = testing::set(plan.count.wanted);
        // With a changed template, there is no backoff for finished pods.
        set.status.update_revision = None;
        let view = View { set: Arc::new(set), pods, is_unread: false };
        let known = view.pods.iter().map(|seen| seen.pod.key.name.to_string()).collect();
        let mut state = SetState::default();
        state.retry.finishes.update(&view, testing::now());
        Case { view, state, names: (known, self.names.1.clone()) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn it_never_creates_beyond_n(case in any_case()) {
        let plan = case.plan();
        let unknown: BTreeSet<&str> = case.state.fates.unknown.keys().map(String::as_str).collect();
        let live = case.view.pods.iter().filter(|seen| seen.is_live()).map(|seen| &*seen.pod.key.name);
        let may_live: BTreeSet<&str> = live.chain(unknown.iter().copied()).chain(created(&plan)).collect();
        let names = created(&plan);
        prop_assert!(names.is_empty() || may_live.len() <= plan.count.wanted, "{may_live:?}");
        prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "no name twice");
        for name in names {
            prop_assert!(!case.names.0.contains(name), "{} is taken", name);
            prop_assert!(unknown.contains(name) || !case.names.1.contains(name), "{} must rest", name);
        }
    }

    #[test]
    fn it_never_deletes_below_n_and_only_surplus_or_finished_pods(case in any_case()) {
        let plan = case.plan();
        let surplus = plan.delete.iter().filter(|deletion| deletion.why == Why::Surplus).count();
        let wanted = plan.count.certain.saturating_sub(plan.count.wanted);
        prop_assert!(surplus <= wanted && surplus + plan.rejected.len() >= wanted, "fewer only if pods cannot be deleted");
        prop_assert!(surplus == 0 || plan.create.is_empty(), "creates and deletes in one plan");
        for deletion in &plan.delete {
            let seen = case.view.pods.iter().find(|seen| seen.pod.uid == deletion.uid).unwrap();
            prop_assert!(!seen.is_missing && !seen.is_terminating());
            prop_assert_eq!(seen.pod.is_finished(), deletion.why == Why::Finished);
        }
    }

    #[test]
    fn it_converges_and_then_rests(case in any_case()) {
        let mut world = case;
        for _ in 0..4 {
            let plan = world.plan();
            world = world.carried_out(&plan);
        }
        let plan = world.plan();
        prop_assert!(!plan.has_work(), "{:?}", plan);
        prop_assert_eq!(plan.count.live, plan.count.wanted);
        prop_assert_eq!(plan.wake, None);
    }

    #[test]
    fn the_plan_does_not_depend_on_the_order_of_the_pods(case in any_case(), turn in 0..16_usize) {
        let plan = case.plan();
        let mut turned = case.clone();
        let pods = &mut turned.view.pods;
        let length = pods.len();
        pods.rotate_left(if length == 0 { 0 } else { turn % length });
        let again = turned.plan();
        prop_assert_eq!(created(&again), created(&plan));
        prop_assert_eq!(deleted(&again).into_iter().collect::<BTreeSet<_>>(), deleted(&plan).into_iter().collect());
        prop_assert_eq!((again.hold, again.wake), (plan.hold, plan.wake));
    }
}
