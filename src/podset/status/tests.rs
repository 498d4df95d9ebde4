use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;
use crate::podset::{
    conditions::is_same,
    observe::PodsLike,
    revision::Revision,
    set_state::{FailedPreparation, Reports},
    testing::{self, PodBuilder},
};
use operator_kit::failures::Failures;

mod undeletable;

fn view(pods: Vec<PodBuilder>) -> View {
    View { set: Arc::new(testing::set(2)), pods: sorted(pods), is_unread: false }
}

/// Pods come sorted by name out of the cache.
fn sorted(pods: Vec<PodBuilder>) -> Vec<Seen> {
    let mut pods: Vec<Seen> = pods.into_iter().map(PodBuilder::seen).collect();
    pods.sort_by(|a, b| a.pod.key.name.cmp(&b.pod.key.name));
    pods
}

fn two_ready() -> View {
    view(vec![testing::pod("b").ready(9), testing::pod("a").ready(9)])
}

const BACKOFF: Hold = Hold::RestartBackoff { pods: 1, until: Timestamp::UNIX_EPOCH, template: None };

fn planned(view: &View, hold: Hold) -> Plan {
    let live = view.pods.iter().filter(|seen| seen.is_live()).count();
    Plan {
        count: Count {
            wanted: 2,
            live,
            ending: 0,
            unknown: 0,
            certain: live,
            updated: live,
            updated_available: 0,
            available: 0,
        },
        hold,
        ..Plan::default()
    }
}

/// Each condition as `Type=Status/Reason`.
fn conditions(view: &View, hold: Hold, state: &SetState) -> Vec<String> {
    let status = status(view, &planned(view, hold), state, testing::now());
    let line = |held: &Condition| format!("{}={}/{}", held.type_, held.status, held.reason);
    status.conditions.iter().map(line).collect()
}

fn refused(kind: RejectionKind) -> SetState {
    SetState {
        reports: Reports {
            rejected_create: Some(Rejection { message: "no".to_owned(), kind, generation: 1 }),
            ..Reports::default()
        },
        ..SetState::default()
    }
}

#[test]
fn every_state_has_its_conditions() {
    let one = || view(vec![testing::pod("a").ready(9)]);
    let mut deleting = two_ready();
    Arc::make_mut(&mut deleting.set).is_deleting = true;
    let none = SetState::default();
    let cases: [(View, Hold, SetState, &[&str]); 8] = [
        (two_ready(), Hold::Nothing, none.clone(), &["Ready=True/AllPodsReady"]),
        (one(), Hold::Nothing, none.clone(), &["Ready=False/PodsNotReady", "Reconciling=True/Progressing"]),
        (
            one(),
            Hold::Failure,
            refused(RejectionKind::Forbidden),
            &["Ready=False/PodsNotReady", "Reconciling=True/Retrying", "ReplicaFailure=True/FailedCreate"],
        ),
        (one(), BACKOFF, none.clone(), &["Ready=False/PodsFailing", "Reconciling=True/BackingOff"]),
        (
            one(),
            BACKOFF,
            refused(RejectionKind::Forbidden),
            &["Ready=False/PodsFailing", "Reconciling=True/BackingOff"],
        ),
        (
            one(),
            Hold::Failure,
            refused(RejectionKind::InvalidTemplate),
            &["Ready=False/InvalidTemplate", "Stalled=True/InvalidTemplate", "ReplicaFailure=True/FailedCreate"],
        ),
        (
            one(),
            Hold::Blocked,
            refused(RejectionKind::NamespaceTerminating),
            &["Ready=False/PodsNotReady", "Reconciling=True/Progressing"],
        ),
        (deleting, Hold::Blocked, none, &["Ready=False/Deleting", "Reconciling=True/Deleting"]),
    ];
    for (view, hold, state, expected) in cases {
        let shown = conditions(&view, hold, &state);
        assert_eq!(shown, expected);
        assert!(REASONS.iter().any(|reason| shown[0].ends_with(&format!("/{reason}"))), "{shown:?}");
    }
}

