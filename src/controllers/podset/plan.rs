//! Second stage, *plan*: what should happen. Pure: no I/O, no clock, no chance.
//!
//! In: a set, its pods, what is remembered of it, and the time. Out: a [`Plan`]. Everything that is decided about pods is
//! decided here; how many are created, in [`Count::missing`].

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{
    observe::{Pod, Pods, Seen, Set, View, Wanted},
    promise::Rules,
    ranking, restart_backoff,
    set_state::SetState,
};
use crate::controllers::{ObjectKey, meta::Uid};

/// What is known of pod names.
pub trait Names {
    /// Whether a pod of this name exists, as far as is known, whoever owns it.
    fn is_known(&self, name: &str) -> bool;
    /// Whether a pod of this name ended so lately that no other may take it.
    fn is_resting(&self, name: &str) -> bool;
}

/// The names in the namespace of a set.
#[derive(Debug)]
pub struct NamesIn<'a> {
    /// The cache.
    pub pods: &'a Pods,
    /// Any key of the namespace.
    pub set: &'a ObjectKey,
    /// The time.
    pub now: Timestamp,
}

impl NamesIn<'_> {
    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.set.namespace.clone(), name)
    }
}

impl Names for NamesIn<'_> {
    fn is_known(&self, name: &str) -> bool {
        self.pods.is_known(&self.key(name), self.now)
    }

    fn is_resting(&self, name: &str) -> bool {
        self.pods.is_resting(&self.key(name), self.now)
    }
}

/// What should happen to the pods of a set.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How the set stands.
    pub count: Count,
    /// Pods to create.
    pub create: Vec<Creation>,
    /// Pods to delete.
    pub delete: Vec<Deletion>,
    /// Pods that are to go although their delete was rejected, whether it is tried again now or later.
    pub rejected: BTreeSet<Uid>,
    /// Pods of which only a read can tell whether they exist.
    pub look: Vec<Seen>,
    /// Names whose create can take effect no more: a read tells whether it did.
    pub probe: Vec<String>,
    /// Pods to which the watched label is given back.
    pub relabel: Vec<Seen>,
    /// Why what is missing is not created, or what is surplus not deleted, now.
    pub hold: Hold,
    /// When to plan again although nothing happens.
    pub wake: Option<Timestamp>,
}

/// A pod to create.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Creation {
    /// Index of its name.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// How many replacements in a row led to it; 0 for a pod that replaces none.
    pub replacements: u32,
    /// Whether a create of this name was sent already whose fate is unknown.
    pub is_repeated: bool,
}

/// A pod to delete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deletion {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID: this incarnation and no other.
    pub uid: Uid,
    /// The resourceVersion of the state that is known of it; 0 for a pod that no cache holds.
    pub version: u64,
    /// Why.
    pub why: Why,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// More pods live than are wanted.
    Surplus,
    /// It finished, and enough finished pods are kept.
    Finished,
    /// It was made otherwise than ordered.
    Stray,
}

/// Why a plan waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Hold {
    /// It does not.
    #[default]
    Nothing,
    /// The last try failed.
    Failure,
    /// Pods keep finishing.
    Finishing,
    /// Nothing will be possible: the set or its namespace is being deleted, or its spec cannot be read.
    Forever,
}

/// How a set stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Count {
    /// Pods wanted.
    pub wanted: usize,
    /// Pods that are live, as far as is known.
    pub live: usize,
    /// Pods that live or may live: the live ones and the creates of unknown fate, each name once.
    pub occupied: usize,
    /// Live pods that are certain: seen, and not lost sight of.
    pub certain: usize,
}

impl Count {
    /// How many pods may be created under new names: **the line that keeps the promise**. Whatever may live counts.
    pub fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.occupied)
    }

    /// How many pods must go. Only what is certain counts: a pod that may not exist must not cost another one its life.
    pub fn surplus(&self) -> usize {
        self.certain.saturating_sub(self.wanted)
    }
}

impl Plan {
    /// Whether it asks for a write.
    pub fn has_writes(&self) -> bool {
        !(self.create.is_empty() && self.delete.is_empty() && self.relabel.is_empty())
    }

    /// Whether it creates pods of a set that may be no more: it makes up for pods that were lost since the set's status was written or
    /// its last pass ended, and they may go because the set goes; or strangers have names of it, and they may be of a set made anew.
    pub fn creates_in_doubt(&self, set: &Set, state: &SetState) -> bool {
        let told = usize::try_from(set.status.available_replicas).unwrap_or_default();
        !self.create.is_empty() && (state.met_stranger || self.count.live < told.max(state.live))
    }

    /// Whether it deletes a pod that no delete was rejected for yet.
    pub fn deletes_others(&self, state: &SetState) -> bool {
        self.delete.iter().any(|deletion| !state.rejected.contains(&deletion.uid))
    }

