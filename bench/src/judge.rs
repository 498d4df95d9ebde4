//! Decides from the events of two watches, pods and sets, if all is as wanted. Counts excess pods. No I/O, no clock.
//!
//! The events of pods arrive in the order in which they happened, so each count of a set's pods was once true.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use e2e::observe::follow::Step;
use e2e::types::{Pod, uid};
use kube::ResourceExt;
use kube::api::Object;
use serde::Deserialize;

/// What a phase must reach.
#[derive(Clone, Debug, Default)]
pub struct Goal {
    pub sets: usize,
    /// Pods of each set; 0 if the sets are deleted.
    pub pods: usize,
    /// Maximum of live pods of a set at any instant.
    pub most: usize,
    /// The pods that must go, also from the status: UIDs by name.
    pub victims: HashMap<String, String>,
    /// Whether the other pods must be ready, and have the template of the spec.
    pub rolls: bool,
    /// Bare pods have no sets with a status.
    pub has_status: bool,
}

/// A PodSet, a ReplicaSet or a Deployment.
pub type Set = Object<Spec, Status>;

#[derive(Clone, Debug, Deserialize)]
pub struct Spec {}

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

#[derive(Default)]
struct Owner {
    live: usize,
    ready: usize,
    excess: usize,
    /// The numbers of live and ready pods since the status was last right, each with the time at which it changed.
    former: Vec<(Numbers, Instant)>,
    /// When the status was last right, or the set first seen; `None` while the status is right.
    wrong_since: Option<Instant>,
}

/// The numbers of a set's live and ready pods.
type Numbers = [usize; 2];

/// How far the goal is reached.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Progress {
    Wrong,
    /// Every set has the right number of pods.
    Pods,
    /// And every status says so.
    Status,
    /// And every status says that all pods are ready.
    Ready,
}

/// The goal, and the observed state.
#[derive(Default)]
pub struct Judge {
    goal: Goal,
    owners: HashMap<String, Owner>,
    pods: HashMap<String, Pod>,
    sets: HashMap<String, Set>,
    pub last_event: Option<Instant>,
    /// How often the pods were listed in this phase. Each list hides what happened before.
    lists: usize,
    /// The greatest age in this phase of statuses that were updated since.
    oldest: Duration,
}

impl Judge {
    /// Starts a phase.
    pub fn begin(&mut self, goal: Goal) {
        self.goal = goal;
        self.lists = 0;
        self.oldest = Duration::ZERO;
        self.owners.values_mut().for_each(|owner| owner.excess = 0);
    }

    /// Applies a step of the watch of the pods.
    pub fn take_pods(&mut self, step: Step<Pod>, now: Instant) {
        match step {
            Step::Applied(pod) => self.pod(pod, false, now),
            Step::Deleted(pod) => self.pod(pod, true, now),
            Step::Listed(mut pods, _) => {
                self.lists += 1;
                // First remove the pods that went during the gap. Otherwise they would count as excess.
                let uids: HashSet<_> = pods.iter().map(|pod| uid(&pod.metadata)).collect();
                let gone = self.pods.values().filter(|pod| !uids.contains(&uid(&pod.metadata)));
                gone.cloned().collect::<Vec<_>>().into_iter().for_each(|pod| self.pod(pod, true, now));
                // Also take finished pods before their replacements.
                pods.sort_by_key(Pod::is_live);
                pods.into_iter().for_each(|pod| self.pod(pod, false, now));
            }
            Step::Nothing(_) => return,
        }
        self.last_event = Some(now);
    }

    /// A pod was added, modified or deleted (`gone`).
    fn pod(&mut self, pod: Pod, gone: bool, now: Instant) {
        let uid = uid(&pod.metadata);
        let set = set_of(&pod).to_owned();
        let owner = self.owners.entry(set.clone()).or_default();
        let numbers = [owner.live, owner.ready];
        if let Some(before) = self.pods.remove(&uid).filter(Pod::is_live) {
            owner.live -= 1;
            owner.ready -= usize::from(before.is_ready());
        }
        if pod.is_live() && !gone {
            owner.live += 1;
            owner.ready += usize::from(pod.is_ready());
        }
        if numbers != [owner.live, owner.ready] {
            owner.former.push((numbers, now));
        }
        owner.excess = owner.excess.max(owner.live.saturating_sub(self.goal.most));
        if !gone {
            self.pods.insert(uid, pod);
        }
        self.compare(&set, now);
    }

