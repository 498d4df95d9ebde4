//! Never more than N pods. The testkit knows how many are allowed, and which ones count. A pod that failed and runs again may exceed that
//! for a while.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use super::{
    super::{
        kinds::{PODS, PODSETS},
        object,
        store::{Change, ChangeKind},
    },
    Checked, Observer,
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

/// The observer.
#[derive(Default)]
pub struct Bound {
    rule: testkit::bound::Bound,
    sets: BTreeMap<String, Watched>,
    /// Pods that failed and run again, each since when.
    again: BTreeMap<String, Duration>,
    violations: Vec<Violation>,
}

impl Observer for Bound {
    fn changed(&mut self, change: &Change) -> Checked {
        let (object, is_deleted) = (&change.object, change.change == ChangeKind::Deleted);
        let check = if *change.kind == PODSETS {
            self.rule.set(object, is_deleted)
        } else if *change.kind == PODS {
            if change.before.as_ref().is_some_and(|before| object::is_finished(before)) && object::is_live(object) {
                self.again.insert(object::uid(object).to_owned(), change.at);
            }
            let Some(check) = self.rule.pod(object, is_deleted) else { return Ok(()) };
            check
        } else {
            return Ok(());
        };
        let watched = self.sets.entry(check.uid.to_owned()).or_default();
        watched.history.push_back(format!("{change}: {} live, {} ending", check.live, check.terminating));
        if watched.history.len() > HISTORY {
            watched.history.pop_front();
        }
        watched.most_live = watched.most_live.max(check.live);
        let is_exempt = |pod: &&&str| self.again.get(**pod).is_some_and(|since| *since + RUNS_AGAIN >= change.at);
        let exempt = check.counted.keys().filter(is_exempt).count();
        let live = check.counted.len();
        let Some(bound) = check.allowed.filter(|bound| live > *bound + exempt) else { return Ok(()) };
        let history = watched.history.iter().cloned().collect();
        let violation = Violation { uid: check.uid.to_owned(), set: check.set, live, bound, history };
        let text = violation.to_string();
        self.violations.push(violation);
        Err(text)
    }
}

impl Bound {
    /// All violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The most pods that a set ever had live at once.
    pub fn most_live(&self, uid: &str) -> usize {
        self.sets.get(uid).map_or(0, |watched| watched.most_live)
    }
}
