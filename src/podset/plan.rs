//! Second stage, *plan*: decides what should happen. Pure: no I/O, no clock, no randomness.
//!
//! In: a set, its pods, the remembered state and the time. Out: a [`Plan`]. Every decision about pods is made here. [`Count::missing`]
//! decides how many are created, and `rollout.rs` from which template.

use std::collections::BTreeSet;

use jiff::Timestamp;

mod outcome;
mod rollout;

pub use outcome::Plan;
pub(super) use outcome::{Creation, Deletion, Hold, Look, Prepare, Rollout, Why};
pub use rollout::RolloutRules;

use super::{
    count::Count,
    names::Names,
    observe::{Pod, Seen, View, Wanted},
    ranking, restart_backoff,
    set_state::SetState,
};
use operator_kit::meta::Uid;

/// If this many creates have no answer, they are repeated before new names are tried.
const MOST_UNKNOWN: usize = 3;

/// The input of a plan.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub view: &'a View,
    pub state: &'a SetState,
    pub names: Names<'a>,
    /// Whether pods that are being deleted and may run count, if their set waits for terminations.
    pub counts_terminating: bool,
    pub rollout: RolloutRules,
    pub now: Timestamp,
}

/// Decides what should happen to the pods of a set now.
pub(super) fn plan(input: &Input) -> Plan {
    let mut plan = input.desired();
    // Deletes that failed before come last, so that they do not hold up the others.
    let SetState { fates, retry, .. } = input.state;
    plan.delete.sort_by_key(|Deletion { uid, .. }| {
        let rejected_at = retry.rejected_deletes.at(uid);
        (rejected_at.is_some() || fates.is_going(uid), rejected_at)
    });
    match retry.waits(input.view.set.generation, input.now) {
        Some(wait) if !wait.is_namespace_terminating && plan.has_work() => {
            let wake = soonest([plan.wake, Some(wait.until)]);
            let Plan { create, delete, look, relabel, prepare, .. } = Plan::default();
            Plan { create, delete, look, relabel, prepare, hold: Hold::Failure, wake, ..plan }
        }
        _ => plan,
    }
}

