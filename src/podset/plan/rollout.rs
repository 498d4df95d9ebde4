//! Part of *plan*: which pods have which template, and which are deleted because of it. Pure.
//!
//! A rollout only deletes. [`Count::missing`] then counts the missing pods. A missing pod gets the new template while fewer than
//! `most_updated` pods have that template. Otherwise it gets the template of `status.currentRevision`. So a template that does not work
//! costs at most `maxUnavailable` pods.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{Creation, Deletion, Hold, Input, Plan, Prepare, Rollout, Why, soonest};
use crate::podset::{
    count::{Count, Progress},
    observe::{Seen, Wanted},
    ranking,
};
use operator_kit::meta::Uid;

/// The bounds of a rollout. A test can replace one to show that too few pods are available then.
#[derive(Clone, Copy, Debug)]
pub struct RolloutRules {
    /// How many pods may have the new template now: those that are available with it (`proven`) plus `max_unavailable`, at most `most`.
    pub most_updated: fn(most: usize, proven: usize, max_unavailable: usize) -> usize,
    /// Whether one of `available` available pods may be deleted if `least` must stay available.
    pub may_delete_available: fn(available: usize, least: usize) -> bool,
    /// Whether lost pods get the former template until pods with the new one are available.
    pub is_careful: bool,
}

impl Default for RolloutRules {
    fn default() -> Self {
        RolloutRules {
            most_updated: |most, proven, max_unavailable| most.min(proven + max_unavailable),
            may_delete_available: |available, least| available > least,
            is_careful: true,
        }
    }
}

