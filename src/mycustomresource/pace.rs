//! When the status of a resource may be written again. No I/O.
//!
//! Thousands of resources may look for one pod that comes and goes. The first change is written at once, and then at most one
//! in [`PAUSE`]. The answer to a new spec is written at once and starts no pause.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::index::Resource;
use operator_kit::{ObjectKey, failures::Failures, statuses::PAUSE};

/// The last write of the status of each resource whose next one has to wait.
#[derive(Debug, Default)]
pub struct Writes(HashMap<ObjectKey, LastWrite>);

#[derive(Debug)]
struct LastWrite {
    at: Timestamp,
    /// The generation that the status was for.
    generation: i64,
    failures: Failures,
}

impl Writes {
    /// When the status may be written again; `None`: at once.
    pub fn next(&self, resource: &Resource) -> Option<Timestamp> {
        let last = self.0.get(&resource.key).filter(|last| last.generation == resource.generation)?;
        Some(last.at + last.failures.wait().unwrap_or(PAUSE.0))
    }

    /// The status was written.
    pub fn succeeded(&mut self, resource: &Resource, at: Timestamp) {
        let Resource { key, generation, status, .. } = resource;
        self.0.remove(key);
        if status.observed_generation == Some(*generation) {
            let last = LastWrite { at, generation: *generation, failures: Failures::default() };
            self.0.insert(key.clone(), last);
        }
    }

    /// The status may not have been written, for this reason. Returns how long to wait, and whether the reason is news.
    pub fn failed(&mut self, resource: &Resource, error: &str, at: Timestamp) -> (SignedDuration, bool) {
        let Resource { key, generation, .. } = resource;
        let mut failures = self.0.remove(key).map(|last| last.failures).unwrap_or_default();
        let noted = failures.note(error, PAUSE);
        self.0.insert(key.clone(), LastWrite { at, generation: *generation, failures });
        noted
    }

    /// The resource is gone.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MyCustomResourceStatus;

    fn resource(generation: i64, observed_generation: Option<i64>) -> Resource {
        Resource {
            key: ObjectKey::new("default", "one"),
            uid: "u".into(),
            version: 1,
            generation,
            friend: Some("joe".into()),
            status: MyCustomResourceStatus { observed_generation, ..MyCustomResourceStatus::default() },
        }
    }

    #[test]
    fn after_the_answer_to_a_spec_one_more_status_is_written_at_once() {
        let (mut writes, now) = (Writes::default(), Timestamp::UNIX_EPOCH);
        let (new, answered) = (resource(1, None), resource(1, Some(1)));
        assert_eq!(writes.next(&new), None);
        writes.succeeded(&new, now);
        assert_eq!(writes.next(&answered), None);
        writes.succeeded(&answered, now);
        assert_eq!(writes.next(&answered), Some(now + PAUSE.0));
        let changed = resource(2, Some(1));
        assert_eq!(writes.next(&changed), None);
        writes.succeeded(&changed, now);
        assert_eq!(writes.next(&resource(2, Some(2))), None);
    }

    #[test]
    fn failures_are_counted_in_a_row_and_wait_longer_each_time() {
        let (mut writes, now) = (Writes::default(), Timestamp::UNIX_EPOCH);
        let new = resource(1, None);
        let after = |seconds, is_news| (SignedDuration::from_secs(seconds), is_news);
        let noted = ["away", "away", "forbidden"].map(|error| writes.failed(&new, error, now));
        assert_eq!(noted, [after(5, true), after(10, false), after(20, true)]);
        assert_eq!(writes.next(&new), Some(now + SignedDuration::from_secs(20)));
        assert_eq!(writes.next(&resource(2, None)), None, "another spec may be accepted");
        writes.succeeded(&new, now);
        assert_eq!(writes.failed(&new, "away", now), after(5, true));
        writes.forget(&new.key);
        assert_eq!(writes.next(&new), None);
    }
}
