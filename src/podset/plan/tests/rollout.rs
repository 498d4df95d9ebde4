//! The plan of a rollout over random pods of two templates.

use super::*;
use crate::podset::{
    plan::{Prepare, Rollout},
    revision::Revision,
};

/// The former template and the new one.
fn former() -> Revision {
    Revision::of(None, 7)
}

fn new() -> Revision {
    Revision::of(None, 0)
}

/// A set whose template has changed. Some of its pods have the new template.
#[derive(Clone, Debug)]
struct World {
    view: View,
    state: SetState,
}

fn any_world() -> impl Strategy<Value = World> {
    let pods = vec((0..6_u8, any::<bool>()), 0..8);
    (1..8_usize, pods, 1..4_usize, 0..4_usize, any::<bool>(), any::<bool>()).prop_map(
        |(wanted, pods, max_unavailable, partition, is_patient, is_prepared)| {
            let pods = pods.into_iter().enumerate().map(|(index, (kind, is_new))| {
                let pod = testing::pod(&nth(u32::try_from(index).unwrap())).uid(&format!("uid-{index}"));
                let pod = match kind {
                    0 => pod,
                    1 => pod.deleted(1),
                    2 => pod.failed(900),
                    _ => pod.ready(9),
                };
                pod.of(if is_new { new() } else { former() })
            });
            let mut view = view(wanted, pods.collect());
            let set = Arc::make_mut(&mut view.set);
            set.waits_from = is_patient.then_some(1);
            set.status.current_revision = Some(former().to_string().into());
            let update = &mut set.wanted.as_mut().unwrap().update;
            (update.max_unavailable, update.partition) = (Some(max_unavailable), partition.min(wanted));
            let mut state = SetState::default();
            state.preparation.dry_run = is_prepared.then(new);
            World { view, state }
        },
    )
}

impl World {
    fn plan(&self) -> Plan {
        plan_with(&self.view, &self.state, &known(&self.view))
    }

    fn live(&self, holds: impl Fn(&Seen) -> bool) -> usize {
        self.view.pods.iter().filter(|seen| seen.is_live() && holds(seen)).count()
    }

    /// The world after the plan was carried out: deleted pods are gone, and all others are ready.
    fn carried_out(mut self, plan: &Plan) -> Self {
        let deleted: BTreeSet<String> = deleted(plan).into_iter().map(str::to_owned).collect();
        self.view.pods.retain(|seen| !deleted.contains(&*seen.pod.key.name) && !seen.is_terminating());
        for creation in &plan.create {
            let pod = testing::pod(&creation.name).uid(&format!("uid-of-{}", creation.name)).ready(1);
            self.view.pods.push(pod.of(creation.former.unwrap_or(new())).seen());
        }
        for seen in self.view.pods.iter_mut().filter(|seen| seen.is_live()) {
            Arc::make_mut(&mut seen.pod).ready_since = Some(testing::now().into());
            seen.seen_ready = Some(testing::now().into());
        }
        if plan.prepare == Some(Prepare::DryRun) {
            self.state.preparation.dry_run = Some(new());
        }
        self
    }
}

/// An unanswered create may have created a pod of the new template.
#[test]
fn a_repeated_create_uses_up_the_budget_of_the_new_template() {
    let pods = vec![testing::pod(&nth(0)).uid("uid-0").ready(9).of(former())];
    let mut view = view(3, pods);
    let set = Arc::make_mut(&mut view.set);
    set.status.current_revision = Some(former().to_string().into());
    set.wanted.as_mut().unwrap().update.max_unavailable = Some(1);
    let mut state = SetState::default();
    state.fates.create_unanswered(&nth(1), testing::now() + QUARANTINE);
    let plan = plan_with(&view, &state, &known(&view));
    let templates: Vec<(bool, Option<Revision>)> =
        plan.create.iter().map(|creation| (creation.is_repeated, creation.former)).collect();
    assert_eq!(templates, [(false, Some(former())), (true, None)]);
}

/// Two available pods of the former template, and two of the new one that are not available yet.
#[test]
fn a_scale_down_deletes_new_pods_that_are_not_available_first() {
    let pod = |index, ready, revision| testing::pod(&nth(index)).uid(&format!("uid-{index}")).ready(ready).of(revision);
    let mut view = view(2, vec![pod(0, 900, former()), pod(1, 900, former()), pod(2, 9, new()), pod(3, 9, new())]);
    let set = Arc::make_mut(&mut view.set);
    set.status.current_revision = Some(former().to_string().into());
    let update = &mut set.wanted.as_mut().unwrap().update;
    (update.max_unavailable, update.min_ready) = (Some(1), 300);
    let plan = planned(&view, &SetState::default());
    assert_eq!(BTreeSet::from_iter(deleted(&plan)), BTreeSet::from([&*nth(2), &*nth(3)]));
}

