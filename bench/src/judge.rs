//! Decides from the events of two watches, pods and sets, if all is as wanted. Counts excess pods, and tells
//! how old statuses are. No I/O, no clock.
//!
//! The events of pods arrive in the order in which they happened, so each count of a set's pods was once true.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use e2e::observe::follow::Step;
use e2e::types::{Pod, uid};
use kube::ResourceExt;
use kube::api::Object;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What a phase must reach.
#[derive(Clone, Debug, Default)]
pub struct Goal {
    pub sets: usize,
    /// Pods of each set; 0 if the sets are deleted.
    pub pods: usize,
    /// Maximum of live pods of a set at any instant.
    pub most: usize,
    /// UIDs of the pods that must go.
    pub victims: HashSet<String>,
    /// Whether every status must also say that all pods are ready and have the template of the spec.
    pub rolls: bool,
    /// Bare pods have no sets with a status.
    pub has_status: bool,
}

/// A PodSet, a ReplicaSet or a Deployment.
pub type Set = Object<IgnoredAny, Status>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    observed_generation: Option<i64>,
    /// The pods of a ReplicaSet or a Deployment. Its `availableReplicas` are ready ones.
    replicas: Option<usize>,
    /// A PodSet's pods.
    available_replicas: usize,
    ready_replicas: usize,
    updated_replicas: usize,
    pod_names: Vec<String>,
}

/// What a status says: the generation of the spec, and the numbers of live and ready pods.
type Facts = (Option<i64>, usize, usize);

/// The goal, and the observed state.
#[derive(Default)]
pub struct Judge {
    goal: Goal,
    /// All pods by UID, also those that terminate.
    pods: HashMap<String, Pod>,
    /// The names of the live pods of each set, and whether they are ready.
    live: HashMap<String, HashMap<String, bool>>,
    /// What the status of each set should have said since it was last right or the set was first seen, each with its start.
    history: HashMap<String, Vec<(Facts, Instant)>>,
    sets: HashMap<String, Set>,
    /// The most pods that each set had too many in this phase.
    excess: HashMap<String, usize>,
    /// Whether the pods were listed in this phase. A list hides what happened before.
    pub has_gap: bool,
    pub last_event: Option<Instant>,
}

impl Judge {
    /// Starts a phase.
    pub fn begin(&mut self, goal: Goal) {
        self.goal = goal;
        self.has_gap = false;
        self.excess.clear();
    }

    /// Applies a step of the watch of the pods.
    pub fn take_pods(&mut self, step: Step<Pod>, now: Instant) {
        self.last_event = Some(now);
        match step {
            Step::Applied(pod) => self.pod(pod, false, now),
            Step::Deleted(pod) => self.pod(pod, true, now),
            Step::Listed(pods, _) => {
                self.has_gap = true;
                self.pods.clear();
                self.live.clear();
                pods.into_iter().for_each(|pod| self.pod(pod, false, now));
                // The facts in the middle of the list were never true.
                self.history.clear();
            }
            Step::Nothing(_) => {}
        }
    }

    /// A pod was added, modified or deleted (`gone`).
    fn pod(&mut self, pod: Pod, gone: bool, now: Instant) {
        let (uid, set) = (uid(&pod.metadata), set_of(&pod).to_owned());
        let live = self.live.entry(set.clone()).or_default();
        if self.pods.remove(&uid).is_some_and(|before| before.is_live()) {
            live.remove(&pod.name_any());
        }
        if pod.is_live() && !gone {
            live.insert(pod.name_any(), pod.is_ready());
        }
        let excess = self.excess.entry(set.clone()).or_default();
        *excess = live.len().saturating_sub(self.goal.most).max(*excess);
        if !gone {
            self.pods.insert(uid, pod);
        }
        self.note(set, now);
    }

    /// Notes what a status of this set should say now.
    fn note(&mut self, name: String, now: Instant) {
        let generation = self.sets.get(&name).and_then(|set| set.metadata.generation);
        let live = self.live.entry(name.clone()).or_default();
        let facts = (generation, live.len(), live.values().filter(|is_ready| **is_ready).count());
        let history = self.history.entry(name).or_default();
        if history.last().is_none_or(|(last, _)| *last != facts) {
            history.push((facts, now));
        }
    }