    /// Updates the time at which the status of a set was last right.
    fn compare(&mut self, name: &str, now: Instant) {
        let (Some(set), Some(owner)) = (self.sets.get(name), self.owners.get_mut(name)) else { return };
        let reported = current_status(set).map(|status| [status.pods(), status.ready_replicas]);
        let is_right = reported == Some([owner.live, owner.ready]);
        if is_right {
            owner.former.clear();
        }
        let until = reported.and_then(|it| owner.former.iter().rev().find(|(numbers, _)| *numbers == it));
        let since = until.map(|(_, until)| *until).or(owner.wrong_since).unwrap_or(now);
        let since = (!is_right).then_some(since);
        if let Some(before) = owner.wrong_since.filter(|before| since != Some(*before)) {
            self.oldest = self.oldest.max(now.saturating_duration_since(before));
        }
        owner.wrong_since = since;
    }

    /// The age of the oldest status, which is the time since it was last right: now, and the maximum in this phase.
    pub fn oldest(&self, now: Instant) -> [Duration; 2] {
        let since = self.owners.values().filter_map(|owner| owner.wrong_since).min();
        let current = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        [current, current.max(self.oldest)]
    }

    /// Applies a step of the watch of the sets.
    pub fn take_sets(&mut self, step: Step<Set>, now: Instant) {
        match step {
            Step::Applied(set) => self.set(set, now),
            Step::Deleted(set) => drop(self.sets.remove(&set.name_any())),
            Step::Listed(sets, _) => {
                self.sets.clear();
                sets.into_iter().for_each(|set| self.set(set, now));
            }
            Step::Nothing(_) => return,
        }
        self.last_event = Some(now);
    }

    fn set(&mut self, set: Set, now: Instant) {
        let name = set.name_any();
        self.owners.entry(name.clone()).or_default();
        self.sets.insert(name.clone(), set);
        self.compare(&name, now);
    }

    /// The live pods, set by set.
    pub fn live(&self) -> Vec<Pod> {
        let mut live: Vec<_> = self.pods.values().filter(|pod| pod.is_live()).cloned().collect();
        live.sort_by_cached_key(|pod| (set_of(pod).to_owned(), pod.name_any()));
        live
    }

    /// The number of live pods.
    pub fn count(&self) -> usize {
        self.owners.values().map(|owner| owner.live).sum()
    }

    /// How far the goal is reached now.
    pub fn progress(&self) -> Progress {
        let Goal { sets, pods, victims, rolls, .. } = &self.goal;
        let mut live = self.owners.values().map(|owner| owner.live).filter(|live| *live > 0);
        let stays =
            |pod: &Pod| pod.metadata.name.as_ref().and_then(|name| victims.get(name)) != pod.metadata.uid.as_ref();
        let is_good = |pod: &Pod| !pod.is_live() || stays(pod) && (!rolls || pod.is_ready());
        let pods_are_right = live.try_fold(0, |sets, live| (live == *pods).then_some(sets + 1)) == Some(*sets)
            && (victims.is_empty() || self.pods.values().all(is_good));
        // The replacement of a lost pod can have its name.
        let recur: HashSet<_> = match victims.is_empty() {
            true => HashSet::new(),
            false => {
                self.pods.values().filter(|pod| pod.is_live()).filter_map(|pod| pod.metadata.name.as_ref()).collect()
            }
        };
        let is_gone = |name: &String| victims.contains_key(name) && !recur.contains(name);
        let is_right = |set: &Set| {
            current_status(set).filter(|status| status.pods() == *pods).is_some_and(|status| {
                (!rolls || status.updated_replicas == *pods && status.ready_replicas == *pods)
                    && !status.pod_names.iter().any(is_gone)
            })
        };
        let is_ready = |set: &Set| set.status.as_ref().is_some_and(|status| status.ready_replicas == *pods);
        match () {
            () if !pods_are_right => Progress::Wrong,
            () if self.sets.len() != *sets || !self.sets.values().all(is_right) => Progress::Pods,
            () if !self.sets.values().all(is_ready) => Progress::Status,
            () => Progress::Ready,
        }
    }

    /// Whether everything is as wanted, and all pods are ready and none is terminating.
    pub fn rests(&self) -> bool {
        let enough = if self.goal.has_status { Progress::Ready } else { Progress::Pods };
        let all_pods_are_ready = || self.pods.values().all(|pod| pod.is_live() && pod.is_ready());
        self.progress() >= enough && self.pods.len() == self.goal.sets * self.goal.pods && all_pods_are_ready()
    }

