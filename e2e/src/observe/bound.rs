//! Checks "never more than N": the live pods of a set are at most the largest `spec.replicas` among the generations from
//! `status.observedGeneration` to `metadata.generation`. If all of these have `podReplacementPolicy: TerminationComplete`, the same holds for
//! the pods that may run, which include terminating ones.
//!
//! The input are the events of two watches, PodSets and pods. Both come from one etcd, so their resourceVersions show in which order they
//! happened, and the bound is checked after every one of them. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use kube::ResourceExt;

use crate::types::{Pod, PodSet, uid, version};

/// The watch of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    Sets,
    Pods,
}

/// The check, and what it has found.
#[derive(Default)]
pub struct Bound {
    sets: HashMap<String, Set>,
    /// The owner of each pod, by UID.
    owners: HashMap<String, String>,
    /// The pods that may run, by UID of the set and of the pod: the name, and whether the pod is live.
    running: HashMap<String, BTreeMap<String, (String, bool)>>,
    waiting: [VecDeque<(u64, Event)>; 2],
    seen: [u64; 2],
    judged: usize,
    violations: Vec<String>,
}

#[derive(Default)]
struct Set {
    is_known: bool,
    observed: i64,
    generation: i64,
    /// By generation: the replicas, and whether the policy is TerminationComplete.
    wanted: BTreeMap<i64, (i64, bool)>,
}

enum Event {
    Set(PodSet, bool),
    Pod(Pod, bool),
}

impl Bound {
    /// A PodSet was added, modified or deleted (`gone`), or changed during a gap of the watch (also `gone`, until its next event).
    pub fn set(&mut self, set: &PodSet, gone: bool) {
        self.push(Stream::Sets, version(&set.metadata), Event::Set(set.clone(), gone));
    }

    /// The same for a pod.
    pub fn pod(&mut self, pod: &Pod, gone: bool) {
        self.push(Stream::Pods, version(&pod.metadata), Event::Pod(pod.clone(), gone));
    }

    /// All events of this stream up to `version` are known.
    pub fn progress(&mut self, stream: Stream, version: u64) {
        let seen = &mut self.seen[stream as usize];
        *seen = version.max(*seen);
        // An event can be judged when the other stream is as far. Before, something older may still come.
        let complete = self.seen[0].min(self.seen[1]);
        while let Some(stream) = self.oldest_stream()
            && let Some((version, event)) = self.waiting[stream].pop_front_if(|(version, _)| *version <= complete)
        {
            self.happened(version, event);
        }
    }

    /// A line for each event after which a set was over its bound.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The number of events after which the bound was checked.
    pub fn judged(&self) -> usize {
        self.judged
    }

    fn push(&mut self, stream: Stream, version: u64, event: Event) {
        // After a gap, a list may be older than what was judged: it counts from now on.
        let version = version.max(self.seen[stream as usize]);
        self.waiting[stream as usize].push_back((version, event));
        self.progress(stream, version);
    }

    fn oldest_stream(&self) -> Option<usize> {
        (0..2).filter(|&s| !self.waiting[s].is_empty()).min_by_key(|&s| self.waiting[s][0].0)
    }

    fn happened(&mut self, at: u64, event: Event) {
        match event {
            Event::Set(object, gone) => {
                let uid = uid(&object.metadata);
                let set = self.sets.entry(uid.clone()).or_default();
                set.is_known = !gone;
                if gone {
                    return;
                }
                set.observed = object.state().observed_generation.unwrap_or(0);
                set.generation = object.metadata.generation.unwrap_or(0);
                let waits = object.spec.pod_replacement_policy == "TerminationComplete";
                set.wanted.insert(set.generation, (object.spec.replicas, waits));
                self.judge(at, &uid);
            }
            Event::Pod(pod, gone) => {
                let uid = uid(&pod.metadata);
                // The owner may change: then the pod does not count for the former one.
                if let Some(former) = self.owners.remove(&uid) {
                    self.running.entry(former).or_default().remove(&uid);
                }
                let Some(owner) = pod.owner().filter(|_| !gone && pod.may_run()).map(str::to_owned) else { return };
                self.owners.insert(uid.clone(), owner.clone());
                self.running.entry(owner.clone()).or_default().insert(uid, (pod.name_any(), pod.is_live()));
                self.judge(at, &owner);
            }
        }
    }

