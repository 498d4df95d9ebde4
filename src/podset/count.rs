//! The number of pods of a set, and the progress of a rollout. Pure.

use jiff::Timestamp;

use super::revision::{Revision, Update};

/// How many pods a set wants, and how many it has in each state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Count {
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
    /// How many more pods may be created: **the line that keeps the promise**. Every pod that may live counts. A create without an answer
    /// counts too, and is repeated under its name.
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

    /// Whether [`Self::is_complete`] holds, and all pods have the template of the spec and are available.
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
    pub revision: Revision,
    pub update: Update,
    /// The best values so far: the most pods with the template, the most of them that are available, and the fewest that are ending.
    pub count: Count,
    /// The time of the last progress. A pause ends the rollout, and a resume restarts it.
    pub since: Timestamp,
}

impl Progress {
    /// Compares the present with what was reached before. A scale is no progress.
    pub fn after(self, former: Option<Self>) -> Self {
        let Some(former) = former.filter(|former| former.revision == self.revision) else { return self };
        let (before, now) = (former.count, self.count);
        let updated_available = now.updated_available.max(before.updated_available);
        if now.wanted != before.wanted {
            // Pods that a scale-up adds are no progress either, so they count as reached already.
            let added = now.wanted.saturating_sub(before.wanted);
            let updated = now.updated.max(before.updated + added).min(now.wanted);
            let updated_available = updated_available.min(now.wanted);
            return Progress { count: Count { updated, updated_available, ..now }, since: former.since, ..self };
        }
        if self.update != former.update {
            return self;
        }
        let has_advanced = now.updated > before.updated || now.updated_available > before.updated_available;
        let updated = now.updated.max(before.updated);
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
    fn a_pod_that_is_available_again_is_no_progress_even_if_the_set_was_scaled() {
        let set = testing::set(5);
        let wanted = set.wanted.as_ref().unwrap();
        let seen = |second, of, updated_available| Progress {
            revision: wanted.revision,
            update: wanted.update,
            count: Count { wanted: of, updated: 1, updated_available, ..Count::default() },
            since: testing::now() + SignedDuration::from_secs(second),
        };
        let mut progress = seen(0, 5, 1);
        for next in
            [seen(1, 5, 0), seen(2, 5, 1), seen(3, 5, 0), seen(4, 6, 0), seen(5, 6, 1), seen(6, 5, 0), seen(7, 5, 1)]
        {
            progress = next.after(Some(progress));
        }
        assert_eq!(progress.since, testing::now());
        assert_eq!(seen(8, 5, 2).after(Some(progress)).since, seen(8, 5, 2).since);
    }
}