#[test]
fn a_restored_template_does_not_wait_for_failures_of_another_one() {
    let mut view = view(1, vec![testing::pod(&nth(0)).failed(1).replacements(9).of(former())]);
    let set = Arc::make_mut(&mut view.set);
    set.status.current_revision = Some(new().to_string().into());
    set.wanted.as_mut().unwrap().update.max_unavailable = None;
    assert_eq!(planned(&view, &SetState::default()).create.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_available_pod_is_deleted_unless_enough_others_are_available(world in any_world()) {
        let plan = world.plan();
        let update = world.view.set.wanted.as_ref().unwrap().update;
        let is_outdated = |name: &str| plan.delete.iter().any(|of| of.why == Why::Outdated && &*of.key.name == name);
        let available = world.live(Seen::is_ready);
        let lost = world.live(|seen| seen.is_ready() && is_outdated(&seen.pod.key.name));
        let least = plan.count.wanted.saturating_sub(update.max_unavailable.unwrap());
        prop_assert!(lost == 0 || available - lost >= least, "{lost} of {available}, at least {least}");
        prop_assert!(plan.delete.iter().all(|of| of.why != Why::Outdated) || world.state.preparation.dry_run.is_some());
        for deletion in plan.delete.iter().filter(|of| of.why == Why::Outdated) {
            let seen = world.view.pods.iter().find(|seen| seen.pod.uid == deletion.uid).unwrap();
            prop_assert_eq!(seen.pod.revision, Some(former()));
        }
    }

    #[test]
    fn updated_pods_are_at_most_the_ready_ones_plus_max_unavailable(world in any_world()) {
        let plan = world.plan();
        let update = world.view.set.wanted.as_ref().unwrap().update;
        let is_new = |seen: &Seen| seen.pod.revision == Some(new());
        let (updated, proven) = (world.live(is_new), world.live(|seen| is_new(seen) && seen.is_ready()));
        let created = plan.create.iter().filter(|creation| creation.former.is_none()).count();
        let most = (plan.count.wanted - update.partition).min(proven + update.max_unavailable.unwrap());
        prop_assert!(created == 0 || updated + created <= most, "{updated} and {created} of {most}");
        let order: Vec<bool> = plan.create.iter().map(|creation| creation.former.is_none()).collect();
        prop_assert!(order.is_sorted(), "pods of the former template come first");
    }

    #[test]
    fn a_template_that_works_reaches_all_pods_but_the_partition(world in any_world()) {
        let mut world = world;
        for _ in 0..60 {
            let plan = world.plan();
            world = world.carried_out(&plan);
        }
        let plan = world.plan();
        prop_assert!(!plan.has_work(), "{plan:?}");
        let old = world.live(|seen| seen.pod.revision == Some(former()));
        let partition = world.view.set.wanted.as_ref().unwrap().update.partition;
        prop_assert!(old <= partition, "{old} of {partition}");
        prop_assert_eq!(plan.count.live, plan.count.wanted);
        prop_assert_eq!(plan.rollout == Rollout::InProgress, false);
    }
}

/// A set of three pods. One pod of the new template has failed, and another pod is ready.
fn with_broken_new_template(other: testing::PodBuilder) -> View {
    let failing = testing::pod(&nth(0)).failed(1).replacements(9).of(new());
    let mut view = view(3, vec![failing, other, testing::pod(&nth(2)).ready(900).of(former())]);
    let set = Arc::make_mut(&mut view.set);
    set.status.current_revision = Some(former().to_string().into());
    set.wanted.as_mut().unwrap().update.max_unavailable = Some(1);
    view
}

/// The template and the count of each pod to create, and what waits.
fn replaced(view: &View, state: &SetState) -> (Vec<(Option<Revision>, u32)>, Hold) {
    let plan = planned(view, state);
    (plan.create.iter().map(|creation| (creation.former, creation.replacements)).collect(), plan.hold)
}

fn waits(pods: usize, seconds: i64, template: Revision) -> Hold {
    let until = testing::now() + SignedDuration::from_secs(seconds);
    Hold::RestartBackoff { pods, until, template: Some(template) }
}

#[test]
fn the_failures_of_one_template_neither_delay_nor_hasten_another_one() {
    for ran in [300, 900] {
        let view = with_broken_new_template(testing::pod(&nth(1)).failed(0).ran(ran).of(former()));
        assert_eq!(
            replaced(&view, &SetState::default()),
            (vec![(Some(former()), 1)], waits(1, 255, new())),
            "it ran {ran} s"
        );
    }
}

#[test]
fn a_change_back_ends_only_the_wait_of_its_template() {
    let mut view = with_broken_new_template(testing::pod(&nth(1)).failed(1).replacements(3).of(former()));
    let state = SetState::default();
    assert_eq!(
        replaced(&view, &state),
        (vec![], waits(2, 3, former())),
        "the first to be created is of the former template"
    );
    Arc::make_mut(&mut view.set).status.update_revision = None;
    assert_eq!(replaced(&view, &state), (vec![(None, 10)], waits(1, 3, former())));
}

#[test]
fn pods_wait_for_the_new_template_if_they_get_it_in_place_of_a_former_one_that_cannot_be_used() {
    let view = with_broken_new_template(testing::pod(&nth(1)).failed(0).of(new()));
    let mut state = SetState::default();
    assert_eq!(replaced(&view, &state), (vec![(Some(former()), 0)], waits(1, 255, new())));
    state.preparation.unusable = Some((former(), 1));
    assert_eq!(replaced(&view, &state), (vec![], waits(2, 255, new())));
}