    /// Applies a step of the watch of the sets.
    pub fn take_sets(&mut self, step: Step<Set>, now: Instant) {
        self.last_event = Some(now);
        match step {
            Step::Applied(set) => self.set(set, now),
            Step::Deleted(set) => drop(self.sets.remove(&set.name_any())),
            Step::Listed(sets, _) => {
                self.sets.clear();
                sets.into_iter().for_each(|set| self.set(set, now));
            }
            Step::Nothing(_) => {}
        }
    }

    fn set(&mut self, set: Set, now: Instant) {
        let name = set.name_any();
        self.sets.insert(name.clone(), set);
        self.note(name, now);
    }

    /// How long ago the oldest status was right.
    pub fn oldest_status(&mut self, now: Instant) -> Duration {
        let mut oldest = now;
        for (name, history) in &mut self.history {
            let Some(set) = self.sets.get(name) else { continue };
            let status = set.status.as_ref().map(|it| (it.observed_generation, it.pods(), it.ready_replicas));
            let is_right = |(facts, _): &(Facts, Instant)| Some(*facts) == status;
            // A status that follows its pods with a delay is never right now, but was not long ago.
            history.drain(..history.iter().rposition(is_right).unwrap_or(0));
            // A new set waits for a status from the start.
            let since = if status.is_none() { history.first() } else { history.get(1) };
            oldest = since.map_or(oldest, |(_, since)| oldest.min(*since));
        }
        now - oldest
    }

    /// The live pods, set by set.
    pub fn live(&self) -> Vec<Pod> {
        let mut live: Vec<_> = self.pods.values().filter(|pod| pod.is_live()).cloned().collect();
        live.sort_by_cached_key(|pod| (set_of(pod).to_owned(), pod.name_any()));
        live
    }

    /// Whether every set has the right number of pods, and the victims are gone.
    pub fn pods_are_right(&self) -> bool {
        let Goal { sets, pods, victims, .. } = &self.goal;
        let mut numbers = self.live.values().map(HashMap::len).filter(|number| *number > 0);
        let is_gone = |uid| self.pods.get(uid).is_none_or(|pod| !pod.is_live());
        numbers.clone().count() == *sets && numbers.all(|number| number == *pods) && victims.iter().all(is_gone)
    }

    /// Whether every status is right. A status that names a pod which is gone is wrong.
    pub fn statuses_are_right(&self) -> bool {
        let Goal { pods, rolls, .. } = self.goal;
        self.every_status(|set, status| {
            let is_live = |pod| self.live.get(set).is_some_and(|live| live.contains_key(pod));
            status.pods() == pods
                && status.pod_names.iter().all(is_live)
                && (!rolls || status.updated_replicas == pods && status.ready_replicas == pods)
        })
    }

    /// Whether everything is as wanted, all pods are ready, as every status says, and none is terminating.
    pub fn rests(&self) -> bool {
        let Goal { sets, pods, has_status, .. } = self.goal;
        let are_ready = || self.every_status(|_, status| status.ready_replicas == pods);
        self.pods_are_right()
            && (!has_status || self.statuses_are_right() && are_ready())
            && self.pods.len() == sets * pods
            && self.pods.values().all(|pod| pod.is_live() && pod.is_ready())
    }

    /// Whether all sets are there, each with a status for its current generation that passes the check.
    fn every_status(&self, check: impl Fn(&str, &Status) -> bool) -> bool {
        let passes = |(name, set): (&String, &Set)| {
            let current = set.status.as_ref().filter(|it| it.observed_generation == set.metadata.generation);
            current.is_some_and(|status| check(name, status))
        };
        self.sets.len() == self.goal.sets && self.sets.iter().all(passes)
    }

    /// The sum over the sets of the most pods that each had too many; `None` if there were none, but the watch has a gap.
    pub fn excess(&self) -> Option<usize> {
        let excess = self.excess.values().sum();
        (excess > 0 || !self.has_gap).then_some(excess)
    }