    /// Whether it asks for anything.
    pub fn has_work(&self) -> bool {
        self.has_writes() || !(self.look.is_empty() && self.probe.is_empty())
    }
}

/// Plans one step.
pub fn plan(view: &View, state: &SetState, names: &dyn Names, rules: &Rules, now: Timestamp) -> Plan {
    let plan = wished(view, state, names, rules, now);
    match state.waits_until(view.set.generation, now) {
        Some(until) if plan.has_work() => {
            let wake = soonest(plan.wake, Some(until));
            Plan { count: plan.count, rejected: plan.rejected, hold: Hold::Failure, wake, ..Plan::default() }
        }
        _ => plan,
    }
}

/// What would be done if nothing had failed lately.
fn wished(view: &View, state: &SetState, names: &dyn Names, rules: &Rules, now: Timestamp) -> Plan {
    let View { set, pods, .. } = view;
    let plan = Plan {
        count: count(view, state),
        look: pods.iter().filter(|seen| seen.look_at().is_some_and(|at| at <= now)).cloned().collect(),
        probe: state.overdue(now, rules.quarantine).map(str::to_owned).collect(),
        wake: wake(view, state, rules, now),
        ..Plan::default()
    };
    let plan = plan.with_deletes(strays(view, state), state, now);
    let wanted = match &set.wanted {
        Ok(wanted) if !set.is_deleting => wanted,
        _ => {
            return Plan { hold: Hold::Forever, ..plan };
        }
    };
    let (count, relabel) = (plan.count, unlabelled(view, state, now));
    let rejected = plan.rejected.into_iter().chain(undeletable(view, state, count)).collect();
    let plan = Plan { relabel, rejected, ..plan }
        .with_deletes(victims(view, state, count, now), state, now)
        .with_deletes(superfluous(pods, state), state, now);
    plan_creates(plan, view, wanted, state, names, rules, now)
}

fn unlabelled(view: &View, state: &SetState, now: Timestamp) -> Vec<Seen> {
    let is_stray = |seen: &Seen| state.strays.contains_key(&seen.pod.uid);
    let waits = |seen: &Seen| state.relabels.waits_until(&seen.pod.uid, seen.pod.version, now).is_some();
    let lacks_label =
        |seen: &&Seen| !seen.pod.is_labelled && !seen.is_terminating() && !seen.is_missing && !is_stray(seen);
    view.pods.iter().filter(lacks_label).filter(|seen| !waits(seen)).cloned().collect()
}

fn count(view: &View, state: &SetState) -> Count {
    let live: BTreeSet<&str> = view.pods.iter().filter(|seen| seen.is_live()).map(|seen| &*seen.pod.key.name).collect();
    let unseen = state.unknown().filter(|name| !live.contains(name)).count();
    Count {
        wanted: view.set.replicas(),
        live: live.len(),
        occupied: live.len() + unseen,
        certain: view.pods.iter().filter(|seen| seen.is_live() && !seen.is_missing).count(),
    }
}

/// Adds what is to be created, or why it is not yet.
fn plan_creates(
    plan: Plan,
    view: &View,
    wanted: &Wanted,
    state: &SetState,
    names: &dyn Names,
    rules: &Rules,
    now: Timestamp,
) -> Plan {
    if let Some(until) = state.rests_until(view.set.generation, now) {
        return Plan { hold: Hold::Forever, wake: soonest(plan.wake, Some(until)), ..plan };
    }
    // A pod that was changed on its way would be changed again: first it must be gone.
    if plan.count.occupied > wanted.replicas || state.strays_hold() {
        return plan;
    }
    let mut create = creations(view, &plan, state, names, rules);
    let replacement = state.finishes.next;
    // What else is missing was deleted, or never made, and waits for nothing.
    let at_once = replacement.map_or(create.len(), |next| create.len().saturating_sub(next.pods));
    if let Some(next) = replacement {
        create.iter_mut().skip(at_once).for_each(|creation| creation.replacements = next.count);
    }
    // A new spec may be the cure: it is tried at once, and once.
    let generation = Some(view.set.generation);
    let is_tried = view.set.status.observed_generation == generation || state.tried_generation == generation;
    match replacement.filter(|next| next.due > now && is_tried) {
        Some(next) if create.len() > at_once => {
            create.truncate(at_once);
            Plan { create, hold: Hold::Finishing, wake: soonest(plan.wake, Some(next.due)), ..plan }
        }
        _ => Plan { create, ..plan },
    }
}

