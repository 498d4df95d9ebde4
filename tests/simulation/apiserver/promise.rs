//! The checker of the promise "never more than N", fed with every change of the store.
//!
//! What is allowed, and what counts, is said by the checker of the testkit. A pod that failed and runs again may exceed that for a while.
//! Reads changes; changes nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use testkit::bound::Bound;

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

/// What is remembered of one set.
#[derive(Default)]
struct Watched {
    most_live: usize,
    history: VecDeque<String>,
}

/// The checker.
#[derive(Default)]
pub struct Promise {
    bound: Bound,
    sets: BTreeMap<String, Watched>,
    /// Pods that failed and run again, each since when.
    again: BTreeMap<String, Duration>,
    violations: Vec<Violation>,
}

impl Promise {
    /// Takes in a change and checks the set that it concerns.
    pub fn observe(&mut self, change: &Change) {
        let (object, is_deleted) = (&change.object, change.change == ChangeKind::Deleted);
        let check = if *change.kind == PODSETS {
            self.bound.set(object, is_deleted)
        } else if *change.kind == PODS {
            if change.before.as_ref().is_some_and(|before| object::is_finished(before)) && object::is_live(object) {
                self.again.insert(object::uid(object).to_owned(), change.at);
            }
            let Some(check) = self.bound.pod(object, is_deleted) else { return };
            check
        } else {
            return;
        };
        let watched = self.sets.entry(check.uid.to_owned()).or_default();
        watched.history.push_back(format!("{change}: {} live, {} ending", check.live, check.terminating));
        if watched.history.len() > HISTORY {
            watched.history.pop_front();
        }
        watched.most_live = watched.most_live.max(check.live);
        let is_exempt = |pod: &&&str| self.again.get(**pod).is_some_and(|since| *since + RUNS_AGAIN >= change.at);
        let exempt = check.counted.keys().filter(is_exempt).count();
        if let Some(bound) = check.allowed.filter(|bound| check.counted.len() > *bound + exempt) {
            self.violations.push(Violation {
                uid: check.uid.to_owned(),
                set: check.set,
                live: check.counted.len(),
                bound,
                history: watched.history.iter().cloned().collect(),
            });
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
