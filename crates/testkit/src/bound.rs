//! Checks "never more than N": the live pods of a PodSet are at most the largest `spec.replicas` among the generations from
//! `status.observedGeneration` to `metadata.generation`. If all of these have `podReplacementPolicy: TerminationComplete`, the same holds for
//! the pods that may run, which include terminating ones that have a node. A deleted set keeps its last bound.
//!
//! The input is all changes of PodSets and pods, as JSON, in the order in which they happened. No I/O, no clock.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::Value;

use crate::object;

#[derive(Debug, Default)]
pub struct Bound {
    sets: HashMap<String, Set>,
    /// The owner of each pod, by UID.
    owners: HashMap<String, String>,
}

#[derive(Debug, Default)]
struct Set {
    namespace: String,
    name: String,
    observed: Option<i64>,
    generation: i64,
    /// By generation: the replicas, and whether the policy is TerminationComplete.
    wanted: BTreeMap<i64, (usize, bool)>,
    /// The names of pods by UID.
    live: BTreeMap<String, String>,
    /// The names of terminating pods that may still run, by UID.
    terminating: BTreeMap<String, String>,
}

/// The pods of a set after a change, and how many it may have.
#[derive(Debug)]
pub struct Check<'a> {
    uid: &'a str,
    set: &'a Set,
    /// The names of the pods that count, by UID.
    pub counted: BTreeMap<&'a str, &'a str>,
    /// How many pods may count; `None` if that is unknown, because not all generations of the set were seen.
    pub allowed: Option<usize>,
}

impl Check<'_> {
    pub fn is_over(&self) -> bool {
        self.allowed.is_some_and(|allowed| self.counted.len() > allowed)
    }
}

impl fmt::Display for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { uid, set: Set { namespace, name, live, terminating, .. }, counted, allowed } = self;
        let (count, allowed, names) = (counted.len(), allowed.unwrap_or(usize::MAX), counted.values());
        let (live, terminating) = (live.len(), terminating.len());
        write!(
            f,
            "{namespace}/{name} ({uid}) has {count} pods where {allowed} are allowed ({live} live, {terminating} terminating): "
        )?;
        f.debug_list().entries(names).finish()
    }
}

impl Bound {
    /// A PodSet was created, changed or deleted.
    pub fn set(&mut self, set: &Value, is_deleted: bool) -> Check<'_> {
        let uid = object::uid(set);
        let known = self.sets.entry(uid.to_owned()).or_default();
        if !is_deleted {
            known.namespace = object::namespace(set).to_owned();
            known.name = object::name(set).to_owned();
            known.observed = set["status"]["observedGeneration"].as_i64();
            known.generation = object::generation(set);
            let replicas = set["spec"]["replicas"].as_u64().and_then(|replicas| replicas.try_into().ok());
            let waits = set["spec"]["podReplacementPolicy"] == "TerminationComplete";
            known.wanted.insert(known.generation, (replicas.unwrap_or(1), waits));
        }
        self.check(uid)
    }

    /// Changes of this PodSet were missed. It is not checked until all generations that count are known again.
    pub fn forget(&mut self, uid: &str) {
        if let Some(known) = self.sets.get_mut(uid) {
            known.wanted.clear();
        }
    }

    /// A pod was created, changed or deleted. Checks its set, or the one that it belonged to; `None` if there is neither.
    pub fn pod(&mut self, pod: &Value, is_deleted: bool) -> Option<Check<'_>> {
        let uid = object::uid(pod);
        let former = self.owners.remove(uid);
        if let Some(set) = former.as_ref().and_then(|owner| self.sets.get_mut(owner)) {
            set.live.remove(uid);
            set.terminating.remove(uid);
        }
        let owner = object::controller_uid(pod).map(str::to_owned);
        if let Some(owner) = owner.clone().filter(|_| !is_deleted) {
            let set = self.sets.entry(owner.clone()).or_default();
            // A pod belongs to a set of its own namespace, or to none.
            if set.namespace.is_empty() || set.namespace == object::namespace(pod) {
                let name = object::name(pod).to_owned();
                if object::is_live(pod) {
                    set.live.insert(uid.to_owned(), name);
                } else if !object::is_finished(pod) && !pod["spec"]["nodeName"].is_null() {
                    set.terminating.insert(uid.to_owned(), name);
                }
                self.owners.insert(uid.to_owned(), owner);
            }
        }
        Some(self.check(&owner.or(former)?))
    }

    fn check(&mut self, uid: &str) -> Check<'_> {
        self.sets.entry(uid.to_owned()).or_default();
        let (uid, set) = self.sets.get_key_value(uid).expect("inserted above");
        let (allowed, waits) = set.allowed().map_or((None, false), |(allowed, waits)| (Some(allowed), waits));
        let counted = set.live.iter().chain(set.terminating.iter().filter(|_| waits));
        Check { uid, set, counted: counted.map(|(uid, name)| (&**uid, &**name)).collect(), allowed }
    }
}

impl Set {
    /// How many pods may count, and whether terminating ones do. `None` if a generation that counts is unknown.
    fn allowed(&self) -> Option<(usize, bool)> {
        let first = self.observed.unwrap_or(1).clamp(1, self.generation.max(1));
        let (from, _) = self.wanted.range(..=first).next_back()?;
        let wanted = || self.wanted.range(from..).map(|(_, wanted)| *wanted);
        Some((wanted().map(|(replicas, _)| replicas).max()?, wanted().all(|(_, waits)| waits)))
    }
}
