//! What the status of a set says. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    observe::{Seen, View},
    plan::{Hold, Plan},
    pod,
    rejection::RejectionKind,
    set_state::SetState,
};
use crate::api::{PodSetStatus, condition};
use operator_kit::statuses::transition_time;

/// The status of a set as it stands: its pods, the plan made after everything was tried, and why pods are refused.
/// `wall` is the time of day that a condition which changes is given.
pub fn status(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus {
    let View { set, pods, .. } = view;
    let available: Vec<&Seen> = pods.iter().filter(|seen| seen.is_available()).collect();
    let ready = available.iter().filter(|seen| seen.is_ready()).count();
    let state = State::of(view, plan, state, available.len(), ready);
    let wanted = set.wanted.as_ref().ok().map(|wanted| wanted.replicas);
    PodSetStatus {
        pod_names: available.iter().map(|seen| seen.pod.key.name.clone()).collect(),
        available_replicas: i32::try_from(available.len()).unwrap_or(i32::MAX),
        ready_replicas: i32::try_from(ready).unwrap_or(i32::MAX),
        observed_generation: observed_generation(view, plan),
        selector: Some(pod::selector(&set.key.name)),
        conditions: conditions(&state, &set.status.conditions, wanted, ready, wall),
        // Added to each write; no status is written for its sake.
        written_by: None,
    }
}

/// A generation is answered as soon as no more pods may live than it wants: at once on the way up, and on the way down
/// only when the surplus is certainly gone. Until then it is the former one: whoever reads it can tell how many pods
/// there may be.
fn observed_generation(view: &View, plan: &Plan) -> Option<i64> {
    let is_answered = view.set.wanted.is_ok() && plan.count.occupied <= plan.count.wanted;
    if is_answered { Some(view.set.generation) } else { view.set.status.observed_generation }
}

/// The reason of ReplicaFailure while creates are rejected.
pub const FAILED_CREATE: &str = "FailedCreate";

/// The reason of ReplicaFailure while deletes are rejected.
pub const FAILED_DELETE: &str = "FailedDelete";

/// In which of its states a set is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// All pods are there and ready.
    AllReady,
    /// Pods are being created, deleted or waited for; why containers of theirs do not start, if one does not.
    Progressing(Option<String>),
    /// Pods are refused.
    Rejected(String),
    /// Pods that are to go cannot be deleted.
    Undeletable {
        /// The API server's message.
        message: String,
        /// Whether all else is done: as many pods as are wanted are ready.
        is_ready: bool,
    },
    /// Pods keep finishing.
    Failing,
    /// The spec can never work as it stands.
    Invalid(String),
    /// The set is being deleted.
    Deleting,
}

/// What the condition Ready can give as its reason.
pub const REASONS: [&str; 5] = ["AllPodsReady", "PodsNotReady", "PodsFailing", "InvalidTemplate", "Deleting"];

impl State {
    fn of(view: &View, plan: &Plan, state: &SetState, available: usize, ready: usize) -> State {
        let wanted = plan.count.wanted;
        if view.set.is_deleting {
            return State::Deleting;
        }
        if let Err(error) = &view.set.wanted {
            return State::Invalid(error.clone());
        }
        // The refusal of a former spec says nothing of this one.
        let rejected_create = state
            .reports
            .rejected_create
            .as_ref()
            .filter(|rejected_create| rejected_create.generation == view.set.generation);
        match rejected_create.map(|rejected_create| (rejected_create.kind, rejected_create.message.clone())) {
            Some((RejectionKind::InvalidTemplate, message)) => return State::Invalid(message),
            Some((RejectionKind::Forbidden | RejectionKind::Unclear, message)) => return State::Rejected(message),
            Some((RejectionKind::NamespaceTerminating, _)) | None => {}
        }
        // While other pods are deleted in their place, it may still turn out well.
        let is_stuck = !plan.deletes_others(state) && !plan.rejected.is_empty();
        let rejection = state.retry.rejected.message().filter(|_| is_stuck);
        if plan.hold == Hold::Finishing {
            State::Failing
        } else if let Some(message) = rejection {
            let may_be_too_many =
                view.pods.iter().filter(|seen| seen.is_live() && plan.rejected.contains(&seen.pod.uid));
            let is_ready = ready >= wanted && plan.count.occupied <= wanted + may_be_too_many.count();
            State::Undeletable { message: message.to_owned(), is_ready }
        } else if available == wanted && ready == wanted && plan.count.occupied == wanted {
            State::AllReady
        } else {
            State::Progressing(trouble(&view.pods))
        }
    }

    /// Whether as many pods as are wanted are ready, and nothing is missing.
    fn is_ready(&self) -> bool {
        matches!(self, State::AllReady | State::Undeletable { is_ready: true, .. })
    }

    /// The reason of the condition Ready.
    pub fn reason(&self) -> &'static str {
        match self {
            State::AllReady | State::Undeletable { is_ready: true, .. } => "AllPodsReady",
            State::Progressing(_) | State::Rejected(_) | State::Undeletable { .. } => "PodsNotReady",
            State::Failing => "PodsFailing",
            State::Invalid(_) => "InvalidTemplate",
            State::Deleting => "Deleting",
        }
    }
}

