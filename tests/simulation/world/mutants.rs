//! Mutants: the operator without one of its mechanisms. Some world must fail without it; otherwise the mechanism is
//! useless or not tested.
//!
//! Four mechanisms have no mutant here, because no world fails without them:
//! - the same name for the same intent. Names and the state of unknown fates replace each other; A1 in
//!   `attacks/names.rs` runs without both.
//! - the rest of a name after its pod's end. It is a second line of defence: as long as no request takes effect after
//!   its sender's lease, it is not needed. A2 in `attacks/leaders.rs` runs without the first one.
//! - a pod that ends before its create is answered. Without this rule, the read of unconfirmed objects notices the end
//!   a minute later. A6 in `attacks/events.rs` measures the time.
//! - a read that is ahead of the watch. Without this rule, the watch corrects the view when it catches up. A5 in
//!   `attacks/events.rs` counts the pods that are deleted until then.

use jiff::{SignedDuration, Timestamp};
use leadership::promise::Rules;
use podset_operator::{
    api::{self, PodSetStatus},
    podset::{
        self,
        observe::{CacheRules, View},
        plan::{Plan, RolloutRules},
        set_state::SetState,
    },
};

use super::{Variant, play};

/// The number of seeds in which each mutant must fail.
const WITHIN: u64 = 300;

/// An operator without one of its mechanisms.
struct Mutant {
    name: &'static str,
    variant: Variant,
}

fn bound(name: &'static str, podset: podset::promise::Rules) -> Mutant {
    Mutant { name, variant: Variant { podset, ..Variant::default() } }
}

fn cached(name: &'static str, cache: CacheRules) -> Mutant {
    bound(name, podset::promise::Rules { cache, ..podset::promise::Rules::default() })
}

fn election(name: &'static str, leader: Rules) -> Mutant {
    Mutant { name, variant: Variant { leader, ..Variant::default() } }
}

fn acknowledge(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus {
    let observed_generation = Some(view.set.generation);
    PodSetStatus { observed_generation, ..podset::status::status(view, plan, state, wall) }
}

fn mutants() -> Vec<Mutant> {
    let (podset, leader) = (podset::promise::Rules::default(), leadership::promise::Rules::default());
    let cache = podset.cache;
    let unproven = RolloutRules { most_updated: |most, _, _| most, ..RolloutRules::default() };
    let unbounded = RolloutRules { may_delete_available: |_, _| true, ..unproven };
    let careless = RolloutRules { is_careful: false, ..RolloutRules::default() };
    vec![
        cached("unknown fates are forgotten", CacheRules { quarantine: SignedDuration::ZERO, ..cache }),
        cached(
            "unknown fates are forgotten after 30 s",
            CacheRules { quarantine: SignedDuration::from_secs(30), ..cache },
        ),
        bound("time alone resolves an unknown fate", podset::promise::Rules { may_forget: |_| true, ..podset }),
        bound(
            "the take-over reads only labelled pods",
            podset::promise::Rules { taken_over: Some(api::WATCHED_PODS), ..podset },
        ),
        bound("a generation is acknowledged at once", podset::promise::Rules { status: acknowledge, ..podset }),
        bound("a status carries no version", podset::promise::Rules { status_version: |_| None, ..podset }),
        bound("nothing is read at take-over", podset::promise::Rules { is_unread: |_, _| false, ..podset }),
        cached("stale states are accepted", CacheRules { is_stale: |_, _| false, ..cache }),
        cached("pods that left the watch do not count", CacheRules { may_count: |_, _| false, ..cache }),
        bound("terminating pods do not count", podset::promise::Rules { may_run: |_| false, ..podset }),
        cached(
            "terminating pods that left the watch do not count",
            CacheRules { may_count: |pod, _| !pod.is_terminating, ..cache },
        ),
        bound("any pod with the name is ours", podset::promise::Rules { is_ours: |_, _| true, ..podset }),
        bound("created pods are not checked", podset::promise::Rules { differs: |_, _, _, _| None, ..podset }),
        bound("a delete carries no UID", podset::promise::Rules { precondition: |_| None, ..podset }),
        cached("ownership by UID alone", CacheRules { home: |_| "anywhere".into(), ..cache }),
        bound("a rollout deletes any number of pods", podset::promise::Rules { rollout: unbounded, ..podset }),
        bound("a rollout updates any number of pods", podset::promise::Rules { rollout: unproven, ..podset }),
        bound("a lost pod gets the new template", podset::promise::Rules { rollout: careless, ..podset }),
        bound("a rejected delete blocks the set", podset::promise::Rules { is_confined: |_| false, ..podset }),
        election("only the own lease duration counts", Rules { wait: |own, _| own, ..leader }),
        election("no read confirms the expiry", Rules { is_free: |before, _, _| before.is_some(), ..leader }),
        election("a write of the Lease carries no version", Rules { version: |_| None, ..leader }),
        election("a term starts with the answer", Rules { term_from: |_, answered| answered, ..leader }),
        election("a lost lease goes unnoticed", Rules { has_lost: |_| false, ..leader }),
        election("the lease is released at once", Rules { may_release: |_| true, ..leader }),
        election("the gate is always open", Rules { may_leave: |_| true, ..leader }),
        Mutant { name: "writes may outlast the term", variant: Variant { is_bounded: false, ..Variant::default() } },
    ]
}

#[test]
#[ignore = "a thousand worlds: make mutants"]
fn each_removed_mechanism_makes_a_world_fail() {
    let mut survivors = Vec::new();
    for Mutant { name, variant } in mutants() {
        let summary = play::play_all(0..WITHIN, variant, true, false);
        match summary.broken.first_key_value() {
            Some((seed, outcome)) => {
                let broken = outcome.broken.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
                eprintln!("{name}: {} seeds, {:.0} s, seed {seed}: {broken}", summary.seeds, summary.seconds);
            }
            None => survivors.push(format!("{name}: no failure in {WITHIN} seeds")),
        }
    }
    assert!(survivors.is_empty(), "{survivors:#?}");
}