    /// The current numbers, for an error message.
    pub fn summary(&self) -> String {
        let ready = self.pods.values().filter(|pod| pod.is_ready()).count();
        let right = [self.pods_are_right(), self.statuses_are_right()];
        let (sets, pods) = (self.sets.len(), self.pods.len());
        format!("{sets} sets, {pods} pods, {ready} ready; pods and statuses are right: {right:?}")
    }
}

impl Status {
    fn pods(&self) -> usize {
        self.replicas.unwrap_or(self.available_replicas)
    }
}

/// The set of a pod, also if a ReplicaSet of a Deployment is in between.
pub fn set_of(pod: &Pod) -> &str {
    pod.labels().get("app").map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn goal(victims: &[&str], rolls: bool) -> Goal {
        let victims = victims.iter().map(|uid| (*uid).to_owned()).collect();
        Goal { sets: 1, pods: 2, most: 2, victims, rolls, has_status: true }
    }

    /// One set of two pods, at rest.
    fn set_of_two() -> Judge {
        let mut judge = Judge::default();
        judge.begin(goal(&[], false));
        pod(&mut judge, "1", "False", false);
        pod(&mut judge, "2", "False", false);
        assert!(judge.pods_are_right() && !judge.statuses_are_right());
        set(&mut judge, 0, &["1", "2"]);
        assert!(judge.statuses_are_right() && !judge.rests());
        pod(&mut judge, "1", "True", false);
        pod(&mut judge, "2", "True", false);
        assert!(!judge.rests(), "no status says that the pods are ready");
        set(&mut judge, 2, &["1", "2"]);
        assert!(judge.rests(), "{}", judge.summary());
        judge
    }

    fn pod(judge: &mut Judge, name: &str, ready: &str, gone: bool) {
        let metadata = json!({"name": name, "uid": name, "labels": {"app": "a"}});
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status});
        judge.pod(serde_json::from_value(pod).unwrap(), gone, Instant::now());
    }

    fn set(judge: &mut Judge, ready: usize, names: &[&str]) {
        let status =
            json!({"observedGeneration": 1, "availableReplicas": 2, "readyReplicas": ready, "podNames": names});
        let set = json!({"metadata": {"name": "a", "generation": 1}, "spec": {}, "status": status});
        judge.take_sets(Step::Applied(serde_json::from_value(set).unwrap()), Instant::now());
    }

    #[test]
    fn an_excess_pod_counts_even_for_an_instant() {
        let mut judge = set_of_two();
        pod(&mut judge, "3", "False", false);
        assert!(!judge.pods_are_right());
        pod(&mut judge, "3", "False", true);
        assert!(judge.excess() == Some(1) && judge.rests());
        judge.begin(goal(&[], false));
        assert_eq!(judge.excess(), Some(0));
    }

    #[test]
    fn a_status_is_as_old_as_what_it_says() {
        let mut judge = set_of_two();
        pod(&mut judge, "1", "False", false);
        let (between, minute) = (Instant::now(), Duration::from_secs(60));
        pod(&mut judge, "2", "False", false);
        assert!(judge.oldest_status(between + minute) >= minute);
        set(&mut judge, 1, &["1", "2"]);
        let age = judge.oldest_status(between + minute);
        assert!((Duration::from_secs(50)..minute).contains(&age), "the status is newer, but not right");
        set(&mut judge, 0, &["1", "2"]);
        assert_eq!(judge.oldest_status(between + minute), Duration::ZERO);
    }

    #[test]
    fn victims_must_be_gone_from_the_watch_and_the_status() {
        let mut judge = set_of_two();
        judge.begin(goal(&["1"], false));
        assert!(!judge.pods_are_right());
        pod(&mut judge, "1", "True", true);
        pod(&mut judge, "3", "True", false);
        assert!(judge.pods_are_right() && !judge.statuses_are_right(), "the status names the victim");
        set(&mut judge, 2, &["2", "3"]);
        assert!(judge.rests(), "{}", judge.summary());
        judge.begin(goal(&["2"], true));
        pod(&mut judge, "2", "True", true);
        pod(&mut judge, "4", "True", false);
        set(&mut judge, 2, &["3", "4"]);
        assert!(judge.pods_are_right() && !judge.statuses_are_right(), "the status says that no pod is updated");
    }
}