/// Why containers do not start: each reason once, with the first pod that has it.
fn trouble(pods: &[Seen]) -> Option<String> {
    let waiting = pods.iter().filter(|seen| seen.is_available() && !seen.is_ready());
    let mut by_reason: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for Seen { pod, .. } in waiting {
        if let Some(reason) = pod.waits_for.as_deref() {
            by_reason.entry(reason).or_insert((&pod.key.name, 0)).1 += 1;
        }
    }
    let clauses = by_reason.into_iter().map(|(reason, (pod, count))| match count {
        1 => format!("{pod} is in {reason}"),
        _ => format!("{pod} and {} more are in {reason}", count - 1),
    });
    let message = clauses.collect::<Vec<_>>().join("; ");
    (!message.is_empty()).then_some(message)
}

const KEEP_FINISHING: &str = "pods keep exiting; backing off before replacing them";

/// What is the matter, in one sentence: `kubectl get --output=wide` shows it, and most tools show nothing else.
fn summary(state: &State, wanted: Option<usize>, ready: usize) -> String {
    let of_n = wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
    let k_of_n = format!("{ready}{of_n} pods are ready");
    match state {
        State::AllReady | State::Progressing(None) => k_of_n,
        State::Progressing(Some(message)) => format!("{k_of_n}; {message}"),
        State::Rejected(message) | State::Invalid(message) => format!("{k_of_n}: {message}"),
        State::Undeletable { message, .. } => format!("{k_of_n}; pods cannot be deleted: {message}"),
        State::Failing => format!("{k_of_n}: {KEEP_FINISHING}"),
        State::Deleting => format!("{k_of_n}: the set is being deleted"),
    }
}