impl Input<'_> {
    /// Whether the pod has the template of the spec.
    pub(super) fn is_updated(&self, seen: &Seen) -> bool {
        self.view.set.is_template_of(&seen.pod)
    }

    /// Whether the pod has been ready for `minReadySeconds`, the watch has not lost it, and no delete of it may still take effect.
    pub(super) fn is_available(&self, seen: &Seen) -> bool {
        let is_due = self.available_at(seen).is_some_and(|at| at <= self.now);
        is_due && !seen.is_missing && !self.state.fates.is_going(&seen.pod.uid)
    }

    /// When the pod will have been ready for `minReadySeconds`.
    pub(super) fn available_at(&self, seen: &Seen) -> Option<Timestamp> {
        seen.ready_for(self.view.set.wanted.as_ref().map_or(0, |wanted| wanted.update.min_ready))
    }

    /// How many pods keep the former template: none if the spec has the template that all pods had last.
    pub(super) fn partition(&self, wanted: &Wanted) -> usize {
        if self.view.set.has_current_template() { 0 } else { wanted.update.partition }
    }

    /// How many pods may have the template of the spec now.
    fn most_updated(&self, count: Count, wanted: &Wanted) -> usize {
        let max_unavailable = wanted.update.max_unavailable.unwrap_or(wanted.replicas);
        let most = wanted.replicas - self.partition(wanted);
        (self.rollout.most_updated)(most, count.updated_available, max_unavailable)
    }

    /// Chooses the template of each pod to create. Those of the former template come first.
    pub(super) fn with_templates(&self, mut create: Vec<Creation>, count: Count, wanted: &Wanted) -> Vec<Creation> {
        let is_careful = wanted.update.replaces_pods() && self.rollout.is_careful;
        let former = self.state.preparation.former(&self.view.set).filter(|_| is_careful);
        let is_stopped = self.state.preparation.stops_creates(&self.view.set);
        let is_paused = wanted.update.is_paused && count.updated == 0;
        let new = match self.is_invalid() || is_stopped || is_paused {
            true => 0,
            false => self.most_updated(count, wanted).saturating_sub(count.updated),
        };
        // The former template goes to new names first, because a repeated create may already have made a pod with the new one.
        let mut old = create.len().saturating_sub(new);
        for is_repeated in [false, true] {
            let creations = create.iter_mut().filter(|creation| creation.is_repeated == is_repeated).take(old);
            old -= creations.map(|creation| creation.former = former).count();
        }
        create.sort_by_key(|creation| creation.former.is_none());
        // While creates with the template of the spec are stopped, only pods of the former template are created.
        create.retain(|creation| creation.former.is_some() || !is_stopped);
        create
    }

    /// Whether the API server has rejected the template of the spec as invalid, and no dry run has passed since.
    fn is_invalid(&self) -> bool {
        let (set, state) = (&self.view.set, self.state);
        let rejected = state.reports.rejected_create.as_ref();
        state.preparation.invalid(set).is_some()
            || (state.preparation.dry_run != set.revision()
                && rejected.is_some_and(|rejected| rejected.is_invalid_template(set.generation)))
    }

    /// The pods of former templates that neither a pause nor the partition keeps: those that a scale-down would delete first.
    pub(super) fn not_kept(&self, wanted: &Wanted) -> BTreeSet<Uid> {
        let has_changed = wanted.update.replaces_pods() && !self.view.set.has_current_template();
        let kept = match has_changed {
            false => 0,
            true if wanted.update.is_paused => usize::MAX,
            true => wanted.update.partition,
        };
        let old: Vec<&Seen> = self.old().collect();
        let mut ranked = ranking::victims_first(&old, |seen| u8::from(self.is_former(seen)), self.state, self.now);
        ranked.truncate(old.len().saturating_sub(kept));
        ranked.into_iter().map(|seen| seen.pod.uid.clone()).collect()
    }

    /// The rank of a pod by its template; a scale-down deletes pods of a lower rank first. Pods of former templates that are kept come last,
    /// so that a scale-down does not complete the rollout.
    pub(super) fn template_rank(&self, seen: &Seen, not_kept: &BTreeSet<Uid>) -> u8 {
        match self.is_updated(seen) {
            true if !self.is_available(seen) => 0,
            false if not_kept.contains(&seen.pod.uid) => 1,
            true => 2,
            false => 3,
        }
    }

    /// Whether the pod has the former template, and not an older one.
    fn is_former(&self, seen: &Seen) -> bool {
        seen.pod.revision.is_some() && seen.pod.revision == self.view.set.former_revision()
    }

    /// Adds the state of the rollout, and what it needs.
    pub(super) fn with_rollout(&self, plan: Plan, wanted: &Wanted) -> Plan {
        let outdated = self.outdated(&plan, wanted);
        let rollout = self.rollout(plan.count, wanted);
        let needed = self.needed_preparation(&plan, wanted, !outdated.is_empty());
        // In a namespace that is being deleted, nothing can be prepared.
        let needed = needed.filter(|_| plan.hold != Hold::Blocked);
        let failed = self.state.preparation.failure(&self.view.set).filter(|_| needed.is_some());
        let retry_at = failed.map(|failed| failed.again).filter(|again| *again > self.now);
        let Wanted { revision, update, .. } = *wanted;
        let progress = Progress { revision, update, count: plan.count, since: self.now };
        let progress =
            (rollout == Rollout::InProgress).then(|| progress.after(self.state.progress.as_deref().copied()));
        let deadline = progress.map(|progress| progress.since + SignedDuration::from_secs(update.deadline.into()));
        let is_late = deadline.is_some_and(|deadline| deadline <= self.now);
        let wake = soonest([plan.wake, retry_at, deadline.filter(|_| !is_late)]);
        let prepare = needed.filter(|_| retry_at.is_none());
        let plan = Plan { prepare, rollout, progress, is_late, wake, ..plan };
        // Outdated pods are deleted only once the template is stored and its dry run has passed.
        if needed.is_some() { plan } else { self.with_deletes(plan, outdated) }
    }

    /// What the template of the spec still needs. `replaces`: pods are to be replaced by pods of it.
    fn needed_preparation(&self, plan: &Plan, wanted: &Wanted, replaces: bool) -> Option<Prepare> {
        let (set, preparation) = (&self.view.set, &self.state.preparation);
        if preparation.is_stored(set) {
            let has_passed = preparation.dry_run == Some(wanted.revision);
            // While pods get the former template, or would get it if it could be used, dry runs show whether the new one is still rejected.
            let may_get_former = wanted.update.replaces_pods() && set.former_revision().is_some();
            let is_withheld = self.is_invalid() && may_get_former && !plan.create.is_empty();
            return (!has_passed && (replaces || is_withheld)).then_some(Prepare::DryRun);
        }
        // A new template is stored at once. One that a former leader reported is stored when pods are created or replaced, and before it can
        // become the former one. With OnDelete, it may have pods although it could not be stored.
        let is_used = replaces || !plan.create.is_empty();
        let has_unstored_pods = !wanted.update.replaces_pods() && plan.count.updated > 0;
        let may_become_former = !set.has_current_template() && (plan.count.is_rolled_out() || has_unstored_pods);
        (preparation.is_new(set) || is_used || may_become_former).then_some(Prepare::Store)
    }

    fn rollout(&self, count: Count, wanted: &Wanted) -> Rollout {
        let (set, has_old, partition) = (&self.view.set, self.old().next().is_some(), self.partition(wanted));
        // The status may show something else than the rollout, such as an invalid template.
        let is_known = self.state.progress.as_ref().is_some_and(|progress| Some(progress.revision) == set.revision());
        // After a change back, missing pods are part of the rollout: most were deleted for the other template.
        let has_just_changed_back = set.has_current_template() && !set.is_revision_reported();
        let refills = has_just_changed_back && !count.is_complete() && !wanted.update.is_paused;
        let is_over = !has_old && (count.is_rolled_out() || !(is_known || refills || set.is_rolling()));
        if !wanted.update.replaces_pods() || is_over {
            Rollout::None
        } else if wanted.update.is_paused {
            Rollout::Paused
        } else if count.updated_available + partition >= wanted.replicas && (has_old || partition > 0) {
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
        let Count { live, unknown, certain, updated, .. } = plan.count;
        let Some(max_unavailable) = wanted.update.budget() else { return Vec::new() };
        let is_busy = plan.hold != Hold::Nothing || self.state.strays_hold();
        if is_busy || live + unknown > wanted.replicas || certain < live {
            return Vec::new();
        }
        // Missing pods will get the new template, as far as `most_updated` allows. A create without an answer may bring a pod of either
        // template.
        let free = wanted.replicas - (live + unknown);
        let mut left = self.most_updated(plan.count, wanted).saturating_sub(updated + unknown + free);
        let mut available = plan.count.available;
        let least = wanted.replicas.saturating_sub(max_unavailable);
        let old: Vec<&Seen> = self.old().collect();
        let mut ranked = ranking::victims_first(&old, |_| 0, self.state, self.now);
        // A pod whose delete may still take effect keeps its place, so that no other one goes as well.
        let rank =
            |uid| self.state.retry.rejected_deletes.rank(uid, self.now).filter(|_| !self.state.fates.is_going(uid));
        // Pods of older templates go first, so that the partition keeps those of the former one.
        ranked.sort_by_key(|seen| {
            (self.is_available(seen), rank(&seen.pod.uid), self.is_former(seen), seen.pod.deletion_cost)
        });
        let mut outdated = Vec::new();
        for seen in ranked {
            let is_available = self.is_available(seen);
            if left == 0 || (is_available && !(self.rollout.may_delete_available)(available, least)) {
                break;
            }
            let counts = usize::from(self.may_go(seen));
            left -= counts;
            available -= usize::from(is_available) * counts;
            outdated.push(self.deletion(seen, Why::Outdated));
        }
        outdated
    }
}
