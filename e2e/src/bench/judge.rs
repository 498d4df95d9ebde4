//! Whether all is as wanted, and since when; and whether a set ever had too many pods, or too few: judged after each event of two
//! watches, that of pods and that of their owners. No I/O, no clock.
//!
//! The events of the pods come in the order in which they happened, so each count of a set's pods is one that was true at that instant.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// What is wanted from some moment on.
#[derive(Clone, Debug, Default)]
pub struct Goal {
    /// Sets that shall be there.
    pub sets: usize,
    /// Pods that each of them shall have; 0 where the sets shall go.
    pub pods: usize,
    /// More live pods than this no set may have, at no instant.
    pub most: usize,
    /// Fewer than this, less those that were taken from it, neither.
    pub least: usize,
    /// Pods that are taken away, by UID.
    pub victims: HashSet<String>,
    /// Their names: a status that has one of them is wrong.
    pub victims_names: HashSet<String>,
    /// Whether there are sets with a status, or pods alone.
    pub has_status: bool,
}

/// A pod, as the watch has it.
#[derive(Clone, Debug)]
pub struct SeenPod {
    /// Its UID.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// The UID of its controller; empty where it has none.
    pub owner: String,
    /// Neither being deleted nor finished.
    pub live: bool,
    /// Its condition Ready is True.
    pub ready: bool,
}

/// A set, as the watch has it.
#[derive(Clone, Debug)]
pub struct SeenSet {
    /// Its UID.
    pub uid: String,
    /// Whether its status answers its generation.
    pub answers: bool,
    /// Pods by its status.
    pub pods: usize,
    /// Ready ones of them, by its status.
    pub ready: usize,
    /// Their names, where its status has them.
    pub names: Vec<String>,
}

/// Since when all has been as wanted; none where it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// Each set has the pods that it wants.
    pub pods: Option<Instant>,
    /// Each set's status says so, too.
    pub status: Option<Instant>,
    /// And that all of them are ready.
    pub ready: Option<Instant>,
}

#[derive(Default)]
struct Owner {
    live: usize,
    ready: usize,
    victims: usize,
    excess: usize,
    short: usize,
}

/// How many owners and sets are as they should be, kept up to date so that an event costs the same with any number of them.
#[derive(Default)]
struct Tally {
    as_wanted: usize,
    with_pods: usize,
    ready: usize,
    answered: usize,
    answered_ready: usize,
}

/// The judge, and what it has seen.
pub struct Judge {
    goal: Goal,
    owners: HashMap<String, Owner>,
    pods: HashMap<String, SeenPod>,
    sets: HashMap<String, SeenSet>,
    tally: Tally,
    marks: Marks,
    last_event: Instant,
    /// Whether all pods were listed once.
    is_listed: bool,
    gaps: usize,
}

impl Judge {
    /// It has seen nothing, and nothing is wanted.
    pub fn new(now: Instant) -> Self {
        Self {
            goal: Goal::default(),
            owners: HashMap::new(),
            pods: HashMap::new(),
            sets: HashMap::new(),
            tally: Tally::default(),
            marks: Marks::default(),
            last_event: now,
            is_listed: false,
            gaps: 0,
        }
    }

    /// From now on this is wanted.
    pub fn begin(&mut self, goal: Goal, now: Instant) {
        self.goal = goal;
        self.gaps = 0;
        for owner in self.owners.values_mut() {
            (owner.victims, owner.excess, owner.short) = (0, 0, 0);
        }
        for uid in &self.goal.victims {
            if let Some(owner) = self.pods.get(uid).and_then(|pod| self.owners.get_mut(&pod.owner)) {
                owner.victims += 1;
            }
        }
        self.goal.victims.retain(|uid| self.pods.get(uid).is_some_and(|pod| pod.live));
        let mut tally = Tally::default();
        self.owners.values().for_each(|owner| tally.owner(&self.goal, owner, true));
        self.sets.values().for_each(|set| tally.set(&self.goal, set, true));
        self.tally = tally;
        self.marks = Marks::default();
        self.mark(now);
    }

