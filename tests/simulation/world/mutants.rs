//! Mutants: the operator without one of its mechanisms. Some world must fail without it; otherwise the mechanism is
//! useless or not tested.
//!
//! Four mechanisms have no mutant here, because no world fails without them:
//! - the same name for the same intent. Names and the state of unknown fates replace each other; A1 in
//!   `attacks/names.rs` runs without both.
//! - the rest of a name after its pod's end. It is a second line of defence: as long as no request takes effect after
//!   its sender's lease, it is not needed. A2 in `attacks/leaders.rs` runs without the first one.
//! - a pod that ends before its create is answered. Without this rule, the read of unconfirmed objects notices the end
//!   a minute later. A6 in `attacks/events.rs` fails if that takes more than 20 s.
//! - a read that is ahead of the watch. Without this rule, the watch corrects the view when it catches up. A5 in
//!   `attacks/events.rs` counts the pods that are deleted until then.

use jiff::{SignedDuration, Timestamp};
use leadership::promise::Rules as Election;
use podset_operator::{
    api::{self, PodSetStatus},
    podset::{
        self, SetState,
        observe::{CacheRules, View},
        plan::{Plan, RolloutRules},
        promise::Rules,
    },
};

use super::{Outcome, play};
use crate::replica::Model;

/// The number of seeds in which each mutant must fail.
const WITHIN: u64 = 300;

fn bound(podset: Rules) -> Model {
    Model { podset, ..Model::default() }
}

fn cached(cache: CacheRules) -> Model {
    bound(Rules { cache, ..Rules::default() })
}

fn rollout(rollout: RolloutRules) -> Model {
    bound(Rules { rollout, ..Rules::default() })
}

fn election(rules: Election) -> Model {
    Model { rules, ..Model::default() }
}

/// A status that observes the generation at once.
pub fn acknowledge(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus {
    let observed_generation = Some(view.set.generation);
    PodSetStatus { observed_generation, ..podset::status::status(view, plan, state, wall) }
}

fn mutants() -> Vec<(&'static str, Model)> {
    let (podset, leader) = (Rules::default(), Election::default());
    let cache = podset.cache;
    let unproven = RolloutRules { most_updated: |most, _, _| most, ..RolloutRules::default() };
    let unbounded = RolloutRules { may_delete_available: |_, _| true, ..unproven };
    let careless = RolloutRules { is_careful: false, ..RolloutRules::default() };
    let half_a_minute = SignedDuration::from_secs(30);
    vec![
        ("unknown fates are forgotten", cached(CacheRules { quarantine: SignedDuration::ZERO, ..cache })),
        ("unknown fates are forgotten after 30 s", cached(CacheRules { quarantine: half_a_minute, ..cache })),
        ("time alone resolves an unknown fate", bound(Rules { forgets_unknown: true, ..podset })),
        (
            "the take-over reads only labelled pods",
            bound(Rules { take_over_selector: Some(api::WATCHED_PODS), ..podset }),
        ),
        ("a generation is acknowledged at once", bound(Rules { status: acknowledge, ..podset })),
        ("a status carries no version", bound(Rules { status_version: |_| None, ..podset })),
        ("nothing is read at take-over", bound(Rules { reads_first: false, ..podset })),
        ("stale states are accepted", cached(CacheRules { is_stale: |_, _| false, ..cache })),
        ("pods that left the watch do not count", cached(CacheRules { may_count: |_, _| false, ..cache })),
        ("terminating pods do not count", bound(Rules { counts_terminating: false, ..podset })),
        (
            "terminating pods that left the watch do not count",
            cached(CacheRules { may_count: |pod, _| !pod.is_terminating, ..cache }),
        ),
        ("any pod with the name is ours", bound(Rules { is_ours: |_, _| true, ..podset })),
        ("created pods are not checked", bound(Rules { differs: |_, _, _, _| None, ..podset })),
        ("a delete carries no UID", bound(Rules { precondition: |_| None, ..podset })),
        ("ownership by UID alone", cached(CacheRules { home: |_| "anywhere".into(), ..cache })),
        ("a rollout deletes any number of pods", rollout(unbounded)),
        ("a rollout updates any number of pods", rollout(unproven)),
        ("a lost pod gets the new template", rollout(careless)),
        ("a rejected delete blocks the set", bound(Rules { is_confined: false, ..podset })),
        ("only the own lease duration counts", election(Election { wait: |own, _| own, ..leader })),
        ("no read confirms the expiry", election(Election { is_free: |before, _, _| before.is_some(), ..leader })),
        ("a write of the Lease carries no version", election(Election { version: |_| None, ..leader })),
        ("a term starts with the answer", election(Election { term_from: |_, answered| answered, ..leader })),
        ("a lost lease goes unnoticed", election(Election { has_lost: |_| false, ..leader })),
        ("the lease is released at once", election(Election { may_release: |_| true, ..leader })),
        ("the gate is always open", election(Election { may_leave: |_| true, ..leader })),
        ("writes may outlast the term", Model { is_bounded: false, ..Model::default() }),
    ]
}

#[test]
#[ignore = "a thousand worlds: make mutants"]
fn each_removed_mechanism_makes_a_world_fail() {
    let mut survivors = Vec::new();
    for (name, variant) in mutants() {
        let summary = play::play_all(0..WITHIN, variant, true);
        // A panic of the simulation itself shows no broken promise.
        let is_caught = |(_, outcome): &(&u64, &Outcome)| !outcome.first_line().starts_with(play::PANICKED);
        match summary.broken.iter().find(is_caught) {
            Some((seed, outcome)) => {
                let line = outcome.first_line();
                eprintln!("{name}: {} seeds, {:.0} s, seed {seed}: {line}", summary.seeds, summary.seconds);
            }
            None => {
                let panics: Vec<_> = summary.broken.values().map(Outcome::first_line).collect();
                survivors.push(format!("{name}: no broken promise in {} seeds {panics:?}", summary.seeds));
            }
        }
    }
    assert!(survivors.is_empty(), "{survivors:#?}");
}
