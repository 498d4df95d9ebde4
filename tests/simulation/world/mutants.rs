//! The operator with one of its mechanisms taken out: within so many seeds something must go wrong. A mechanism that nobody
//! misses is of no use, or not tested.
//!
//! Not here are four that no world misses:
//! - names that are the same for the same intent. Names and the state of unknown fates cover for each other: A1 in
//!   `attacks/names.rs` is told without both.
//! - the rest of a name after its pod's end. It is a second line: where the first holds, that no request takes effect after
//!   its sender's lease, nothing happens without it. A2 in `attacks/leaders.rs` is told without the first.
//! - that an end may be seen before its beginning is answered. Without it the read of what no watch confirmed finds out,
//!   a minute later: A6 in `attacks/events.rs` counts the seconds.
//! - that a read is ahead of the watch. Without it the watch finds out when it has come so far: A5 in `attacks/events.rs` counts the pods
//!   that were deleted for a ghost.

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

/// Within how many seeds each is found.
const WITHIN: u64 = 300;

/// An operator with something missing.
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

fn answered_at_once(view: &View, plan: &Plan, state: &SetState, wall: Timestamp) -> PodSetStatus {
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
        cached("an unknown fate is forgotten", CacheRules { quarantine: SignedDuration::ZERO, ..cache }),
        cached(
            "a request takes half a minute at most",
            CacheRules { quarantine: SignedDuration::from_secs(30), ..cache },
        ),
        bound("time alone settles an unknown fate", podset::promise::Rules { may_forget: |_| true, ..podset }),
        bound(
            "the take-over reads labelled pods alone",
            podset::promise::Rules { taken_over: Some(api::WATCHED_PODS), ..podset },
        ),
        bound("a generation is answered at once", podset::promise::Rules { status: answered_at_once, ..podset }),
        bound("a status names no version", podset::promise::Rules { status_version: |_| None, ..podset }),
        bound("nothing is read at take-over", podset::promise::Rules { is_unread: |_, _| false, ..podset }),
        cached("what is old is believed", CacheRules { is_stale: |_, _| false, ..cache }),
        cached("out of sight is gone", CacheRules { may_count: |_, _| false, ..cache }),
        bound("pods that are being deleted do not count", podset::promise::Rules { may_run: |_| false, ..podset }),
        cached(
            "a pod that is being deleted and out of sight is gone",
            CacheRules { may_count: |pod, _| !pod.is_terminating, ..cache },
        ),
        bound("whoever has the name is ours", podset::promise::Rules { is_ours: |_, _| true, ..podset }),
        bound("what comes back is not looked at", podset::promise::Rules { differs: |_, _, _, _| None, ..podset }),
        bound("a delete names no incarnation", podset::promise::Rules { precondition: |_| None, ..podset }),
        cached("ownership by UID alone", CacheRules { home: |_| "anywhere".into(), ..cache }),
        bound("a rollout loses any number of pods", podset::promise::Rules { rollout: unbounded, ..podset }),
        bound("a rollout makes any number of pods", podset::promise::Rules { rollout: unproven, ..podset }),
        bound("a lost pod gets the new template", podset::promise::Rules { rollout: careless, ..podset }),
        bound("one rejected delete holds up the set", podset::promise::Rules { is_confined: |_| false, ..podset }),
        election("the own duration alone counts", Rules { wait: |own, _| own, ..leader }),
        election("a read need not confirm", Rules { is_free: |before, _, _| before.is_some(), ..leader }),
        election("a write of the Lease carries no version", Rules { version: |_| None, ..leader }),
        election("a term counts from the answer", Rules { term_from: |_, answered| answered, ..leader }),
        election("a lease that is lost is not noticed", Rules { has_lost: |_| false, ..leader }),
        election("the lease is given back at once", Rules { may_release: |_| true, ..leader }),
        election("nobody asks where bytes leave", Rules { may_leave: |_| true, ..leader }),
        Mutant {
            name: "writes are not bounded by the term",
            variant: Variant { is_bounded: false, ..Variant::default() },
        },
    ]
}

#[test]
#[ignore = "a thousand worlds: make mutants"]
fn every_mechanism_is_missed() {
    let mut useless = Vec::new();
    for Mutant { name, variant } in mutants() {
        let summary = play::play_all(0..WITHIN, variant, true, false);
        match summary.broken.first_key_value() {
            Some((seed, outcome)) => {
                let broken = outcome.broken.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
                eprintln!("{name}: {} seeds, {:.0} s, seed {seed}: {broken}", summary.seeds, summary.seconds);
            }
            None => useless.push(format!("{name}: nothing in {WITHIN} seeds")),
        }
    }
    assert!(useless.is_empty(), "{useless:#?}");
}