#[test]
fn a_rejected_create_does_not_hide_a_rollout() {
    let view = view(vec![testing::pod("a").ready(9)]);
    let plan = Plan { rollout: Rollout::InProgress, ..planned(&view, Hold::Failure) };
    let status = status(&view, &plan, &refused(RejectionKind::Forbidden), testing::now());
    let reasons: Vec<&str> = status.conditions.iter().map(|held| held.reason.as_str()).collect();
    assert_eq!(reasons, [ROLLING, "Retrying", FAILED_CREATE]);
    assert_eq!(status.conditions[0].message, "1 of 2 pods are ready: no; 1 of 2 pods have the new template");
}

#[test]
fn the_message_of_ready_names_the_cause() {
    let one = || view(vec![testing::pod("a").ready(9)]);
    let message = |view: &View, hold: Hold, state: &SetState| {
        status(view, &planned(view, hold), state, testing::now()).conditions.swap_remove(0).message
    };
    let none = SetState::default();
    assert_eq!(message(&two_ready(), Hold::Nothing, &none), "2 of 2 pods are ready");
    assert_eq!(message(&one(), Hold::Failure, &refused(RejectionKind::Forbidden)), "1 of 2 pods are ready: no");
    let waiting = |name, reason| testing::pod(name).waits_for(reason);
    let two = view(vec![waiting("a", "ImagePullBackOff"), waiting("b", "CrashLoopBackOff")]);
    let why = "0 of 2 pods are ready; b is in CrashLoopBackOff; a is in ImagePullBackOff";
    assert_eq!(message(&two, Hold::Nothing, &none), why);
    let unscheduled = |name| testing::pod(name).unscheduled().waits_for("0/3 nodes are available");
    let one_unscheduled = view(vec![unscheduled("b"), waiting("a", "ImagePullBackOff")]);
    let why = "0 of 2 pods are ready; b cannot be scheduled: 0/3 nodes are available; a is in ImagePullBackOff";
    assert_eq!(message(&one_unscheduled, Hold::Nothing, &none), why);
    let two_unscheduled = view(vec![unscheduled("a"), unscheduled("b")]);
    let why = "0 of 2 pods are ready; 2 pods cannot be scheduled: 0/3 nodes are available";
    assert_eq!(message(&two_unscheduled, Hold::Nothing, &none), why);
    let mut deleting = two_ready();
    Arc::make_mut(&mut deleting.set).is_deleting = true;
    assert_eq!(message(&deleting, Hold::Blocked, &none), "2 of 2 pods are ready: the PodSet is being deleted");
    let mut unreadable = two_ready();
    Arc::make_mut(&mut unreadable.set).wanted = Err("unreadable".to_owned());
    assert_eq!(message(&unreadable, Hold::Blocked, &none), "2 pods are ready: unreadable");
    let mut unstored = two_ready();
    Arc::make_mut(&mut unstored.set).wanted.as_mut().unwrap().template = PodsLike::Large(2000);
    let mut state = SetState::default();
    state.preparation.failed = Some(Box::new(FailedPreparation {
        revision: unstored.set.revision().unwrap(),
        message: "no room".to_owned(),
        is_invalid: false,
        failures: Failures::default(),
        again: testing::now(),
    }));
    let why = "2 of 2 pods are ready; the template cannot be stored: no room";
    assert_eq!(message(&unstored, Hold::Nothing, &state), why);
    state.preparation.stored = unstored.set.revision();
    assert_eq!(message(&unstored, Hold::Nothing, &state), "2 of 2 pods are ready");
}

#[test]
fn a_stray_that_holds_is_named_after_a_change_of_the_spec() {
    let mut view = view(vec![testing::pod("a").ready(9)]);
    Arc::make_mut(&mut view.set).generation = 2;
    let mut state = refused(RejectionKind::Unclear);
    assert_eq!(conditions(&view, Hold::Nothing, &state).len(), 2, "the rejection was about another spec");
    state.fates.strays.insert("uid".into(), "b".to_owned());
    assert_eq!(conditions(&view, Hold::Nothing, &state)[2], "ReplicaFailure=True/FailedCreate");
}

