//! Part of *plan*: which pods have which template, and which are deleted because of it. Pure.
//!
//! A rollout only deletes. [`Count::missing`](super::Count::missing) then says that pods are missing, and each missing pod gets the template of the spec or, while
//! that one is not proven, the one that all pods had last. So a template that does not work takes no more pods than `maxUnavailable`.

use jiff::{SignedDuration, Timestamp};

use super::{Count, Creation, Deletion, Hold, Input, Plan, Prepare, Rollout, Why, deletion, soonest};
use crate::podset::{
    observe::{Seen, Wanted},
    ranking,
    revision::Revision,
};

/// The last progress of a rollout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// The revision that is rolled out.
    revision: Revision,
    /// The most pods so far that have it, that are available, and that are not being deleted: more of any is progress.
    reached: [usize; 3],
    /// When there was progress last. Time in which the rollout was paused does not count.
    since: Timestamp,
}

impl Progress {
    /// The progress up to now; `None` while no rollout is in progress.
    fn after(former: Option<Self>, rollout: Rollout, count: Count, revision: Revision, now: Timestamp) -> Option<Self> {
        let now_reached = [count.updated, count.available, count.occupied - count.ending];
        let former = former.filter(|former| former.revision == revision);
        let before = former.map_or([0; 3], |former| former.reached);
        let reached = std::array::from_fn(|of| before[of].max(now_reached[of]));
        let since = former.filter(|_| reached == before).map_or(now, |former| former.since);
        (rollout == Rollout::InProgress).then_some(Progress { revision, reached, since })
    }
}

impl Input<'_> {
    /// Whether the pod has the template of the spec.
    pub(super) fn is_updated(&self, seen: &Seen) -> bool {
        seen.pod.revision.is_some() && seen.pod.revision == self.view.set.revision()
    }

    /// Whether the pod has been ready for `minReadySeconds`, and no delete of it may still take effect.
    pub(super) fn is_available(&self, seen: &Seen) -> bool {
        let min_ready = self.view.set.wanted.as_ref().map_or(0, |wanted| wanted.update.min_ready);
        let is_due = seen.ready_for(min_ready).is_some_and(|at| at <= self.now);
        is_due && !seen.is_missing && !self.state.fates.is_going(&seen.pod.uid)
    }

    /// How many pods may have the template of the spec now.
    fn quota(&self, count: Count, wanted: &Wanted) -> usize {
        let max_unavailable = wanted.update.max_unavailable.unwrap_or(wanted.replicas);
        (wanted.replicas - wanted.update.partition).min(count.updated_available + max_unavailable)
    }

    /// Chooses the template of each pod to create.
    pub(super) fn with_templates(&self, mut create: Vec<Creation>, count: Count, wanted: &Wanted) -> Vec<Creation> {
        let former = self.view.set.former_revision().filter(|_| wanted.update.max_unavailable.is_some());
        let mut updated = count.updated;
        for creation in &mut create {
            let is_paused = wanted.update.is_paused && updated == 0;
            creation.former = former.filter(|_| is_paused || updated >= self.quota(count, wanted));
            updated += usize::from(creation.former.is_none());
        }
        create
    }

    /// Adds the state of the rollout, and what it needs.
    pub(super) fn with_rollout(&self, plan: Plan, wanted: &Wanted) -> Plan {
        let outdated = self.outdated(&plan, wanted);
        let rollout = self.rollout(plan.count, wanted);
        let (set, state) = (&self.view.set, &self.state.preparation);
        let is_stored = !set.is_templated() || state.stored == Some(wanted.revision);
        let needed = match (is_stored, state.dry_run) {
            (false, _) if !outdated.is_empty() || !plan.create.is_empty() => Some(Prepare::Store),
            (true, passed) if !outdated.is_empty() && passed != Some(wanted.revision) => Some(Prepare::DryRun),
            _ => None,
        };
        let waits_until = state.again.filter(|again| needed.is_some() && *again > self.now);
        let wake = soonest(plan.wake, waits_until);
        let prepare = needed.filter(|_| waits_until.is_none());
        let progress = Progress::after(self.state.progress, rollout, plan.count, wanted.revision, self.now);
        let allowed = SignedDuration::from_secs(wanted.update.deadline.into());
        let deadline = progress.map(|progress| progress.since + allowed);
        let is_late = deadline.is_some_and(|deadline| deadline <= self.now);
        let wake = soonest(wake, deadline.filter(|_| !is_late));
        let plan = Plan { prepare, rollout, progress, is_late, wake, ..plan };
        if needed.is_some() { plan } else { self.with_deletes(plan, outdated) }
    }

    fn rollout(&self, count: Count, wanted: &Wanted) -> Rollout {
        let Count { live, occupied, updated, updated_available, .. } = count;
        let is_complete = [live, occupied, updated_available] == [wanted.replicas; 3];
        let has_old = self.old().next().is_some();
        let is_over = !has_old && (self.view.set.former_revision().is_none() || is_complete);
        if wanted.update.max_unavailable.is_none() || is_over {
            Rollout::None
        } else if wanted.update.is_paused {
            Rollout::Paused
        } else if updated + wanted.update.partition >= wanted.replicas && has_old {
            Rollout::AtPartition
        } else {
            Rollout::InProgress
        }
    }

    /// The live pods of other templates, except those that are deleted anyway.
    fn old(&self) -> impl Iterator<Item = &Seen> {
        let is_old = |seen: &&Seen| seen.is_live() && !self.is_updated(seen);
        self.view.pods.iter().filter(is_old).filter(|seen| !self.state.fates.strays.contains_key(&seen.pod.uid))
    }

    /// The pods to delete because they have another template than the spec's: those that are not available first.
    fn outdated(&self, plan: &Plan, wanted: &Wanted) -> Vec<Deletion> {
        let Count { live, ending, occupied, certain, updated, .. } = plan.count;
        let Some(max_unavailable) = wanted.update.max_unavailable.filter(|_| !wanted.update.is_paused) else {
            return Vec::new();
        };
        let is_busy = plan.hold != Hold::Nothing || self.state.strays_hold();
        if is_busy || occupied - ending > wanted.replicas || certain < live {
            return Vec::new();
        }
        // A create without an answer may bring a pod of either template.
        let unknown = occupied - live - ending;
        let free = wanted.replicas - (occupied - ending);
        let mut left = self.quota(plan.count, wanted).saturating_sub(updated + unknown + free);
        let mut available = plan.count.available;
        let least = wanted.replicas.saturating_sub(max_unavailable);
        let old: Vec<&Seen> = self.old().collect();
        let mut ranked = ranking::victims_first(&old, None, self.state);
        ranked.sort_by_key(|seen| (self.is_available(seen), seen.pod.deletion_cost));
        let mut outdated = Vec::new();
        for seen in ranked {
            let is_available = self.is_available(seen);
            if left == 0 || (is_available && available <= least) {
                break;
            }
            let counts = usize::from(self.may_go(seen));
            left -= counts;
            available -= usize::from(is_available) * counts;
            outdated.push(Deletion { is_exact: self.may_be_bound(seen), ..deletion(seen, Why::Outdated) });
        }
        outdated
    }
}