    /// A pod was added, changed or (`gone`) deleted.
    pub fn pod(&mut self, pod: SeenPod, gone: bool, now: Instant) {
        if gone || !pod.live {
            self.goal.victims.remove(&pod.uid);
        }
        // The owner may have been taken from it.
        if let Some(before) = self.pods.remove(&pod.uid) {
            self.owner(&before.owner, |owner| {
                owner.live -= usize::from(before.live);
                owner.ready -= usize::from(before.live && before.ready);
            });
        }
        if !gone {
            self.owner(&pod.owner, |owner| {
                owner.live += usize::from(pod.live);
                owner.ready += usize::from(pod.live && pod.ready);
            });
        }
        // Only now: between taking it out and putting it in again its set seems to have one less.
        let (most, least) = (self.goal.most, self.goal.least);
        if let Some(owner) = self.owners.get_mut(&pod.owner) {
            owner.excess = owner.excess.max(owner.live.saturating_sub(most));
            owner.short = owner.short.max(least.saturating_sub(owner.victims + owner.live));
        }
        if !gone {
            self.pods.insert(pod.uid.clone(), pod);
        }
        self.happened(now);
    }

    /// A set was added, changed or (`gone`) deleted.
    pub fn set(&mut self, set: SeenSet, gone: bool, now: Instant) {
        if let Some(before) = self.sets.remove(&set.uid) {
            self.tally.set(&self.goal, &before, false);
        }
        if !gone {
            self.tally.set(&self.goal, &set, true);
            self.sets.insert(set.uid.clone(), set);
        }
        self.happened(now);
    }

    /// These pods are all there are.
    pub fn only_pods(&mut self, uids: &HashSet<String>, now: Instant) {
        self.gaps += usize::from(self.is_listed);
        self.is_listed = true;
        let gone: Vec<_> = self.pods.values().filter(|pod| !uids.contains(&pod.uid)).cloned().collect();
        gone.into_iter().for_each(|pod| self.pod(pod, true, now));
    }

    /// These sets are all there are.
    pub fn only_sets(&mut self, uids: &HashSet<String>, now: Instant) {
        let gone: Vec<_> = self.sets.values().filter(|set| !uids.contains(&set.uid)).cloned().collect();
        gone.into_iter().for_each(|set| self.set(set, true, now));
    }

    /// Every tenth of the live pods, set by set.
    pub fn tenth(&self) -> Vec<&SeenPod> {
        let mut live: Vec<_> = self.pods.values().filter(|pod| pod.live).collect();
        live.sort_by_key(|pod| (&pod.owner, &pod.name));
        live.into_iter().step_by(10).collect()
    }

    /// Since when all has been as wanted.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Whether all is as wanted, nothing is going or becoming ready any more, and nothing has happened for so long.
    pub fn rests(&self, now: Instant, quiet: Duration) -> bool {
        let pods = self.goal.sets * self.goal.pods;
        let all_is_there = self.marks.pods.is_some() && self.pods.len() == pods && self.tally.ready == pods;
        let all_is_told = !self.goal.has_status || self.marks.ready.is_some();
        all_is_there && all_is_told && now.saturating_duration_since(self.last_event) >= quiet
    }

    /// How often all pods were listed anew, so that nobody saw what they were between.
    pub fn gaps(&self) -> usize {
        self.gaps
    }

    /// The most pods that each set had too many, added up; and too few, by nobody's order.
    pub fn faults(&self) -> (usize, usize) {
        let owners = self.owners.values();
        owners.fold((0, 0), |(excess, short), owner| (excess + owner.excess, short + owner.short))
    }

    /// What there is, in words.
    pub fn summary(&self) -> String {
        let Tally { as_wanted, with_pods, ready, answered, answered_ready } = self.tally;
        let Goal { sets, pods, .. } = self.goal;
        format!(
            "{sets} sets of {pods} pods are wanted; there are {} pods, {ready} of them ready; {with_pods} sets have pods, {as_wanted} \
             as many as wanted; of {} sets {answered} have the right status, {answered_ready} with all pods ready",
            self.pods.len(),
            self.sets.len()
        )
    }

    fn owner(&mut self, uid: &str, change: impl FnOnce(&mut Owner)) {
        let owner = self.owners.entry(uid.to_owned()).or_default();
        self.tally.owner(&self.goal, owner, false);
        change(owner);
        self.tally.owner(&self.goal, owner, true);
    }

    fn happened(&mut self, now: Instant) {
        self.last_event = now;
        self.mark(now);
    }

    fn mark(&mut self, now: Instant) {
        let (goal, tally) = (&self.goal, &self.tally);
        let every = |right: usize| right == goal.sets && self.sets.len() == goal.sets;
        let pods = if goal.pods == 0 {
            tally.with_pods == 0
        } else {
            tally.as_wanted == goal.sets && tally.with_pods == goal.sets
        };
        // Before the pods that are taken away are seen to go, nothing has begun.
        let pods = pods && goal.victims.is_empty();
        let (status, ready) = if goal.pods == 0 {
            (self.sets.is_empty(), self.sets.is_empty())
        } else {
            (every(tally.answered), every(tally.answered_ready))
        };
        let marks = &mut self.marks;
        set_mark(&mut marks.pods, pods, now);
        set_mark(&mut marks.status, pods && status, now);
        set_mark(&mut marks.ready, pods && ready, now);
    }
}

