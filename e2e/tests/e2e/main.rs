//! The scenarios: what people who run the operator see, on a real API server. Each file tells some stories about one
//! promise; what they are told with is in the crate's library.
//!
//! `cargo test -p e2e` runs all of them, `cargo test -p e2e -- quota` those with that word in their name.

mod admission;
mod autoscaler;
mod budget;
mod control_plane;
mod deletion;
mod failing;
mod faults;
mod foreign;
mod friend;
mod guard;
mod healing;
mod installations;
mod kubectl;
mod labels;
mod large;
mod leader;
mod memory;
mod namespace;
mod policy;
mod quota;
mod ranking;
mod refusals;
mod restart;
mod rights;
mod sample;
mod scale;
mod stir;
mod template;
mod terminations;
mod traces;
mod undeletable;
mod wait;

use std::path::Path;
use std::process::ExitCode;

use e2e::cluster::Wanted;
use e2e::cluster::needs::Need::*;
use e2e::suite::{Scenario, run};

fn main() -> ExitCode {
    let large = Wanted { nodes: 5, pods_a_node: 100_000, ..Wanted::default() };
    // Requests are counted, and a node would take few of these pods.
    let counted = [AuditLog, SimulatedPods];
    // The operator is killed or put behind a proxy, and pods die by the dozen.
    let tormented = [Processes, SimulatedPods];
    // The longest first, so that none of them is still at it when all others are done.
    let hundred_sets = Scenario::new("budget_of_100_sets", budget::hundred_sets).in_own_cluster(large.clone()).heavy();
    let large_set = Scenario::new("large_set_of_5000", large::set_of_5000)
        .in_own_cluster(Wanted { unthrottled: true, ..large })
        .heavy();
    let scripted = Wanted { stages: true, ..Wanted::default() };
    let mut scenarios = vec![large_set.needs(&counted), hundred_sets.needs(&counted).needs(&[Processes])];
    scenarios.extend(faults::scenarios().into_iter().map(|scenario| scenario.needs(&tormented)));
    scenarios.extend([
        Scenario::new("memory_with_large_objects", memory::with_large_objects)
            .in_own_cluster(Wanted::default())
            .heavy()
            .needs(&tormented),
        Scenario::new("control_plane_api_server_restarts", control_plane::api_server_restarts)
            .in_own_cluster(Wanted::default())
            .needs(&[ControlPlane, Processes]),
        Scenario::new("control_plane_etcd_restarts", control_plane::etcd_restarts)
            .in_own_cluster(Wanted::default())
            .needs(&[ControlPlane, Processes]),
        traces::scenario(),
        Scenario::new("failing_pods_by_their_own_doing", failing::by_their_own_doing)
            .in_own_cluster(scripted)
            .needs(&[Stages, AuditLog]),
    ]);
    scenarios.extend([
        Scenario::new("sample_scales_and_heals", sample::scales_and_heals),
        Scenario::new("scale_up", scale::up),
        Scenario::new("scale_down", scale::down),
        Scenario::new("deletion_in_the_foreground", deletion::in_the_foreground),
        Scenario::new("deletion_in_the_background", deletion::in_the_background),
        Scenario::new("deletion_that_orphans", deletion::that_orphans),
        Scenario::new("autoscaler_keeps_a_set_within_its_bounds", autoscaler::keeps_a_set_within_its_bounds),
        Scenario::new("healing_of_killed_and_evicted_pods", healing::of_killed_and_evicted_pods),
        Scenario::new("foreign_pods_are_left_alone", foreign::pods_are_left_alone),
        Scenario::new("foreign_pods_claim_a_set_of_another_namespace", foreign::pods_claim_a_set_of_another_namespace)
            .needs(&[AuditLog]),
        Scenario::new("undeletable_pods_do_not_block_their_set", undeletable::pods_do_not_block_their_set)
            .needs(&[AuditLog]),
        Scenario::new("admission_takes_the_label_away", admission::takes_the_label_away),
        Scenario::new("admission_takes_the_owner_away", admission::takes_the_owner_away),
        Scenario::new("admission_adds_to_pods", admission::adds_to_pods),
        Scenario::new("admission_refuses_pods", admission::refuses_pods),
        Scenario::new("restart_while_creates_are_late", restart::while_creates_are_late).needs(&tormented),
        Scenario::new("restart_in_the_middle", restart::in_the_middle).needs(&tormented),
        Scenario::new("restart_in_an_orderly_way", restart::in_an_orderly_way).needs(&tormented),
        Scenario::new("quota_refuses_and_grows", quota::refuses_and_grows).needs(&[AuditLog]),
        // The status of pods is written by hand: a kubelet would have its own opinion of them.
        Scenario::new("failing_pods_are_replaced_ever_more_slowly", failing::replaced_ever_more_slowly)
            .needs(&[SimulatedPods])
            .by_the_clock(),
        Scenario::new("friend_appears_and_vanishes", friend::appears_and_vanishes),
        Scenario::new("budget_of_one_set", budget::one_set).needs(&counted),
        Scenario::new("budget_under_churn", budget::under_churn).needs(&counted),
        Scenario::new("budget_under_flapping", budget::under_flapping).needs(&counted),
        // Its images are nobody's.
        Scenario::new("template_is_for_new_pods", template::is_for_new_pods).needs(&[SimulatedPods]),
        Scenario::new("template_that_is_invalid_stalls", template::that_is_invalid_stalls),
        Scenario::new("template_under_pod_security", template::under_pod_security),
        Scenario::new("ranking_of_victims", ranking::of_victims).needs(&[SimulatedPods]),
        Scenario::new("label_taken_away_comes_back", labels::taken_away_comes_back),
        Scenario::new("label_taken_away_unseen", labels::taken_away_unseen).needs(&[Processes]),
        Scenario::new("namespace_deleted_under_a_set", namespace::deleted_under_a_set).needs(&[AuditLog, Processes]),
        Scenario::new("refusals_of_a_podset", refusals::of_a_podset),
        Scenario::new("refusals_of_a_template", refusals::of_a_template),
        Scenario::new("refusals_of_a_mycustomresource", refusals::of_a_mycustomresource),
        Scenario::new("namespace_deleted_in_the_middle_of_a_scale_up", namespace::deleted_in_the_middle_of_a_scale_up)
            .needs(&[AuditLog, Processes]),
        Scenario::new("policy_restricts_templates", policy::restricts_templates).in_own_cluster(Wanted::default()),
        Scenario::new("terminations_are_waited_for", terminations::are_waited_for).needs(&[SimulatedPods]),
        Scenario::new("terminations_on_a_lost_node", terminations::on_a_lost_node)
            .in_own_cluster(Wanted { stages: true, ..Wanted::default() })
            .needs(&[SimulatedPods, Stages]),
        Scenario::new("guard_rejects_forced_deletes", guard::rejects_forced_deletes)
            .in_own_cluster(Wanted::default())
            .needs(&[SimulatedPods]),
        Scenario::new("rights_of_an_editor", rights::of_an_editor),
        Scenario::new("rights_are_those_of_the_folder", rights::are_those_of_the_folder),
        Scenario::new("rights_are_all_used", rights::are_all_used).needs(&[AuditLog, Processes]),
        Scenario::new("rights_to_finalizers_are_needed", rights::to_finalizers_are_needed)
            .needs(&[StrictOwners, Processes]),
        Scenario::new("installations_by_hand_joins_or_ends", installations::by_hand_joins_or_ends)
            .in_own_cluster(Wanted::default())
            .needs(&[AuditLog, Processes]),
        Scenario::new("installations_lookup_is_not_permitted", installations::lookup_is_not_permitted)
            .needs(&[Processes]),
        Scenario::new("installations_on_the_same_sets_are_noticed", installations::on_the_same_sets_are_noticed)
            .needs(&[Processes]),
        Scenario::new("kubectl_scales_and_shows", kubectl::scales_and_shows),
        Scenario::new("kubectl_applies_the_folders", kubectl::applies_the_folders),
    ]);
    // Last: while they waited for those that want much of the machine they would keep others from running.
    let elections = leader::scenarios().into_iter();
    scenarios.extend(elections.map(|scenario| scenario.needs(&tormented).needs(&[AuditLog]).by_the_clock()));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("e2e");
    run(folder, scenarios)
}