fn conditions(
    state: &State,
    stored: &[Condition],
    wanted: Option<usize>,
    ready: usize,
    wall: Timestamp,
) -> Vec<Condition> {
    let mut conditions = vec![(condition::READY, state.is_ready(), state.reason(), summary(state, wanted, ready))];
    let mut holds = |type_, reason, message: &str| conditions.push((type_, true, reason, message.to_owned()));
    match state {
        State::AllReady => {}
        State::Progressing(_) => holds(condition::RECONCILING, "Progressing", "creating, deleting or waiting for pods"),
        State::Rejected(message) => {
            holds(condition::RECONCILING, "Retrying", "pods are refused; trying again, later each time");
            holds(condition::REPLICA_FAILURE, FAILED_CREATE, message);
        }
        State::Undeletable { message, .. } => {
            holds(condition::RECONCILING, "Retrying", "pods cannot be deleted; trying again, later each time");
            holds(condition::REPLICA_FAILURE, FAILED_DELETE, message);
        }
        State::Failing => {
            holds(condition::RECONCILING, "BackingOff", KEEP_FINISHING);
        }
        State::Invalid(message) => {
            holds(condition::STALLED, "InvalidTemplate", message);
            holds(condition::REPLICA_FAILURE, FAILED_CREATE, message);
        }
        State::Deleting => {
            let message = "waiting for the garbage collector, and for whoever has set a finalizer";
            holds(condition::RECONCILING, "Deleting", message);
        }
    }
    conditions
        .into_iter()
        .map(|(type_, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
            let former = stored.iter().find(|former| former.type_ == type_ && former.status == status);
            Condition {
                last_transition_time: former
                    .map_or_else(|| transition_time(wall), |former| former.last_transition_time.clone()),
                message,
                observed_generation: None,
                reason: reason.to_owned(),
                status: status.to_owned(),
                type_: type_.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::podset::{
        plan::Count,
        rejection::Rejection,
        set_state::Reports,
        stored::is_same,
        testing::{self, PodBuilder},
    };

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

    fn planned(view: &View, hold: Hold) -> Plan {
        let live = view.pods.iter().filter(|seen| seen.is_live()).count();
        Plan { count: Count { wanted: 2, live, occupied: live, certain: live }, hold, ..Plan::default() }
    }

    /// Each condition as `Type=Status/Reason`.
    fn told(view: &View, hold: Hold, state: &SetState) -> Vec<String> {
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
        let cases: [(View, Hold, SetState, &[&str]); 7] = [
            (two_ready(), Hold::Nothing, none.clone(), &["Ready=True/AllPodsReady"]),
            (one(), Hold::Nothing, none.clone(), &["Ready=False/PodsNotReady", "Reconciling=True/Progressing"]),
            (
                one(),
                Hold::Failure,
                refused(RejectionKind::Forbidden),
                &["Ready=False/PodsNotReady", "Reconciling=True/Retrying", "ReplicaFailure=True/FailedCreate"],
            ),
            (one(), Hold::Finishing, none.clone(), &["Ready=False/PodsFailing", "Reconciling=True/BackingOff"]),
            (
                one(),
                Hold::Failure,
                refused(RejectionKind::InvalidTemplate),
                &["Ready=False/InvalidTemplate", "Stalled=True/InvalidTemplate", "ReplicaFailure=True/FailedCreate"],
            ),
            (
                one(),
                Hold::Forever,
                refused(RejectionKind::NamespaceTerminating),
                &["Ready=False/PodsNotReady", "Reconciling=True/Progressing"],
            ),
            (deleting, Hold::Forever, none, &["Ready=False/Deleting", "Reconciling=True/Deleting"]),
        ];
        for (view, hold, state, expected) in cases {
            let told = told(&view, hold, &state);
            assert_eq!(told, expected);
            assert!(REASONS.iter().any(|reason| told[0].ends_with(&format!("/{reason}"))), "{told:?}");
        }
    }

    #[test]
    fn ready_says_in_one_sentence_what_is_the_matter() {
        let one = || view(vec![testing::pod("a").ready(9)]);
        let said = |view: &View, hold: Hold, state: &SetState| {
            status(view, &planned(view, hold), state, testing::now()).conditions.swap_remove(0).message
        };
        let none = SetState::default();
        assert_eq!(said(&two_ready(), Hold::Nothing, &none), "2 of 2 pods are ready");
        assert_eq!(said(&one(), Hold::Failure, &refused(RejectionKind::Forbidden)), "1 of 2 pods are ready: no");
        let failing = "1 of 2 pods are ready: pods keep exiting; backing off before replacing them";
        assert_eq!(said(&one(), Hold::Finishing, &none), failing);
        let waiting = |name, reason| testing::pod(name).waits_for(reason);
        let two = view(vec![waiting("a", "ImagePullBackOff"), waiting("b", "CrashLoopBackOff")]);
        let why = "0 of 2 pods are ready; b is in CrashLoopBackOff; a is in ImagePullBackOff";
        assert_eq!(said(&two, Hold::Nothing, &none), why);
        let mut deleting = two_ready();
        Arc::make_mut(&mut deleting.set).is_deleting = true;
        assert_eq!(said(&deleting, Hold::Forever, &none), "2 of 2 pods are ready: the set is being deleted");
        let mut unreadable = two_ready();
        Arc::make_mut(&mut unreadable.set).wanted = Err("who knows".to_owned());
        assert_eq!(said(&unreadable, Hold::Forever, &none), "2 pods are ready: who knows");
    }

    #[test]
    fn names_and_counts_are_those_of_the_available_pods() {
        let pods = vec![
            testing::pod("a").ready(9),
            testing::pod("b").unscheduled(),
            testing::pod("c").terminating(),
            testing::pod("d").failed(9),
            testing::pod("e").phase(crate::podset::observe::Phase::Unknown),
        ];
        let view = view(pods);
        let status = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), testing::now());
        assert_eq!(status.pod_names, ["a".into(), "b".into()]);
        assert_eq!((status.available_replicas, status.ready_replicas), (2, 1));
        assert_eq!(status.conditions[0].message, "1 of 2 pods are ready");
        assert_eq!(status.selector.unwrap(), "app=web,version=v0.1,app.kubernetes.io/managed-by=podset-operator");
    }

    #[test]
    fn a_generation_is_answered_when_no_more_pods_may_live_than_it_wants() {
        let answered = |occupied: usize, stored: Option<i64>| {
            let mut view = two_ready();
            let set = Arc::make_mut(&mut view.set);
            (set.generation, set.status.observed_generation) = (7, stored);
            let mut plan = planned(&view, Hold::Nothing);
            plan.count.occupied = occupied;
            status(&view, &plan, &SetState::default(), testing::now()).observed_generation
        };
        assert_eq!(answered(0, Some(6)), Some(7), "on the way up at once");
        assert_eq!(answered(2, Some(6)), Some(7));
        assert_eq!(answered(3, Some(6)), Some(6), "on the way down the former one");
        assert_eq!(answered(3, None), None);
    }

    #[test]
    fn a_transition_time_changes_with_the_status_alone() {
        let mut view = view(vec![testing::pod("a").ready(9)]);
        let later = testing::now() + jiff::SignedDuration::from_secs(100);
        let first = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), testing::now());
        Arc::make_mut(&mut view.set).status = first.clone();
        let failing = status(&view, &planned(&view, Hold::Finishing), &SetState::default(), later);
        assert_eq!(failing.conditions[0].reason, "PodsFailing");
        assert_eq!(failing.conditions[0].last_transition_time, first.conditions[0].last_transition_time);
        assert!(!is_same(&first, &failing));

        let mut turned = first.clone();
        turned.conditions.reverse();
        turned.conditions.push(Condition { type_: "Foreign".to_owned(), ..first.conditions[0].clone() });
        turned.conditions[0].observed_generation = Some(1);
        assert!(is_same(&first, &turned), "in whatever order, whatever others add");
        view = two_ready();
        Arc::make_mut(&mut view.set).status = first;
        let ready = status(&view, &planned(&view, Hold::Nothing), &SetState::default(), later);
        assert_eq!(ready.conditions[0].last_transition_time.0, later);
    }
}