/// From the first moment of those that have followed one another without a break.
fn set_mark(mark: &mut Option<Instant>, right: bool, now: Instant) {
    *mark = if right { mark.or(Some(now)) } else { None };
}

impl Tally {
    /// Counts an owner in or out.
    fn owner(&mut self, goal: &Goal, owner: &Owner, counts: bool) {
        shift(&mut self.as_wanted, usize::from(owner.live == goal.pods && owner.live > 0), counts);
        shift(&mut self.with_pods, usize::from(owner.live > 0), counts);
        shift(&mut self.ready, owner.ready, counts);
    }

    /// Counts a set in or out.
    fn set(&mut self, goal: &Goal, set: &SeenSet, counts: bool) {
        let names_a_victim = || set.names.iter().any(|name| goal.victims_names.contains(name));
        let answered = set.answers && set.pods == goal.pods && (goal.victims_names.is_empty() || !names_a_victim());
        shift(&mut self.answered, usize::from(answered), counts);
        shift(&mut self.answered_ready, usize::from(answered && set.ready == goal.pods), counts);
    }
}

fn shift(count: &mut usize, by: usize, up: bool) {
    *count = if up { *count + by } else { *count - by };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Story {
        judge: Judge,
        start: Instant,
        now: u64,
    }

    impl Story {
        fn of(goal: Goal) -> Self {
            let start = Instant::now();
            let mut judge = Judge::new(start);
            judge.begin(goal, start);
            Self { judge, start, now: 0 }
        }

        fn at(&mut self) -> Instant {
            self.now += 1;
            self.start + Duration::from_secs(self.now)
        }

        fn pod(&mut self, name: &str, state: &str) {
            let owner = name.split('-').next().unwrap().to_owned();
            let uid = name.to_owned();
            let pod = SeenPod { name: uid.clone(), uid, owner, live: state != "going", ready: state == "ready" };
            let now = self.at();
            self.judge.pod(pod, state == "gone", now);
        }

        fn set(&mut self, name: &str, answers: bool, pods: usize, ready: usize) {
            self.set_with(name, answers, pods, ready, &[]);
        }

        fn set_with(&mut self, name: &str, answers: bool, pods: usize, ready: usize, names: &[&str]) {
            let names = names.iter().map(|name| name.to_string()).collect();
            let now = self.at();
            self.judge.set(SeenSet { uid: name.to_owned(), answers, pods, ready, names }, false, now);
        }

        fn rests(&mut self) -> bool {
            let now = self.at();
            self.judge.rests(now, Duration::ZERO)
        }

        fn begin(&mut self, goal: Goal) {
            let now = self.at();
            self.judge.begin(goal, now);
        }

        /// The seconds of the three marks; 0 where there is none.
        fn marks(&self) -> [u64; 3] {
            let Marks { pods, status, ready } = self.judge.marks();
            [pods, status, ready].map(|mark| mark.map_or(0, |mark| (mark - self.start).as_secs()))
        }
    }

    fn goal(sets: usize, pods: usize, most: usize, least: usize) -> Goal {
        Goal { sets, pods, most, least, has_status: true, ..Goal::default() }
    }

    fn two_sets_of_two() -> Story {
        let mut story = Story::of(goal(2, 2, 2, 0));
        for (set, first, second) in [("a", "a-1", "a-2"), ("b", "b-1", "b-2")] {
            story.set(set, false, 0, 0);
            story.pod(first, "ready");
            story.pod(second, "ready");
            story.set(set, true, 2, 2);
        }
        story
    }

    #[test]
    fn pods_then_statuses_then_rest() {
        let mut story = Story::of(goal(1, 2, 2, 0));
        story.set("a", false, 0, 0);
        story.pod("a-1", "pending");
        story.pod("a-2", "pending");
        story.set("a", true, 2, 0);
        assert_eq!(story.marks(), [3, 4, 0]);
        story.pod("a-1", "ready");
        story.pod("a-2", "ready");
        assert!(!story.rests(), "the status does not say that they are ready");
        story.set("a", true, 2, 2);
        assert_eq!(story.marks(), [3, 4, 8]);
        let (soon, later) = (story.at(), story.at());
        let quiet = Duration::from_secs(2);
        assert_eq!((story.judge.rests(soon, quiet), story.judge.rests(later, quiet)), (false, true));
        assert_eq!(story.judge.faults(), (0, 0));
    }

    #[test]
    fn a_mark_is_that_of_the_last_time() {
        let mut story = two_sets_of_two();
        assert_eq!(story.marks(), [7, 8, 8]);
        story.pod("a-2", "gone");
        assert_eq!(story.marks(), [0, 0, 0]);
        story.pod("a-3", "ready");
        assert_eq!(story.marks(), [10, 10, 10]);
    }

    #[test]
    fn one_too_many_for_an_instant_is_kept() {
        let mut story = two_sets_of_two();
        story.pod("b-3", "pending");
        story.pod("b-3", "going");
        story.pod("b-3", "gone");
        assert_eq!(story.judge.faults(), (1, 0));
        story.begin(goal(2, 2, 2, 2));
        assert_eq!(story.judge.faults(), (0, 0), "each phase has its own");
    }

    #[test]
    fn what_nobody_saw_is_told() {
        let mut story = two_sets_of_two();
        let all: HashSet<_> = story.judge.pods.keys().cloned().collect();
        let gaps = [0; 3].map(|_| {
            story.judge.only_pods(&all, story.start);
            story.judge.gaps()
        });
        assert_eq!(gaps, [0, 1, 2], "before the first list there was nothing to see");
        story.begin(goal(2, 2, 2, 2));
        assert_eq!(story.judge.gaps(), 0, "each phase has its own");
    }

    #[test]
    fn what_changes_is_never_missing_meanwhile() {
        let mut story = two_sets_of_two();
        story.begin(goal(2, 2, 2, 2));
        story.pod("a-1", "ready");
        assert_eq!(story.judge.faults(), (0, 0));
    }

    #[test]
    fn victims_are_no_fault_and_have_to_be_seen_going() {
        let mut story = two_sets_of_two();
        let victims = HashSet::from(["a-1".to_owned()]);
        story.begin(Goal { victims, ..goal(2, 2, 2, 2) });
        assert_eq!(story.marks(), [0, 0, 0], "all looks right, but has not begun");
        story.pod("a-1", "going");
        story.pod("a-3", "ready");
        assert_eq!(story.marks(), [11, 11, 11]);
        assert!(!story.rests(), "a pod is still going");
        story.pod("a-1", "gone");
        assert!(story.rests());
        assert_eq!(story.judge.faults(), (0, 0));
        story.pod("a-2", "going");
        assert_eq!(story.judge.faults(), (0, 0), "one was taken from this set, so it may have one less");
        story.pod("a-3", "going");
        assert_eq!(story.judge.faults(), (0, 1));
        story.pod("b-1", "going");
        assert_eq!(story.judge.faults(), (0, 2));
    }

    #[test]
    fn a_status_that_names_a_victim_is_wrong() {
        let mut story = Story::of(goal(1, 1, 1, 0));
        story.pod("a-1", "ready");
        story.set_with("a", true, 1, 1, &["a-1"]);
        let names = || HashSet::from(["a-1".to_owned()]);
        story.begin(Goal { victims: names(), victims_names: names(), ..goal(1, 1, 1, 1) });
        story.pod("a-1", "gone");
        story.pod("a-2", "ready");
        assert_eq!(story.marks(), [5, 0, 0]);
        story.set_with("a", true, 1, 1, &["a-2"]);
        assert_eq!(story.marks(), [5, 6, 6]);
    }

    #[test]
    fn a_tenth_is_taken_from_all_sets_alike() {
        let mut story = Story::of(goal(2, 10, 10, 0));
        for (set, pod) in (0..2).flat_map(|set| (0..10).map(move |pod| (set, pod))) {
            story.pod(&format!("{set}-{pod}"), "ready");
        }
        let names: Vec<_> = story.judge.tenth().into_iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["0-0", "1-0"]);
    }

    #[test]
    fn deletion_is_done_when_nothing_is_left() {
        let mut story = two_sets_of_two();
        story.begin(goal(0, 0, 2, 0));
        let now = story.at();
        story.judge.only_sets(&HashSet::new(), now);
        assert_eq!(story.marks(), [0, 0, 0]);
        let now = story.at();
        story.judge.only_pods(&HashSet::new(), now);
        assert_eq!(story.marks(), [11, 11, 11]);
        assert!(story.rests());
    }

    #[test]
    fn pods_without_sets_need_no_status() {
        let mut story = Story::of(Goal { has_status: false, ..goal(1, 2, 2, 0) });
        story.pod("-1", "ready");
        story.pod("-2", "ready");
        assert!(story.rests(), "{}", story.judge.summary());
    }
}
