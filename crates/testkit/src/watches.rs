//! Feeds the [check of the bound](Bound) from two watches, of PodSets and of pods. Both come from one etcd, so their resourceVersions show in
//! which order the events happened, and the bound is checked after every one of them.

use std::collections::VecDeque;

use serde_json::Value;

use crate::{bound::Bound, object};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    Sets,
    Pods,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News {
    Applied,
    Deleted,
    /// It was changed or deleted while there was no watch.
    Missed,
}

#[derive(Debug, Default)]
pub struct WatchedBound {
    bound: Bound,
    waiting: [VecDeque<(u64, News, Value)>; 2],
    seen: [u64; 2],
    checked: usize,
    violations: Vec<String>,
}

impl WatchedBound {
    pub fn event(&mut self, stream: Stream, object: Value, news: News) {
        // After a gap, a list may be older than the judged events. It counts from now on.
        let version = object::version(&object).max(self.seen[stream as usize]);
        self.waiting[stream as usize].push_back((version, news, object));
        self.progress(stream, version);
    }

    /// Notes that all events of this stream up to `version` are known.
    pub fn progress(&mut self, stream: Stream, version: u64) {
        let seen = &mut self.seen[stream as usize];
        *seen = version.max(*seen);
        // An event can be judged once the other stream has reached it. Until then, an older event may still arrive.
        let complete = self.seen[0].min(self.seen[1]);
        while let Some(stream) = self.oldest()
            && let Some((version, news, object)) =
                self.waiting[stream as usize].pop_front_if(|(version, ..)| *version <= complete)
        {
            self.happened(stream, version, news, &object);
        }
    }

    /// A line for each event after which a set was over its bound.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    pub fn checked(&self) -> usize {
        self.checked
    }

    /// The stream whose next event happened first.
    fn oldest(&self) -> Option<Stream> {
        let version = |stream: &Stream| self.waiting[*stream as usize].front().map(|(version, ..)| *version);
        [Stream::Sets, Stream::Pods].into_iter().filter(|stream| version(stream).is_some()).min_by_key(version)
    }

    fn happened(&mut self, stream: Stream, version: u64, news: News, object: &Value) {
        let check = match (stream, news) {
            (Stream::Sets, News::Missed) => return self.bound.forget(object::uid(object)),
            (Stream::Sets, _) => Some(self.bound.set(object, news == News::Deleted)),
            (Stream::Pods, _) => self.bound.pod(object, news != News::Applied),
        };
        if let Some(check) = check.filter(|check| check.allowed.is_some()) {
            self.checked += 1;
            if check.is_over() {
                self.violations.push(format!("at resourceVersion {version}, {check}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(version: u64, observed: Option<i64>, generation: i64, replicas: i64) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "w", "generation": generation, "resourceVersion": version.to_string()},
            "spec": {"replicas": replicas}, "status": {"observedGeneration": observed}
        })
    }

    fn pod(version: u64, name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(),
                "ownerReferences": [{"name": "web", "uid": "w", "controller": true}]},
            "status": {"phase": "Running"}
        })
    }

    /// Sees these sets and pods, and everything up to `version`.
    fn seen(sets: &[Value], pods: &[Value], version: u64) -> WatchedBound {
        let mut bound = WatchedBound::default();
        for set in sets {
            bound.event(Stream::Sets, set.clone(), News::Applied);
        }
        for pod in pods {
            bound.event(Stream::Pods, pod.clone(), News::Applied);
        }
        assert!(bound.violations().is_empty(), "nothing is judged before the other stream has reached it");
        bound.progress(Stream::Sets, version);
        bound.progress(Stream::Pods, version);
        bound
    }

    #[test]
    fn an_excess_pod_is_reported() {
        let pods = [pod(2, "a"), pod(3, "b"), pod(4, "c")];
        let bound = seen(&[set(1, None, 1, 2)], &pods, 4);
        let [violation] = bound.violations() else { panic!("{:?}", bound.violations()) };
        let expected = r#"at resourceVersion 4, a/web (w) has 3 pods where 2 are allowed (3 live, 0 terminating): ["a", "b", "c"]"#;
        assert_eq!(violation, expected);
    }

    #[test]
    fn a_scale_down_counts_once_its_generation_is_observed() {
        // The third pod is received late, but happened before the scale-down.
        let pods = [pod(2, "a"), pod(3, "b"), pod(4, "c")];
        let mut bound = seen(&[set(1, Some(1), 1, 3), set(5, Some(1), 2, 1)], &pods, 6);
        assert_eq!(bound.violations(), &[] as &[String]);
        bound.event(Stream::Sets, set(7, Some(2), 2, 1), News::Applied);
        bound.progress(Stream::Pods, 7);
        assert_eq!(bound.violations().len(), 1, "generation 2 is observed, and 3 pods are still live");
        bound.event(Stream::Pods, pod(8, "b"), News::Deleted);
        bound.event(Stream::Pods, pod(9, "c"), News::Deleted);
        bound.progress(Stream::Sets, 9);
        assert_eq!(bound.violations().len(), 2, "only the second delete makes enough room");
    }

    #[test]
    fn nothing_is_judged_while_a_generation_is_unknown() {
        let mut bound = seen(&[set(1, Some(1), 1, 1)], &[pod(2, "a")], 2);
        // The watch of the sets missed the scale-up at 3. The pod was created at 4, the status at 6.
        bound.event(Stream::Pods, pod(4, "b"), News::Applied);
        bound.event(Stream::Sets, set(1, Some(1), 1, 1), News::Missed);
        bound.event(Stream::Sets, set(5, Some(1), 2, 2), News::Applied);
        bound.progress(Stream::Pods, 5);
        assert_eq!((bound.violations(), bound.checked()), (&[][..], 2), "generation 1 is unknown");
        bound.event(Stream::Sets, set(6, Some(2), 2, 2), News::Applied);
        bound.event(Stream::Pods, pod(7, "c"), News::Applied);
        bound.progress(Stream::Sets, 7);
        assert_eq!(bound.violations().len(), 1, "all generations are known again");
    }
}
