//! The checker of the promise "never more than N", fed with every change of the store.
//!
//! For each PodSet: live pods of its namespace ≤ the largest `spec.replicas` among the generations from
//! `status.observedGeneration` (absent: the first) to `metadata.generation`; for a set that is
//! gone, what held last. If all of these generations have podReplacementPolicy TerminationComplete, the same for pods
//! that may run: those that are being deleted count until they are finished or gone, unless they have no node. A pod that claims a set of another namespace belongs to none. A pod that
//! failed and runs again may exceed the bound for a while. Reads changes; changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    ops::RangeInclusive,
    time::Duration,
};

use super::{
    kinds::{PODS, PODSETS},
    object,
    store::{Change, ChangeKind},
};

/// For how long a pod that runs again may exceed the bound: its operator has to hear of it and to delete one.
const RUNS_AGAIN: Duration = Duration::from_secs(300);

/// How many changes of a set its history keeps.
const HISTORY: usize = 30;

/// A moment at which a set had too many live pods.
#[derive(Clone, Debug)]
pub struct Violation {
    /// UID of the set.
    pub uid: String,
    /// Namespace and name of the set.
    pub set: String,
    /// Live pods, or pods that may run, more than `bound`.
    pub live: usize,
    /// Live pods allowed.
    pub bound: usize,
    /// The last changes of the set and its pods, the violating one at the end.
    pub history: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { uid, set, live, bound, history } = self;
        write!(f, "{set} ({uid}) had {live} live pods where {bound} are allowed:\n{}", history.join("\n"))
    }
}

/// What is known of one set.
#[derive(Debug, Default)]
struct Watched {
    set: String,
    replicas: BTreeMap<i64, usize>,
    /// Whether a generation waits for terminations.
    waits: BTreeMap<i64, bool>,
    generation: i64,
    observed: Option<i64>,
    live: BTreeSet<String>,
    /// Pods that are being deleted and may still run.
    ending: BTreeSet<String>,
    /// Pods that failed and run again, each since when.
    again: BTreeMap<String, Duration>,
    most_live: usize,
    history: VecDeque<String>,
}

impl Watched {
    /// The generations that the set may have as far as its status tells.
    fn generations(&self) -> Option<RangeInclusive<i64>> {
        let first = self.replicas.keys().next()?;
        let from = self.observed.unwrap_or(*first).min(self.generation);
        // The generation in force at `from` may be one without a change of the spec.
        let from = self.replicas.range(..=from).next_back().map_or(from, |(generation, _)| *generation);
        Some(from..=self.generation.max(from))
    }

    /// The pods that count.
    fn counted(&self) -> BTreeSet<&String> {
        let waits = self.generations().is_some_and(|range| self.waits.range(range).all(|(_, waits)| *waits));
        let ending = self.ending.iter().filter(|_| waits);
        self.live.iter().chain(ending).collect()
    }

    /// None until the set was seen: a pod may be stored with the UID of a set that never was.
    fn bound(&self) -> Option<usize> {
        self.replicas.range(self.generations()?).map(|(_, n)| *n).max()
    }
}

/// The checker.
#[derive(Default)]
pub struct Promise {
    sets: BTreeMap<String, Watched>,
    violations: Vec<Violation>,
}

impl Promise {
    /// Takes in a change and checks the set that it concerns.
    pub fn observe(&mut self, change: &Change) {
        let uid = if *change.kind == PODSETS {
            self.observe_set(change);
            object::uid(&change.object).to_owned()
        } else if *change.kind == PODS {
            self.observe_pod(change);
            let before = change.before.as_ref().and_then(|pod| object::controller_uid(pod));
            match object::controller_uid(&change.object).or(before) {
                Some(owner) => owner.to_owned(),
                None => return,
            }
        } else {
            return;
        };
        let watched = self.sets.entry(uid.clone()).or_default();
        watched.history.push_back(format!("{change}: {} live, {} ending", watched.live.len(), watched.ending.len()));
        if watched.history.len() > HISTORY {
            watched.history.pop_front();
        }
        watched.most_live = watched.most_live.max(watched.live.len());
        let is_exempt = |uid: &&String| watched.again.get(*uid).is_some_and(|since| *since + RUNS_AGAIN >= change.at);
        let counted = watched.counted();
        let exempt = counted.iter().copied().filter(is_exempt).count();
        let live = counted.len();
        if let Some(bound) = watched.bound().filter(|bound| live > *bound + exempt) {
            self.violations.push(Violation {
                uid,
                set: watched.set.clone(),
                live,
                bound,
                history: watched.history.iter().cloned().collect(),
            });
        }
    }

    fn observe_set(&mut self, change: &Change) {
        if change.change == ChangeKind::Deleted {
            return;
        }
        let set = &change.object;
        let watched = self.sets.entry(object::uid(set).to_owned()).or_default();
        watched.set = format!("{}/{}", object::namespace(set), object::name(set));
        watched.generation = object::generation(set);
        watched.observed = set["status"]["observedGeneration"].as_i64();
        let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
        watched.replicas.insert(watched.generation, usize::try_from(replicas).unwrap_or(usize::MAX));
        let waits = set["spec"]["podReplacementPolicy"] == "TerminationComplete";
        watched.waits.insert(watched.generation, waits);
    }

    fn observe_pod(&mut self, change: &Change) {
        let pod = &change.object;
        let uid = object::uid(pod);
        if let Some(former) = change.before.as_ref().and_then(|pod| object::controller_uid(pod)) {
            let watched = self.sets.entry(former.to_owned()).or_default();
            watched.live.remove(uid);
            watched.ending.remove(uid);
        }
        if let Some(owner) = object::controller_uid(pod) {
            let watched = self.sets.entry(owner.to_owned()).or_default();
            // A pod belongs to a set of its own namespace, or to none.
            let is_claim =
                watched.set.split_once('/').is_some_and(|(namespace, _)| namespace != object::namespace(pod));
            if change.change == ChangeKind::Deleted || is_claim {
                return;
            }
            if object::is_terminating(pod) && !object::is_finished(pod) && !pod["spec"]["nodeName"].is_null() {
                watched.ending.insert(uid.to_owned());
            }
            if object::is_live(pod) {
                watched.live.insert(uid.to_owned());
                if change.before.as_ref().is_some_and(|before| object::is_finished(before)) {
                    watched.again.insert(uid.to_owned(), change.at);
                }
            }
        }
    }

    /// All violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The most pods that a set ever had live at once.
    pub fn most_live(&self, uid: &str) -> usize {
        self.sets.get(uid).map_or(0, |watched| watched.most_live)
    }
}