impl Input<'_> {
    /// The plan, regardless of recent failures.
    fn desired(&self) -> Plan {
        let set = &self.view.set;
        let is_overdue = |seen: &&Seen| seen.overdue_at().is_some_and(|at| at <= self.now);
        let overdue = self.ending().filter(is_overdue).map(|seen| seen.pod.uid.clone()).collect();
        let plan = Plan { count: self.count(), look: self.looks(), wake: self.wake(), overdue, ..Plan::default() };
        let plan = self.with_deletes(plan, self.strays());
        let wanted = match &set.wanted {
            Ok(wanted) if !set.is_deleting => wanted,
            _ => return Plan { hold: Hold::Blocked, ..plan },
        };
        let relabel = self.unlabelled();
        let rejected = plan.rejected.iter().cloned().chain(self.undeletable(plan.count, wanted)).collect();
        let plan = Plan { relabel, rejected, ..plan };
        let victims = self.victims(plan.count, wanted);
        let plan = self.with_deletes(plan, victims);
        let plan = self.with_deletes(plan, self.finished_to_delete());
        let plan = self.with_creates(plan, wanted);
        self.with_rollout(plan, wanted)
    }

    fn count(&self) -> Count {
        let View { set, pods, .. } = self.view;
        let name = |seen: &'_ Seen| seen.pod.key.name.clone();
        let live: BTreeSet<_> = pods.iter().filter(|seen| seen.is_live()).map(name).collect();
        let ending: BTreeSet<_> = self.ending().map(name).filter(|name| !live.contains(name)).collect();
        let is_seen = |name: &&str| live.contains(*name) || ending.contains(*name);
        let unknown = self.state.fates.unknown.keys().filter(|name| !is_seen(&name.as_str())).count();
        Count {
            wanted: set.replicas(),
            live: live.len(),
            ending: ending.len(),
            unknown,
            certain: pods.iter().filter(|seen| seen.is_certain()).count(),
            updated: self.updated().count(),
            updated_available: self.updated().filter(|seen| self.is_available(seen)).count(),
            available: pods.iter().filter(|seen| self.is_available(seen)).count(),
        }
    }

    /// The live pods of the template in the spec.
    fn updated(&self) -> impl Iterator<Item = &Seen> {
        self.view.pods.iter().filter(|seen| seen.is_live() && self.is_updated(seen))
    }

    /// The pods that are being deleted and count until they have ended.
    fn ending(&self) -> impl Iterator<Item = &Seen> {
        let counts = self.counts_terminating && self.view.set.waits_for_termination();
        self.view.pods.iter().filter(move |seen| counts && seen.is_ending())
    }

    /// When time alone will change the plan.
    fn wake(&self) -> Option<Timestamp> {
        let Input { view: View { pods, .. }, state, now, .. } = *self;
        let look = pods.iter().filter_map(Seen::look_at).filter(|at| *at > now).min();
        let unlabelled = pods.iter().filter(|seen| !seen.pod.is_labelled);
        let relabel = unlabelled.filter_map(|seen| self.relabel_waits_until(seen)).min();
        let overdue = self.ending().filter_map(Seen::overdue_at).filter(|at| *at > now).min();
        let fates = state.fates.next_overdue(now);
        let available = pods.iter().filter_map(|seen| self.available_at(seen)).filter(|at| *at > now).min();
        soonest([look, relabel, overdue, fates, available])
    }

    fn looks(&self) -> Vec<Look> {
        let Input { view: View { set, pods, .. }, state, now, .. } = *self;
        let is_overdue = |uid: &Uid| state.fates.is_delete_overdue(uid, now);
        let is_doubtful = |seen: &&Seen| seen.look_at().is_some_and(|at| at <= now) || is_overdue(&seen.pod.uid);
        let doubtful = pods.iter().filter(is_doubtful);
        let doubtful = doubtful.map(|seen| Look {
            key: seen.pod.key.clone(),
            sought: Some(seen.clone()),
            settles_delete: is_overdue(&seen.pod.uid),
        });
        let overdue = state.fates.overdue(now);
        let overdue = overdue.map(|name| Look { key: set.key.sibling(name), sought: None, settles_delete: false });
        doubtful.chain(overdue).collect()
    }

    /// When the label of this pod may be restored; `None`: now.
    fn relabel_waits_until(&self, seen: &Seen) -> Option<Timestamp> {
        let failed = self.state.retry.relabels.waits_until(&seen.pod.uid, seen.pod.version, self.now);
        failed.max(seen.relabel_at.map(Timestamp::from).filter(|at| *at > self.now))
    }

    /// The pods that lost the watched label and get it back.
    fn unlabelled(&self) -> Vec<Seen> {
        let lacks_label = |seen: &&Seen| !seen.pod.is_labelled && !seen.is_missing;
        let is_stray = |seen: &Seen| self.state.fates.strays.contains_key(&seen.pod.uid);
        let may_get_it = |seen: &&Seen| !is_stray(seen) && self.relabel_waits_until(seen).is_none();
        self.view.pods.iter().filter(lacks_label).filter(may_get_it).cloned().collect()
    }

    /// Adds these deletes, except rejected ones whose delay still runs.
    fn with_deletes(&self, mut plan: Plan, deletions: Vec<Deletion>) -> Plan {
        let rejected = &self.state.retry.rejected_deletes;
        for deletion in deletions {
            if rejected.contains(&deletion.uid) {
                plan.rejected.insert(deletion.uid.clone());
            }
            match rejected.waits_until(&deletion.uid, deletion.version, self.now) {
                Some(until) => plan.wake = soonest([plan.wake, Some(until)]),
                None => plan.delete.push(deletion),
            }
        }
        plan
    }

    /// The pods that differ from their manifest.
    fn strays(&self) -> Vec<Deletion> {
        let View { set, pods, .. } = self.view;
        let deletion = |(uid, name): (&Uid, &String)| {
            let seen = pods.iter().find(|seen| seen.pod.uid == *uid);
            Deletion {
                key: set.key.sibling(name),
                uid: uid.clone(),
                version: seen.map_or(0, |seen| seen.pod.version),
                is_exact: seen.is_some_and(|seen| self.needs_exact_delete(seen)),
                why: Why::Stray,
            }
        };
        self.state.fates.strays.iter().map(deletion).collect()
    }

    /// The pods that a scale-down deletes. While a pod whose delete was rejected waits for the next try, another pod is deleted in its
    /// place, unless an earlier delete may still take effect.
    fn victims(&self, count: Count, wanted: &Wanted) -> Vec<Deletion> {
        let Input { view, state, .. } = *self;
        let certain = view.pods.iter().filter(|seen| seen.is_certain());
        let (strays, candidates): (Vec<&Seen>, Vec<&Seen>) =
            certain.partition(|seen| state.fates.strays.contains_key(&seen.pod.uid));
        let mut left = count.surplus().saturating_sub(strays.into_iter().filter(|seen| self.may_go(seen)).count());
        if left == 0 {
            return Vec::new();
        }
        let mut victims = Vec::new();
        let not_kept = self.not_kept(wanted);
        let template_rank = |seen: &Seen| self.template_rank(seen, &not_kept);
        for seen in ranking::victims_first(&candidates, template_rank, state, self.now) {
            if left == 0 {
                break;
            }
            left -= usize::from(self.may_go(seen));
            victims.push(self.deletion(seen, Why::Surplus));
        }
        victims
    }

    /// Whether a delete of this pod may be sent now, or may still take effect.
    fn may_go(&self, seen: &Seen) -> bool {
        let Pod { uid, version, .. } = &*seen.pod;
        let Input { state, now, .. } = self;
        state.retry.rejected_deletes.waits_until(uid, *version, *now).is_none() || state.fates.is_going(uid)
    }

    /// Whether the set waits for terminations and the pod has no node. A delete would remove such a pod at once, even if it was just bound.
    fn needs_exact_delete(&self, seen: &Seen) -> bool {
        self.view.set.waits_for_termination() && seen.pod.node.is_none()
    }

    /// The live pods that must go although their delete was rejected: any pod while there is a surplus, otherwise pods of former templates
    /// while the rollout must replace more.
    fn undeletable(&self, count: Count, wanted: &Wanted) -> impl Iterator<Item = Uid> {
        let Input { view, state, .. } = *self;
        // Once enough pods have the new template, the partition wants the others to stay.
        let replaces_now = wanted.update.budget().is_some();
        let wants_more_updated = replaces_now && count.updated < wanted.replicas - self.partition(wanted);
        let is_affected = move |seen: &&Seen| {
            seen.is_live() && (count.surplus() > 0 || (wants_more_updated && !self.is_updated(seen)))
        };
        let uids = view.pods.iter().filter(is_affected).map(|seen| &seen.pod.uid);
        uids.filter(|uid| state.retry.rejected_deletes.contains(uid)).cloned()
    }

    /// The finished pods that are not kept.
    fn finished_to_delete(&self) -> Vec<Deletion> {
        let is_finished = |seen: &&Seen| seen.pod.is_finished() && !seen.is_terminating();
        let finished: Vec<&Seen> = self.view.pods.iter().filter(is_finished).collect();
        restart_backoff::finished_to_delete(&finished)
            .into_iter()
            .map(|seen| self.deletion(seen, Why::Finished))
            .collect()
    }

    /// Adds the pods to create, or why they are not created yet.
    fn with_creates(&self, plan: Plan, wanted: &Wanted) -> Plan {
        let Input { view: View { set, .. }, state, now, .. } = *self;
        if let Some(wait) = state.retry.waits(set.generation, now).filter(|wait| wait.is_namespace_terminating) {
            return Plan { hold: Hold::Blocked, wake: soonest([plan.wake, Some(wait.until)]), ..plan };
        }
        // A webhook that changed a pod would also change the next one, so the stray must be gone first.
        if plan.count.occupied() > wanted.replicas || state.strays_hold() {
            return plan;
        }
        let mut create = self.with_templates(self.creations(plan.count.missing()), plan.count, wanted);
        let template = |creation: &Creation| creation.former.or(set.revision());
        // The last creations of each template replace finished pods. The others replace deleted pods or are new, so they do not wait.
        let mut waiting = state.retry.finishes.next.clone();
        for creation in create.iter_mut().rev() {
            if let Some(next) = waiting.get_mut(&template(creation)).filter(|next| next.pods > 0) {
                next.pods -= 1;
                creation.replacements = next.count;
            }
        }
        // After a change back, the template that failed before gets one try at once.
        let is_tried = set.is_revision_reported() || state.retry.tried_generation == Some(set.generation);
        let waits = |creation: &Creation| creation.replacements > 0 && (is_tried || creation.former.is_some());
        let due = |creation: &Creation| waiting.get(&template(creation)).map(|next| next.due).filter(|due| *due > now);
        let (held, mut create): (Vec<_>, Vec<_>) =
            create.into_iter().partition(|creation| waits(creation) && due(creation).is_some());
        // Of each template, try new names first, so that a create that hangs does not delay the others. After MOST_UNKNOWN unknown creates,
        // as in an outage, repeat those first.
        if state.fates.unknown.len() < MOST_UNKNOWN {
            create.sort_by_key(|creation| (creation.former.is_none(), creation.is_repeated));
        }
        match held.iter().filter_map(|creation| Some((due(creation)?, template(creation)))).min() {
            Some((until, template)) => {
                let hold = Hold::RestartBackoff { pods: held.len(), until, template };
                Plan { create, hold, wake: soonest([plan.wake, Some(until)]), ..plan }
            }
            None => Plan { create, ..plan },
        }
    }

    /// Returns the creates in this order:
    ///
    /// 1. Names with a create that has no answer. They already count as pods.
    /// 2. The lowest free names, for the missing pods that group 3 leaves.
    /// 3. Names whose create was rejected or not sent, oldest first, at most one for each missing pod. They come last so that they do not
    ///    hold up the others.
    fn creations(&self, missing: usize) -> Vec<Creation> {
        let Input { state, names: Names { nth, is_known, is_resting }, .. } = *self;
        let creation = |name, is_repeated| Creation { name, replacements: 0, is_repeated, former: None };
        let fates = &state.fates;
        let is_free = |name: &String| !is_known(name) && !is_resting(name);
        let mut rejected: Vec<_> = fates.rejected_creates.iter().filter(|(name, _)| is_free(name)).collect();
        rejected.sort_by_key(|(_, until)| **until);
        rejected.truncate(missing);
        let new = (0..).map(nth).filter(|name| is_free(name) && !fates.has_failed(name));
        let new = new.take(missing - rejected.len());
        let rejected = rejected.into_iter().map(|(name, _)| creation(name.clone(), false));
        let unknown = fates.unknown.keys().filter(|name| !is_known(name));
        let repeated = unknown.map(|name| creation(name.clone(), true));
        repeated.chain(new.map(|name| creation(name, false))).chain(rejected).collect()
    }

    fn deletion(&self, seen: &Seen, why: Why) -> Deletion {
        let Pod { key, uid, version, .. } = &*seen.pod;
        let is_exact = why != Why::Finished && self.needs_exact_delete(seen);
        Deletion { key: key.clone(), uid: uid.clone(), version: *version, is_exact, why }
    }
}

/// The earliest of these times.
pub fn soonest<const N: usize>(times: [Option<Timestamp>; N]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
