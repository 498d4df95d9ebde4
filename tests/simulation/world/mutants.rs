//! The operator with one of its mechanisms taken out: within so many seeds something must go wrong. A mechanism that nobody
//! misses is of no use, or not tested.
//!
//! Not here is the rest of a name after its pod's end. It is a second line: where the first holds, that no request takes
//! effect after its sender's lease, no world misses it; A2 in `attacks/leaders.rs` is told without the first.

use std::sync::atomic::{AtomicU32, Ordering};

use jiff::SignedDuration;
use podset_operator::{
    controllers::podset::{self, names::pod_name},
    leader::{
        self,
        locks::{Locks, Version},
    },
};

use super::{Variant, play};

/// An operator with something missing.
struct Mutant {
    name: &'static str,
    variant: Variant,
    /// Within how many seeds it is found.
    within: u64,
}

fn bound(name: &'static str, within: u64, podset: podset::locks::Locks) -> Mutant {
    Mutant { name, variant: Variant { podset, ..Variant::default() }, within }
}

fn election(name: &'static str, within: u64, leader: Locks) -> Mutant {
    Mutant { name, variant: Variant { leader, ..Variant::default() }, within }
}

fn drawn_anew(set: &str, uid: &str, _: u32) -> String {
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    pod_name(set, uid, DRAWN.fetch_add(1, Ordering::Relaxed))
}

fn mutants() -> Vec<Mutant> {
    let (podset, leader) = (podset::locks::Locks::default(), leader::locks::Locks::default());
    vec![
        bound("names are drawn anew", 300, podset::locks::Locks { name: drawn_anew, ..podset }),
        bound("an unknown fate is forgotten", 300, podset::locks::Locks { quarantine: SignedDuration::ZERO, ..podset }),
        bound("nothing is read at take-over", 300, podset::locks::Locks { is_unread: |_, _| false, ..podset }),
        bound("what is old is believed", 300, podset::locks::Locks { is_stale: |_, _| false, ..podset }),
        bound("every answer is believed", 300, podset::locks::Locks { has_ended: |_, _| false, ..podset }),
        bound("out of sight is gone", 300, podset::locks::Locks { may_live: |_| false, ..podset }),
        bound("whoever has the name is ours", 300, podset::locks::Locks { is_ours: |_, _| true, ..podset }),
        bound("what comes back is not looked at", 300, podset::locks::Locks { differs: |_, _, _| None, ..podset }),
        bound("a delete names no incarnation", 300, podset::locks::Locks { precondition: |_| None, ..podset }),
        election("the own duration alone counts", 300, Locks { wait: |own, _| own, ..leader }),
        election("a read need not confirm", 300, Locks { is_free: |before, _, _| before.is_some(), ..leader }),
        election("a write of the Lease carries no version", 300, Locks { version: |_| Version::Any, ..leader }),
        election("a term counts from the answer", 300, Locks { term_from: |_, answered| answered, ..leader }),
        election("a lease that is lost is not noticed", 300, Locks { has_lost: |_| false, ..leader }),
        election("the lease is given back at once", 300, Locks { may_release: |_| true, ..leader }),
        Mutant {
            name: "nobody asks where bytes leave",
            variant: Variant { is_gated: false, ..Variant::default() },
            within: 300,
        },
        Mutant {
            name: "writes are not bounded by the term",
            variant: Variant { is_bounded: false, is_gated: false, ..Variant::default() },
            within: 300,
        },
    ]
}

#[test]
fn every_mechanism_is_missed() {
    let mut useless = Vec::new();
    for Mutant { name, variant, within } in mutants() {
        let summary = play::play_all(0..within, variant, true, false);
        match summary.broken.first_key_value() {
            Some((seed, outcome)) => {
                let broken = outcome.broken.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
                eprintln!("{name}: {} seeds, {:.0} s, seed {seed}: {broken}", summary.seeds, summary.seconds);
            }
            None => useless.push(format!("{name}: nothing in {within} seeds")),
        }
    }
    assert!(useless.is_empty(), "{useless:#?}");
}
