//! Decides after each event of two watches, pods and sets, whether everything is as wanted, and counts pods too many and too few. No I/O,
//! no clock.
//!
//! The events of the pods come in the order in which they happened, so each count of a set's pods was true at one instant.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// What a phase must reach.
#[derive(Clone, Debug, Default)]
pub struct Goal {
    /// Number of sets.
    pub sets: usize,
    /// Pods of each set; 0 if the sets are deleted.
    pub pods: usize,
    /// Maximum of live pods of a set at any instant.
    pub most: usize,
    /// Minimum of live pods of a set at any instant, not counting its victims.
    pub least: usize,
    /// UIDs of the pods that the benchmark deletes.
    pub victims: HashSet<String>,
    /// Their names, which may not be in a status any more.
    pub names_of_victims: HashSet<String>,
    /// Whether there are sets with a status; bare pods have none.
    pub has_status: bool,
}

/// A pod, as the watch shows it.
#[derive(Clone, Debug)]
pub struct SeenPod {
    /// Its UID.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// UID of its controller; empty if there is none.
    pub owner: String,
    /// Neither terminating nor finished.
    pub live: bool,
    /// Its condition Ready is True.
    pub ready: bool,
}

/// A set, as the watch shows it.
#[derive(Clone, Debug)]
pub struct SeenSet {
    /// Its UID.
    pub uid: String,
    /// Whether its status is about its current generation.
    pub is_current: bool,
    /// Pods in its status.
    pub pods: usize,
    /// Ready pods in its status.
    pub ready: usize,
    /// Names of pods in its status, if it has them.
    pub names: Vec<String>,
}

/// Since when everything has been as wanted; `None` if it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// Every set has the right number of pods.
    pub pods: Option<Instant>,
    /// And every status says so.
    pub status: Option<Instant>,
    /// And every status says that all pods are ready.
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

/// Numbers of owners and sets that are as wanted, updated by each event so that its cost does not depend on the number of sets.
#[derive(Default)]
struct Tally {
    as_wanted: usize,
    with_pods: usize,
    ready: usize,
    right_status: usize,
    right_and_ready: usize,
}

/// The judge.
pub struct Judge {
    goal: Goal,
    owners: HashMap<String, Owner>,
    pods: HashMap<String, SeenPod>,
    sets: HashMap<String, SeenSet>,
    tally: Tally,
    marks: Marks,
    last_event: Instant,
    /// Whether the pods were listed once.
    is_listed: bool,
    gaps: usize,
}

impl Judge {
    /// A judge that has seen nothing.
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

    /// Starts a phase.
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