#[test]
fn no_pod_counts_as_updated_while_the_spec_cannot_be_read() {
    let mut pod = testing::pod("a").ready(9);
    pod.0.revision = None;
    let mut view = view(vec![pod]);
    Arc::make_mut(&mut view.set).wanted = Err("unreadable".to_owned());
    let status = status(&view, &planned(&view, Hold::Blocked), &SetState::default(), testing::now());
    assert_eq!((status.available_replicas, status.updated_replicas), (1, 0));
}

#[test]
fn pods_that_the_set_waits_for_are_named_with_their_nodes() {
    let shown = |pods: Vec<PodBuilder>| {
        let ending = pods.iter().filter(|pod| pod.0.is_terminating).count();
        let view = View { set: Arc::new(testing::patient_set(2)), ..view(pods) };
        let mut plan = planned(&view, Hold::Nothing);
        plan.count.ending = ending;
        let mut status = status(&view, &plan, &SetState::default(), testing::now());
        let ready = status.conditions.swap_remove(0);
        (ready.reason, ready.message, status.terminating_replicas)
    };
    let ending = |name| testing::pod(name).on("n1").deleted(1);
    let one = vec![testing::pod("a").ready(9), ending("b").disrupted("DeletionByTaintManager")];
    let message = "1 of 2 pods are ready; waiting for b on n1 (DisruptionTarget/DeletionByTaintManager) to terminate";
    assert_eq!(shown(one), (WAITING_FOR_TERMINATION.to_owned(), message.to_owned(), 1));
    let first = testing::pod("c").on("n2").deleted(40);
    let more = vec![testing::pod("a").waits_for("CrashLoopBackOff"), ending("b"), first];
    let message = "0 of 2 pods are ready; waiting for c on n2 and 1 more to terminate; a is in CrashLoopBackOff";
    assert_eq!(shown(more), (NOT_READY.to_owned(), message.to_owned(), 2), "a is unready anyway");
}

#[test]
fn pods_that_are_being_deleted_are_counted_under_both_policies() {
    let pods = || vec![testing::pod("a").ready(9), testing::pod("b").ready(9), testing::pod("c").deleted(1)];
    let view = view(pods());
    let status = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), testing::now());
    assert_eq!((status.terminating_replicas, status.conditions[0].reason.as_str()), (1, ALL_READY));
}

#[test]
fn pods_that_fail_are_named_with_the_next_try() {
    let message = |pods: usize, due: i64, seen: Vec<PodBuilder>| {
        let (view, until) = (view(seen), testing::now() + jiff::SignedDuration::from_secs(due));
        let plan = planned(&view, Hold::RestartBackoff { pods, until, template: view.set.revision() });
        let conditions = status(&view, &plan, &SetState::default(), testing::now()).conditions;
        let [ready, reconciling] = &conditions[..] else { panic!("{conditions:?}") };
        let summary = ready.message.strip_prefix("0 of 2 pods are ready: ").unwrap();
        assert_eq!((reconciling.reason.as_str(), reconciling.message.as_str()), (BACKING_OFF, summary));
        summary.to_owned()
    };
    let failed = |name: &str, ago| testing::pod(name).failed(ago).exit_code(1);
    let two = || vec![failed("a", 3), failed("b", 9)];
    assert_eq!(message(2, 29, two()), "2 pods failed, most recently a with exit code 1; next try 32 s later");
    let succeeded = testing::pod("a").failed(3).phase(Phase::Succeeded).exit_code(0);
    let exited = "1 pod exited, most recently a with exit code 0; next try 8 s later";
    assert_eq!(message(1, 5, vec![succeeded]), exited);
    let of_another_template = failed("b", 3).of(Revision::of(None, 7));
    let one = vec![failed("a", 9), of_another_template];
    assert_eq!(message(1, 5, one), "1 pod failed, most recently a with exit code 1; next try 14 s later");
    let evicted = testing::pod("a").failed(3);
    assert_eq!(message(1, 5, vec![evicted]), "1 pod failed, most recently a; next try 8 s later");
    assert_eq!(message(2, 5, vec![failed("a", 3).terminating()]), "2 pods failed", "the pods are being deleted");
}