    fn judge(&mut self, at: u64, uid: &str) {
        let Some(set) = self.sets.get(uid) else { return };
        let Some((allowed, waits)) = set.allowed() else { return };
        self.judged += 1;
        let running = self.running.get(uid).into_iter().flat_map(BTreeMap::values);
        let names: BTreeSet<_> = running.filter(|(_, is_live)| waits || *is_live).map(|(name, _)| name).collect();
        if names.len() as i64 > allowed {
            let kind = if waits { "running" } else { "live" };
            self.violations.push(format!(
                "{} {kind} pods at resourceVersion {at} where {allowed} are allowed (observedGeneration {}, generation {}, wanted by \
                 generation {:?}): {names:?}",
                names.len(),
                set.observed,
                set.generation,
                set.wanted
            ));
        }
    }
}

impl Set {
    /// The bound, and whether it is for all pods that may run. `None` if it is unknown: the set is gone, or a generation was not seen.
    fn allowed(&self) -> Option<(i64, bool)> {
        let first = self.observed.max(1);
        let wanted = || self.wanted.range(first..=self.generation).map(|(_, wanted)| *wanted);
        if !self.is_known || (wanted().count() as i64) < self.generation - first + 1 {
            return None;
        }
        Some((wanted().map(|(replicas, _)| replicas).max()?, wanted().all(|(_, waits)| waits)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::observe::fixtures::{pod, set};

    #[test]
    fn one_pod_too_many_is_found_and_named() {
        let mut bound = Bound::default();
        bound.set(&set(1, None, 1, 2), false);
        for (version, name) in [(2, "a"), (3, "b"), (4, "c")] {
            bound.pod(&pod(version, name, "Pending"), false);
        }
        assert!(bound.violations().is_empty(), "nothing is judged before the other stream is as far");
        bound.progress(Stream::Sets, 4);
        assert_eq!(bound.violations().len(), 1);
        assert!(bound.violations()[0].contains("3 live pods at resourceVersion 4 where 2"), "{:?}", bound.violations());
    }

    #[test]
    fn finished_and_deleted_pods_make_room() {
        let mut bound = Bound::default();
        bound.set(&set(1, None, 1, 1), false);
        bound.pod(&pod(2, "a", "Running"), false);
        bound.pod(&pod(3, "a", "Failed"), false);
        bound.pod(&pod(4, "b", "Running"), false);
        bound.pod(&pod(5, "b", "Running"), true);
        bound.pod(&pod(6, "c", "Running"), false);
        bound.progress(Stream::Sets, 6);
        assert_eq!(bound.violations(), &[] as &[String]);
        assert_eq!(bound.judged(), 4);
    }

    #[test]
    fn a_scale_down_holds_from_the_generation_that_was_observed_on() {
        let mut bound = Bound::default();
        bound.set(&set(1, Some(1), 1, 3), false);
        bound.pod(&pod(2, "a", "Running"), false);
        bound.pod(&pod(3, "b", "Running"), false);
        bound.set(&set(5, Some(1), 2, 1), false);
        // It is received late, but happened before.
        bound.pod(&pod(4, "c", "Running"), false);
        bound.progress(Stream::Pods, 7);
        assert_eq!(bound.violations(), &[] as &[String]);
        bound.set(&set(7, Some(2), 2, 1), false);
        assert_eq!(bound.violations().len(), 1, "observed, and still 3 of them");
    }

    #[test]
    fn a_terminating_pod_counts_only_if_the_set_waits_for_terminations() {
        for (policy, violations) in [("TerminationStarted", 0), ("TerminationComplete", 1)] {
            let mut bound = Bound::default();
            let mut set = set(1, None, 1, 1);
            set.spec.pod_replacement_policy = policy.to_owned();
            bound.set(&set, false);
            let mut terminating = pod(2, "a", "Running");
            terminating.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            terminating.spec.node_name = Some("node".to_owned());
            bound.pod(&terminating, false);
            bound.pod(&pod(3, "b", "Running"), false);
            bound.progress(Stream::Sets, 3);
            assert_eq!(bound.violations().len(), violations, "{policy}");
        }
    }
}
