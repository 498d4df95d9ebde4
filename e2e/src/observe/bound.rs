//! "Never more than N" as a check: live(set) ≤ the largest `spec.replicas` among the generations from
//! `status.observedGeneration` to `metadata.generation`. If all of these have `podReplacementPolicy: TerminationComplete`, the same for the
//! pods that may run, which include those that are being deleted.
//!
//! In go the events of two watches, PodSets and pods, in whatever order they happen to be received; both come from one
//! etcd, so their resourceVersions put them back into the order in which they happened, and the bound is checked after
//! every one of them. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use kube::ResourceExt;

use crate::types::{Pod, PodSet, uid, version};

/// Which of the two watches an event came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    /// The watch of PodSets.
    Sets,
    /// The watch of pods.
    Pods,
}

/// The check, and what it has found so far.
#[derive(Default)]
pub struct Bound {
    sets: HashMap<String, Set>,
    owners: HashMap<String, String>,
    /// By set and pod: its name, and whether it is live or only may run.
    running: HashMap<String, BTreeMap<String, (String, bool)>>,
    waiting: [VecDeque<(u64, Event)>; 2],
    seen: [u64; 2],
    judged: usize,
    violations: Vec<String>,
}

struct Set {
    name: String,
    is_known: bool,
    observed: i64,
    generation: i64,
    /// By generation: how many pods are wanted, and whether they wait for terminations.
    wanted: BTreeMap<i64, (i64, bool)>,
}

enum Event {
    Set { uid: String, name: String, observed: i64, generation: i64, wanted: (i64, bool) },
    SetGone { uid: String },
    Pod { uid: String, name: String, owner: Option<String>, is_live: bool, may_run: bool },
}

impl Bound {
    /// A PodSet was added, changed or (`gone`) deleted. Also gone, until it is told again, is what changed while its
    /// watch was interrupted: the list that follows tells the last of the changes only.
    pub fn set(&mut self, set: &PodSet, gone: bool) {
        let uid = uid(&set.metadata);
        let event = if gone {
            Event::SetGone { uid }
        } else {
            Event::Set {
                uid,
                name: set.name_any(),
                observed: set.state().observed_generation.unwrap_or(0),
                generation: set.metadata.generation.unwrap_or(0),
                wanted: (set.spec.replicas, set.spec.pod_replacement_policy == "TerminationComplete"),
            }
        };
        self.push(Stream::Sets, version(&set.metadata), event);
    }

    /// A pod was added, changed or (`gone`) deleted; as with sets, also what changed while nobody watched.
    pub fn pod(&mut self, pod: &Pod, gone: bool) {
        let event = Event::Pod {
            uid: uid(&pod.metadata),
            name: pod.name_any(),
            owner: pod.owner().map(str::to_owned),
            is_live: pod.is_live(),
            may_run: !gone && pod.may_run(),
        };
        self.push(Stream::Pods, version(&pod.metadata), event);
    }

    /// Everything that happened in this stream up to `version` was told.
    pub fn progress(&mut self, stream: Stream, version: u64) {
        let seen = &mut self.seen[stream as usize];
        *seen = version.max(*seen);
        self.judge_what_is_complete();
    }

    /// What was wrong, one line for each event after which a set was over its bound.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Events after which the bound was checked: a check of nothing proves nothing.
    pub fn judged(&self) -> usize {
        self.judged
    }

    fn push(&mut self, stream: Stream, version: u64, event: Event) {
        // What a list tells after a gap may be older than what was judged: it counts from now on.
        let version = version.max(self.seen[stream as usize]);
        self.waiting[stream as usize].push_back((version, event));
        self.progress(stream, version);
    }

    /// An event can be judged when the other stream has come as far: until then something older may still arrive.
    fn judge_what_is_complete(&mut self) {
        let complete = self.seen[0].min(self.seen[1]);
        while let Some(stream) = self.oldest_stream()
            && let Some((version, event)) = self.waiting[stream].pop_front_if(|(version, _)| *version <= complete)
        {
            self.happened(version, event);
        }
    }

    fn oldest_stream(&self) -> Option<usize> {
        (0..2).filter(|&s| !self.waiting[s].is_empty()).min_by_key(|&s| self.waiting[s][0].0)
    }

    fn happened(&mut self, at: u64, event: Event) {
        let touched = match event {
            Event::SetGone { uid } => {
                if let Some(set) = self.sets.get_mut(&uid) {
                    set.is_known = false;
                }
                return;
            }
            Event::Set { uid, name, observed, generation, wanted } => {
                let set = self.sets.entry(uid.clone()).or_insert_with(|| Set {
                    name,
                    is_known: true,
                    observed,
                    generation,
                    wanted: BTreeMap::new(),
                });
                (set.is_known, set.observed, set.generation) = (true, observed, generation);
                set.wanted.insert(generation, wanted);
                uid
            }
            Event::Pod { uid, name, owner, is_live, may_run } => {
                // The owner may be taken from a pod: it is then no longer one of the set's.
                if let Some(former) = self.owners.remove(&uid) {
                    self.running.entry(former).or_default().remove(&uid);
                }
                let Some(owner) = owner.filter(|_| may_run) else { return };
                self.owners.insert(uid.clone(), owner.clone());
                self.running.entry(owner.clone()).or_default().insert(uid, (name, is_live));
                owner
            }
        };
        self.judge(at, &touched);
    }

    fn judge(&mut self, at: u64, uid: &str) {
        let Some(set) = self.sets.get(uid) else { return };
        let Some((allowed, waits)) = set.allowed() else { return };
        self.judged += 1;
        let counted =
            self.running.get(uid).into_iter().flat_map(BTreeMap::values).filter(|(_, is_live)| waits || *is_live);
        let names: BTreeSet<_> = counted.map(|(name, _)| name).collect();
        let live = names.len() as i64;
        if live > allowed {
            let kind = if waits { "running" } else { "live" };
            self.violations.push(format!(
                "{} had {live} {kind} pods at resourceVersion {at} where {allowed} are the most (observedGeneration {}, \
                 generation {}, wanted by generation {:?}): {names:?}",
                set.name, set.observed, set.generation, set.wanted
            ));
        }
    }
}

impl Set {
    /// The bound, and whether it is one for pods that may run; or nothing where the set is gone, or a generation of the range was never seen, or what it was while
    /// the watch began anew: what cannot be known cannot be judged.
    fn allowed(&self) -> Option<(i64, bool)> {
        if !self.is_known {
            return None;
        }
        let first = self.observed.max(1);
        let known = self.wanted.range(first..=self.generation).count() as i64;
        if known < self.generation - first + 1 {
            return None;
        }
        let generations = || self.wanted.range(first..=self.generation).map(|(_, wanted)| *wanted);
        Some((generations().map(|(replicas, _)| replicas).max()?, generations().all(|(_, waits)| waits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::fixtures::{pod, set};

    #[test]
    fn one_pod_too_many_is_found_and_named() {
        let mut bound = Bound::default();
        bound.set(&set(1, None, 1, 2), false);
        for (version, name) in [(2, "a"), (3, "b"), (4, "c")] {
            bound.pod(&pod(version, name, "Pending"), false);
        }
        assert!(bound.violations().is_empty(), "nothing is judged before the other stream has come as far");
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
        // Received late, happened before: the order of the resourceVersions counts.
        bound.pod(&pod(4, "c", "Running"), false);
        bound.progress(Stream::Pods, 7);
        assert_eq!(bound.violations(), &[] as &[String]);
        bound.set(&set(7, Some(2), 2, 1), false);
        assert_eq!(bound.violations().len(), 1, "observed, and still 3 of them");
    }
}