#[test]
fn changes_of_ready_and_of_the_pods_are_awaited() {
    let status = |pods: &[&str], ready| {
        let reason = if ready { "AllPodsReady" } else { "PodsNotReady" };
        let ready = statuses::condition(&[], condition::READY, ready, reason, String::new(), testing::now());
        let pod_names = pods.iter().map(|&pod| pod.into()).collect();
        PodSetStatus { pod_names, conditions: vec![ready], ..PodSetStatus::default() }
    };
    assert!(is_awaited(&status(&["a"], false), &status(&["a"], true), false));
    assert!(is_awaited(&status(&["a"], true), &status(&["b"], true), true));
    assert!(!is_awaited(&status(&["a"], true), &status(&["b"], true), false), "more changes will follow");
    let other = PodSetStatus { ready_replicas: 1, ..status(&["a"], false) };
    assert!(!is_awaited(&status(&["a"], false), &other, true));
}

#[test]
fn names_and_counts_are_those_of_the_available_pods() {
    let pods = vec![
        testing::pod("a").ready(9),
        testing::pod("b").unscheduled(),
        testing::pod("c").terminating(),
        testing::pod("d").failed(9),
        testing::pod("e").phase(Phase::Unknown),
    ];
    let view = view(pods);
    let status = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), testing::now());
    assert_eq!(status.pod_names, ["a".into(), "b".into()]);
    assert_eq!((status.available_replicas, status.ready_replicas), (2, 1));
    assert_eq!(status.conditions[0].message, "1 of 2 pods are ready");
    assert_eq!(status.selector.unwrap(), "app=web,version=v0.1,app.kubernetes.io/managed-by=podset-operator");
}

#[test]
fn a_generation_is_observed_when_no_surplus_may_live() {
    let answered = |occupied: usize, stored: Option<i64>| {
        let mut view = two_ready();
        let set = Arc::make_mut(&mut view.set);
        (set.generation, set.status.observed_generation) = (7, stored);
        let mut plan = planned(&view, Hold::Nothing);
        (plan.count.live, plan.count.unknown) = (0, occupied);
        status(&view, &plan, &SetState::default(), testing::now()).observed_generation
    };
    assert_eq!(answered(0, Some(6)), Some(7), "a scale-up is observed at once");
    assert_eq!(answered(2, Some(6)), Some(7));
    assert_eq!(answered(3, Some(6)), Some(6), "a scale-down is not observed yet");
    assert_eq!(answered(3, None), None);
}

#[test]
fn a_transition_time_changes_only_with_the_status() {
    let mut view = view(vec![testing::pod("a").ready(9)]);
    let later = testing::now() + jiff::SignedDuration::from_secs(100);
    let first = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), testing::now());
    Arc::make_mut(&mut view.set).status = first.clone();
    let failing = status(&view, &planned(&view, BACKOFF), &SetState::default(), later);
    assert_eq!(failing.conditions[0].reason, "PodsFailing");
    assert_eq!(failing.conditions[0].last_transition_time, first.conditions[0].last_transition_time);
    assert!(!is_same(&first, &failing));

    let mut turned = first.clone();
    turned.conditions.reverse();
    turned.conditions.push(Condition { type_: "Foreign".to_owned(), ..first.conditions[0].clone() });
    turned.conditions[0].observed_generation = Some(1);
    assert!(is_same(&first, &turned), "the order and conditions of others do not matter");
    view = two_ready();
    Arc::make_mut(&mut view.set).status = first;
    let ready = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), later);
    assert_eq!(ready.conditions[0].last_transition_time.0, later);
}