    /// A pod was added, modified or deleted (`gone`).
    pub fn pod(&mut self, pod: SeenPod, gone: bool, now: Instant) {
        if gone || !pod.live {
            self.goal.victims.remove(&pod.uid);
        }
        // Its owner may have changed.
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
        // After the pod was counted again.
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

    /// A set was added, modified or deleted (`gone`).
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

    /// The pods were listed: only these exist.
    pub fn only_pods(&mut self, uids: &HashSet<String>, now: Instant) {
        self.gaps += usize::from(self.is_listed);
        self.is_listed = true;
        let gone: Vec<_> = self.pods.values().filter(|pod| !uids.contains(&pod.uid)).cloned().collect();
        gone.into_iter().for_each(|pod| self.pod(pod, true, now));
    }

    /// The sets were listed: only these exist.
    pub fn only_sets(&mut self, uids: &HashSet<String>, now: Instant) {
        let gone: Vec<_> = self.sets.values().filter(|set| !uids.contains(&set.uid)).cloned().collect();
        gone.into_iter().for_each(|set| self.set(set, true, now));
    }

    /// UIDs and names of every tenth of the live pods, set by set.
    pub fn tenth(&self) -> Vec<(String, String)> {
        let mut live: Vec<_> = self.pods.values().filter(|pod| pod.live).collect();
        live.sort_by_key(|pod| (&pod.owner, &pod.name));
        live.into_iter().step_by(10).map(|pod| (pod.uid.clone(), pod.name.clone())).collect()
    }

    /// Since when everything has been as wanted.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// Whether everything is as wanted, no pod terminates or becomes ready any more, and nothing has happened for this time.
    pub fn rests(&self, now: Instant, quiet: Duration) -> bool {
        let pods = self.goal.sets * self.goal.pods;
        let all_is_there = self.marks.pods.is_some() && self.pods.len() == pods && self.tally.ready == pods;
        let all_is_reported = !self.goal.has_status || self.marks.ready.is_some();
        all_is_there && all_is_reported && now.saturating_duration_since(self.last_event) >= quiet
    }

    /// How often the pods were listed again, which hides what happened before.
    pub fn gaps(&self) -> usize {
        self.gaps
    }

    /// Sums over the sets of the most pods that each had too many, and too few without an order to delete them.
    pub fn faults(&self) -> (usize, usize) {
        let owners = self.owners.values();
        owners.fold((0, 0), |(excess, short), owner| (excess + owner.excess, short + owner.short))
    }

    /// The current numbers, in words.
    pub fn summary(&self) -> String {
        let Tally { as_wanted, with_pods, ready, right_status, right_and_ready } = self.tally;
        let Goal { sets, pods, .. } = self.goal;
        format!(
            "wanted: {sets} sets of {pods} pods; {} pods exist, {ready} are ready; {with_pods} sets have pods, {as_wanted} the right \
             number; of {} sets, {right_status} have the right status, {right_and_ready} with all pods ready",
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
        // The phase has begun once all victims were seen to go.
        let pods = pods && goal.victims.is_empty();
        let (status, ready) = if goal.pods == 0 {
            (self.sets.is_empty(), self.sets.is_empty())
        } else {
            (every(tally.right_status), every(tally.right_and_ready))
        };
        let marks = &mut self.marks;
        set_mark(&mut marks.pods, pods, now);
        set_mark(&mut marks.status, pods && status, now);
        set_mark(&mut marks.ready, pods && ready, now);
    }
}

fn set_mark(mark: &mut Option<Instant>, right: bool, now: Instant) {
    *mark = if right { mark.or(Some(now)) } else { None };
}

impl Tally {
    /// Adds or removes an owner.
    fn owner(&mut self, goal: &Goal, owner: &Owner, counts: bool) {
        shift(&mut self.as_wanted, usize::from(owner.live == goal.pods && owner.live > 0), counts);
        shift(&mut self.with_pods, usize::from(owner.live > 0), counts);
        shift(&mut self.ready, owner.ready, counts);
    }

    /// Adds or removes a set.
    fn set(&mut self, goal: &Goal, set: &SeenSet, counts: bool) {
        let names_a_victim = || set.names.iter().any(|name| goal.names_of_victims.contains(name));
        let right = set.is_current && set.pods == goal.pods && (goal.names_of_victims.is_empty() || !names_a_victim());
        shift(&mut self.right_status, usize::from(right), counts);
        shift(&mut self.right_and_ready, usize::from(right && set.ready == goal.pods), counts);
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

        fn tick(&mut self) -> Instant {
            self.now += 1;
            self.start + Duration::from_secs(self.now)
        }

        fn pod(&mut self, name: &str, state: &str) {
            let owner = name.split('-').next().unwrap().to_owned();
            let uid = name.to_owned();
            let pod = SeenPod { name: uid.clone(), uid, owner, live: state != "terminating", ready: state == "ready" };
            let now = self.tick();
            self.judge.pod(pod, state == "gone", now);
        }

        fn set(&mut self, name: &str, ready: usize, names: &[&str]) {
            let names = names.iter().map(|name| name.to_string()).collect();
            let now = self.tick();
            let set = SeenSet { uid: name.to_owned(), is_current: true, pods: 2, ready, names };
            self.judge.set(set, false, now);
        }

        fn begin(&mut self, goal: Goal) {
            let now = self.tick();
            self.judge.begin(goal, now);
        }

        /// Seconds of the three marks; 0 if there is none.
        fn marks(&self) -> [u64; 3] {
            let Marks { pods, status, ready } = self.judge.marks();
            [pods, status, ready].map(|mark| mark.map_or(0, |mark| (mark - self.start).as_secs()))
        }
    }

    fn goal(sets: usize, pods: usize, most: usize, least: usize) -> Goal {
        Goal { sets, pods, most, least, has_status: true, ..Goal::default() }
    }

    /// One set of two pods, at rest after six seconds.
    fn set_of_two() -> Story {
        let mut story = Story::of(goal(1, 2, 2, 0));
        story.pod("a-1", "pending");
        story.pod("a-2", "pending");
        story.set("a", 0, &["a-1", "a-2"]);
        assert_eq!(story.marks(), [2, 3, 0]);
        story.pod("a-1", "ready");
        story.pod("a-2", "ready");
        assert!(!story.judge.rests(story.start, Duration::ZERO), "the status does not say that the pods are ready");
        story.set("a", 2, &["a-1", "a-2"]);
        assert_eq!(story.marks(), [2, 3, 6]);
        assert!(story.judge.rests(story.start, Duration::ZERO));
        story
    }

    #[test]
    fn a_pod_too_many_for_an_instant_is_counted() {
        let mut story = set_of_two();
        story.pod("a-3", "pending");
        assert_eq!(story.marks(), [0, 0, 0]);
        story.pod("a-3", "gone");
        assert_eq!((story.judge.faults(), story.marks()), ((1, 0), [8, 8, 8]));
        story.begin(goal(1, 2, 2, 2));
        assert_eq!(story.judge.faults(), (0, 0));
    }

    #[test]
    fn victims_must_be_seen_to_go_and_may_not_be_in_a_status() {
        let mut story = set_of_two();
        let victims = || HashSet::from(["a-1".to_owned()]);
        story.begin(Goal { victims: victims(), names_of_victims: victims(), ..goal(1, 2, 2, 2) });
        assert_eq!(story.marks(), [0, 0, 0]);
        story.pod("a-1", "terminating");
        story.pod("a-3", "ready");
        assert_eq!(story.marks(), [9, 0, 0], "the status names the victim");
        story.set("a", 2, &["a-2", "a-3"]);
        assert_eq!(story.marks(), [9, 10, 10]);
        assert!(!story.judge.rests(story.start, Duration::ZERO), "a pod still terminates");
        story.pod("a-1", "gone");
        assert!(story.judge.rests(story.start, Duration::ZERO));
        story.pod("a-2", "terminating");
        assert_eq!(story.judge.faults(), (0, 0), "the victim is allowed to be missing");
        story.pod("a-3", "terminating");
        assert_eq!(story.judge.faults(), (0, 1));
    }

    #[test]
    fn a_second_list_is_a_gap() {
        let mut story = set_of_two();
        let now = story.tick();
        story.judge.only_pods(&HashSet::new(), now);
        story.judge.only_sets(&HashSet::new(), now);
        assert_eq!(story.judge.gaps(), 0);
        story.begin(goal(0, 0, 2, 0));
        assert!(story.judge.rests(now, Duration::ZERO), "{}", story.judge.summary());
        story.judge.only_pods(&HashSet::new(), now);
        assert_eq!(story.judge.gaps(), 1);
    }
}
