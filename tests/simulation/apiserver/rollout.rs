//! The checker of a promise to users: a template that does not work takes no more pods than `maxUnavailable`. Fed with every change
//! of the store. Reads changes; changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use super::{
    kinds::{PODS, PODSETS, REVISIONS},
    object,
    store::{Change, ChangeKind},
};

/// What is known of one set.
#[derive(Default)]
struct Watched {
    /// The most pods that may be unavailable, by generation.
    max_unavailable: BTreeMap<i64, u64>,
    /// The generations that may be in force, as far as the status tells.
    generations: Option<RangeInclusive<i64>>,
    /// Whether a template worked, and its name is in the status.
    has_former: bool,
    /// Whether somebody took the name of that template, or the template itself, from the operator.
    is_spoilt: bool,
    /// The live pods of each revision that is broken.
    broken: BTreeMap<String, BTreeSet<String>>,
}

/// The checker.
#[derive(Default)]
pub struct Rollouts {
    sets: BTreeMap<String, Watched>,
    violations: Vec<String>,
}

impl Rollouts {
    /// Takes in a change.
    pub fn observe(&mut self, change: &Change) {
        let (object, is_gone) = (&change.object, change.change == ChangeKind::Deleted);
        let uid = if *change.kind == PODSETS { Some(object::uid(object)) } else { object::controller_uid(object) };
        let Some(uid) = uid else { return };
        let watched = self.sets.entry(uid.to_owned()).or_default();
        if *change.kind == PODSETS {
            watched.set(change);
        } else if *change.kind == REVISIONS {
            watched.is_spoilt |= is_gone && change.by == "user";
        } else if *change.kind == PODS
            && object::is_broken(object)
            && let Some(revision) = object["metadata"]["labels"]["controller-revision-hash"].as_str()
        {
            let live = watched.broken.entry(revision.to_owned()).or_default();
            live.remove(object::uid(object));
            if !is_gone && object::is_live(object) {
                live.insert(object::uid(object).to_owned());
            }
            let live = live.len() as u64;
            let is_checked = change.change == ChangeKind::Added && watched.has_former && !watched.is_spoilt;
            if let Some(most) = watched.most_broken().filter(|most| is_checked && live > *most) {
                self.violations.push(format!("{live} pods have a broken template where {most} may: {change}"));
            }
        }
    }

    /// All violations so far.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}

impl Watched {
    fn set(&mut self, change: &Change) {
        let set = &change.object;
        let generation = object::generation(set);
        let is_careful = set["spec"]["updateStrategy"]["type"] != "OnDelete";
        self.max_unavailable.insert(generation, if is_careful { object::max_unavailable(set) } else { u64::MAX });
        let observed = set["status"]["observedGeneration"].as_i64().unwrap_or_default();
        self.generations = Some(observed.min(generation)..=generation);
        self.has_former = set["status"]["currentRevision"].is_string();
        self.is_spoilt |=
            change.by == "user" && change.before.as_ref().is_some_and(|before| before["status"] != set["status"]);
    }

    fn most_broken(&self) -> Option<u64> {
        self.max_unavailable.range(self.generations.clone()?).map(|(_, most)| *most).max()
    }
}