    /// The sum over the sets of the most pods that each had too many, and how often the watch of the pods started again.
    pub fn faults(&self) -> (usize, usize) {
        (self.owners.values().map(|owner| owner.excess).sum(), self.lists)
    }

    /// The current numbers, for an error message.
    pub fn summary(&self) -> String {
        let (sets, pods, progress) = (self.sets.len(), self.pods.len(), self.progress());
        let ready = self.pods.values().filter(|pod| pod.is_ready()).count();
        format!("{} × {} wanted; {sets} sets, {pods} pods, {ready} ready: {progress:?}", self.goal.sets, self.goal.pods)
    }
}

impl Status {
    fn pods(&self) -> usize {
        self.replicas.unwrap_or(self.available_replicas)
    }
}

/// The status of a set, if it has observed the current spec.
fn current_status(set: &Set) -> Option<&Status> {
    set.status.as_ref().filter(|status| status.observed_generation == set.metadata.generation)
}

/// The set of a pod, also if a ReplicaSet of a Deployment is in between.
pub fn set_of(pod: &Pod) -> &str {
    pod.labels().get("app").map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use serde_json::json;

    use super::*;

    fn goal(pods: usize) -> Goal {
        Goal { sets: 1, pods, most: 2, has_status: true, ..Goal::default() }
    }

    /// One set of two pods, at rest.
    fn set_of_two() -> Judge {
        let mut judge = Judge::default();
        judge.begin(goal(2));
        pod(&mut judge, "1", "False", false);
        pod(&mut judge, "2", "False", false);
        assert_eq!(judge.progress(), Progress::Pods);
        set(&mut judge, 0, &["1", "2"]);
        assert_eq!(judge.progress(), Progress::Status);
        pod(&mut judge, "1", "True", false);
        pod(&mut judge, "2", "True", false);
        set(&mut judge, 2, &["1", "2"]);
        assert!(judge.progress() == Progress::Ready && judge.rests());
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
        assert_eq!(judge.progress(), Progress::Wrong);
        pod(&mut judge, "3", "False", true);
        assert_eq!((judge.faults(), judge.progress()), ((1, 0), Progress::Ready));
        judge.begin(goal(2));
        assert_eq!(judge.faults(), (0, 0));
    }

    #[test]
    fn a_status_is_as_old_as_the_numbers_in_it() {
        let mut judge = set_of_two();
        judge.begin(goal(2));
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert_eq!(judge.oldest(later(9)), [Duration::ZERO; 2]);
        pod(&mut judge, "1", "False", false);
        sleep(Duration::from_millis(20));
        pod(&mut judge, "1", "False", true);
        let changed = Instant::now();
        let [now, most] = judge.oldest(changed);
        assert!(now >= Duration::from_millis(20) && most == now);
        set(&mut judge, 1, &["1", "2"]);
        let [now, most] = judge.oldest(changed);
        assert!(
            now < Duration::from_millis(20) && most >= Duration::from_millis(20),
            "the status is newer, but not right"
        );
        pod(&mut judge, "3", "False", false);
        let [now, most] = judge.oldest(later(9));
        assert!(now.is_zero() && most < Duration::from_secs(8));
    }

    #[test]
    fn victims_must_be_gone_from_the_watch_and_the_status() {
        let mut judge = set_of_two();
        judge.begin(Goal { victims: [("1".to_owned(), "1".to_owned())].into(), ..goal(2) });
        assert_eq!(judge.progress(), Progress::Wrong);
        pod(&mut judge, "1", "True", true);
        pod(&mut judge, "3", "True", false);
        assert_eq!(judge.progress(), Progress::Pods, "the status names the victim");
        set(&mut judge, 2, &["2", "3"]);
        assert!(judge.rests(), "{}", judge.summary());
        judge.begin(Goal { victims: [("2".to_owned(), "2".to_owned())].into(), rolls: true, ..goal(2) });
        pod(&mut judge, "2", "True", true);
        pod(&mut judge, "4", "False", false);
        assert_eq!(judge.progress(), Progress::Wrong, "the new pod is not ready");
        pod(&mut judge, "4", "True", false);
        set(&mut judge, 2, &["3", "4"]);
        assert_eq!(judge.progress(), Progress::Pods, "the status says that no pod is updated");
    }
}
