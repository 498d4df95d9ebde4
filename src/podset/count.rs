//! The number of pods of a set, and the progress of a rollout. Pure.

use jiff::Timestamp;

use super::revision::{Revision, Update};

/// The number of pods of a set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Count {
    /// Pods wanted.
    pub wanted: usize,
    /// Pods that are live according to the cache.
    pub live: usize,
    /// Pods that are being deleted and count until they have ended: none unless the set waits for terminations.
    pub ending: usize,
    /// Creates without an answer. If `live` or `ending` counts the pod already, its create is not counted here.
    pub unknown: usize,
    /// Live pods that certainly exist: the watch has not lost them.
    pub certain: usize,
    /// Live pods of the template in the spec.
    pub updated: usize,
    /// Those among them that are available.
    pub updated_available: usize,
    /// Live pods that are available, of any template.
    pub available: usize,
}

impl Count {
    /// How many pods may be created under new names: **the line that keeps the promise**. Every pod that may live counts.
    pub fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.occupied())
    }

    /// The number of pods that live or may live.
    pub fn occupied(&self) -> usize {
        self.live + self.ending + self.unknown
    }

    /// Whether there are as many pods as wanted, and no other pod may live.
    pub fn is_complete(&self) -> bool {
        [self.live, self.occupied()] == [self.wanted; 2]
    }

    /// Whether it is complete, and all pods have the template of the spec and are available.
    pub fn is_rolled_out(&self) -> bool {
        self.is_complete() && self.updated_available == self.wanted
    }

    /// How many pods must be deleted. Only certain pods count: a pod that may not exist must not cause the deletion of another one.
    pub fn surplus(&self) -> usize {
        self.certain.saturating_sub(self.wanted)
    }
}

/// The last progress of a rollout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// The revision that is rolled out.
    pub revision: Revision,
    /// How it is rolled out.
    pub update: Update,
    /// What was reached: the most pods with the template, the most of them that are available, and the fewest that are ending since.
    pub count: Count,
    /// The time of the last progress. A pause ends the rollout, and a resume restarts it.
    pub since: Timestamp,
}

impl Progress {
    /// Compares the present with what was reached before. A scale is no progress.
    pub fn after(self, former: Option<Self>) -> Self {
        let Some(former) = former.filter(|former| former.revision == self.revision) else { return self };
        let (before, now) = (former.count, self.count);
        if now.wanted != before.wanted {
            // Pods that a scale-up adds are no progress either, so they count as reached already.
            let added = now.wanted.saturating_sub(before.wanted);
            let updated = now.updated.max(before.updated + added).min(now.wanted);
            return Progress { count: Count { updated, ..now }, since: former.since, ..self };
        }
        if self.update != former.update {
            return self;
        }
        // A scale-down may delete new pods, so only what is left was reached. The end of a pod that it deletes is no progress.
        if before.surplus() > 0 {
            let ending = now.ending.min(before.ending);
            return Progress { count: Count { ending, ..now }, since: former.since, ..self };
        }
        let has_advanced = now.updated > before.updated || now.updated_available > before.updated_available;
        let updated = now.updated.max(before.updated);
        let updated_available = now.updated_available.max(before.updated_available);
        let is_progress = has_advanced || now.ending < before.ending;
        let since = if is_progress { self.since } else { former.since };
        let ending = if has_advanced { now.ending } else { now.ending.min(before.ending) };
        Progress { count: Count { updated, updated_available, ending, ..now }, since, ..self }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::podset::testing;

    #[test]
    fn new_pods_that_a_scale_down_deletes_were_not_reached() {
        let update = testing::set(4).wanted.unwrap().update;
        let after = |second| testing::now() + SignedDuration::from_secs(second);
        let at = |second, wanted, live, updated| {
            let count = Count { wanted, live, certain: live, updated, ..Count::default() };
            Progress { revision: Revision::of(None, 0), update, count, since: after(second) }
        };
        let scaled = at(290, 2, 4, 2).after(Some(at(5, 4, 4, 2)));
        let deleted = at(291, 2, 2, 0).after(Some(scaled));
        assert_eq!(deleted.since, after(5), "a scale is no progress");
        assert_eq!(at(295, 2, 2, 2).after(Some(deleted)).since, after(295));
        let ending = |second, ending| {
            let progress = at(second, 2, 2, 0);
            Progress { count: Count { ending, ..progress.count }, ..progress }
        };
        let deleted = ending(291, 2).after(Some(scaled));
        assert_eq!(ending(292, 1).after(Some(deleted)).since, after(5), "nor is the end of a pod that it deletes");
    }
}