/// First the names that were asked for already and show no pod: of those whose fate is unknown all, for they count;
/// then the lowest names that are free.
fn creations(view: &View, plan: &Plan, state: &SetState, names: &dyn Names, rules: &Rules) -> Vec<Creation> {
    let set = &view.set;
    let mut creations = Vec::new();
    let mut left = plan.count.missing();
    for (name, create) in &state.creates {
        let is_absent = !names.is_known(name) && (create.is_unknown || !names.is_resting(name));
        if is_absent && (create.is_unknown || left > 0) {
            let (index, name, is_repeated) = (create.index, name.clone(), create.is_unknown);
            creations.push(Creation { index, name, replacements: 0, is_repeated });
            left -= usize::from(!create.is_unknown);
        }
    }
    for index in 0.. {
        if left == 0 {
            break;
        }
        let name = (rules.name)(&set.key.name, &set.uid, index);
        let is_free = !names.is_known(&name) && !names.is_resting(&name) && !state.creates.contains_key(&name);
        if is_free {
            creations.push(Creation { index, name, replacements: 0, is_repeated: false });
            left -= 1;
        }
    }
    creations
}

impl Plan {
    /// Adds these deletes, but for those that were rejected and whose delay still runs.
    fn with_deletes(mut self, deletions: Vec<Deletion>, state: &SetState, now: Timestamp) -> Plan {
        for deletion in deletions {
            if state.rejected.contains(&deletion.uid) {
                self.rejected.insert(deletion.uid.clone());
            }
            match state.rejected.waits_until(&deletion.uid, deletion.version, now) {
                Some(until) => self.wake = soonest(self.wake, Some(until)),
                None => self.delete.push(deletion),
            }
        }
        self
    }
}

fn strays(view: &View, state: &SetState) -> Vec<Deletion> {
    let version = |uid: &Uid| view.pods.iter().find(|seen| seen.pod.uid == *uid).map_or(0, |seen| seen.pod.version);
    let deletion = |(uid, name): (&Uid, &String)| Deletion {
        key: ObjectKey::new(view.set.key.namespace.clone(), name.as_str()),
        uid: uid.clone(),
        version: version(uid),
        why: Why::Stray,
    };
    state.strays.iter().map(deletion).collect()
}

/// The pods that a scale-down takes. A pod whose delete was rejected is among them, but the next one goes in its place; unless an
/// earlier delete of it was not answered, and may still take effect.
fn victims(view: &View, state: &SetState, count: Count, now: Timestamp) -> Vec<Deletion> {
    let may_go = |seen: &Seen| {
        let Pod { uid, version, .. } = &*seen.pod;
        state.rejected.waits_until(uid, *version, now).is_none() || state.is_going(uid)
    };
    let certain = view.pods.iter().filter(|seen| seen.is_live() && !seen.is_missing);
    let (strays, candidates): (Vec<&Seen>, Vec<&Seen>) =
        certain.partition(|seen| state.strays.contains_key(&seen.pod.uid));
    let going_anyway = strays.iter().filter(|seen| may_go(seen)).count();
    let mut left = count.surplus().saturating_sub(going_anyway);
    if left == 0 {
        return Vec::new();
    }
    let mut victims = Vec::new();
    for seen in ranking::victims_first(&candidates, state) {
        if left == 0 {
            break;
        }
        left -= usize::from(may_go(seen));
        victims.push(deletion(seen, Why::Surplus));
    }
    // What failed before does not keep the others from being tried.
    victims.sort_by_key(|victim| state.is_going(&victim.uid));
    victims
}

/// The pods that cannot be deleted while one of them is surplus.
fn undeletable(view: &View, state: &SetState, count: Count) -> impl Iterator<Item = Uid> {
    let uids = view.pods.iter().filter(move |seen| count.surplus() > 0 && seen.is_live()).map(|seen| &seen.pod.uid);
    uids.filter(|uid| state.rejected.contains(uid)).cloned()
}

/// Finished pods that are more than are kept; none for a while after the delete of one was not answered.
fn superfluous(pods: &[Seen], state: &SetState) -> Vec<Deletion> {
    let finished: Vec<&Seen> = pods.iter().filter(|seen| seen.pod.is_finished() && !seen.is_terminating()).collect();
    if finished.iter().any(|seen| state.is_going(&seen.pod.uid)) {
        return Vec::new();
    }
    restart_backoff::superfluous(&finished).into_iter().map(|seen| deletion(seen, Why::Finished)).collect()
}

fn deletion(seen: &Seen, why: Why) -> Deletion {
    Deletion { key: seen.pod.key.clone(), uid: seen.pod.uid.clone(), version: seen.pod.version, why }
}

/// When time alone will change the picture.
fn wake(view: &View, state: &SetState, rules: &Rules, now: Timestamp) -> Option<Timestamp> {
    let look = view.pods.iter().filter_map(Seen::look_at).filter(|at| *at > now).min();
    let relabel = |Seen { pod, .. }: &Seen| state.relabels.waits_until(&pod.uid, pod.version, now);
    let relabel = view.pods.iter().filter_map(relabel).min();
    soonest(soonest(look, relabel), state.next_settled(now, rules.quarantine))
}

/// The earlier of two times.
pub fn soonest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
