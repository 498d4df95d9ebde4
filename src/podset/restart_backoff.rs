//! How long a set waits before it replaces pods that finished. Pure.
//!
//! The first replacement is created at once, the next after 1 s, then 2 s, doubling to 5 min, counted from the finish. An annotation of the
//! replacement counts how many there were in a row, so the count outlives the leader. A pod that ran for 10 min resets the count, and so do
//! 10 min without a finish after the last wait. Each template of a set has one wait, the longest of its pods. The waiting replacements are
//! remembered, because only a few finished pods are kept. A pod that was deleted is replaced at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    observe::{Pod, Seen, View},
    revision::Revision,
};
use operator_kit::meta::Uid;

/// The longest wait.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// A pod that ran for this time resets the count. A finish longer ago than this does not count.
const STEADY: SignedDuration = SignedDuration::from_mins(10);

/// How many finished pods are kept for inspection.
pub const KEPT: usize = 3;

/// The finished pods of a set, and the replacements that wait.
#[derive(Clone, Debug, Default)]
pub struct Finishes {
    /// The existing finished pods that are counted already; `None` until the namespace of the set was read.
    counted: Option<BTreeSet<Uid>>,
    /// For each template, the replacements that wait or were created last.
    pub next: BTreeMap<Option<Revision>, Replacement>,
}

/// The next replacements for pods of one template.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replacement {
    /// When they may be created.
    pub due: Timestamp,
    /// How many replacements in a row there will be with each of them.
    pub count: u32,
    /// How many of the missing pods wait, at most. The others were deleted, and are replaced at once.
    pub pods: usize,
}

impl Finishes {
    /// Counts the pods that have finished since the last call. Of each template, at most as many replacements wait as pods are missing.
    pub fn update(&mut self, view: &View, now: Timestamp) {
        let finished: BTreeSet<Uid> =
            view.pods.iter().filter(|seen| seen.pod.is_finished()).map(|seen| seen.pod.uid.clone()).collect();
        let live = view.pods.iter().filter(|seen| seen.is_live()).count();
        let missing = view.set.replicas().saturating_sub(live);
        // If all kept finished pods wait, further ones may have been deleted.
        let others = || if unreplaced(view.pods.iter(), now).len() < KEPT { 0 } else { usize::MAX };
        let known = std::mem::take(&mut self.next);
        let templates = view.pods.iter().map(|seen| seen.pod.revision).chain(known.keys().copied());
        for template in templates.collect::<BTreeSet<_>>() {
            let pods = view.pods.iter().filter(|seen| seen.pod.revision == template);
            let next = match &self.counted {
                Some(counted) => {
                    let recent = known.get(&template).copied().filter(|next| now.duration_since(next.due) < STEADY);
                    let new = pods.filter(|seen| !counted.contains(&seen.pod.uid));
                    waiting(new, now).into_iter().fold(recent, with_finished)
                }
                None => without_history(pods, others(), now),
            };
            if let Some(next) = next {
                self.next.insert(template, Replacement { pods: next.pods.min(missing), ..next });
            }
        }
        // A set that begins to wait for terminations becomes unread again. What was counted stays counted.
        self.counted = (self.counted.is_some() || !view.is_unread).then_some(finished);
    }

    /// A pod of this template was created with this count in its annotation. If it is a replacement, one fewer waits.
    pub fn created(&mut self, template: Revision, replacements: u32) {
        if let Some(next) = self.next.get_mut(&Some(template)).filter(|_| replacements > 0) {
            next.pods = next.pods.saturating_sub(1);
        }
    }
}

/// The waiting replacements of these pods without remembered state: one for each finished pod that has no replacement yet, and `others`.
fn without_history<'a>(
    pods: impl Iterator<Item = &'a Seen> + Clone,
    others: usize,
    now: Timestamp,
) -> Option<Replacement> {
    let next = unreplaced(pods, now).into_iter().fold(None, with_finished)?;
    Some(Replacement { pods: next.pods.saturating_add(others), ..next })
}

/// The finished pods among these that wait and have no replacement yet.
fn unreplaced<'a>(pods: impl Iterator<Item = &'a Seen> + Clone, now: Timestamp) -> Vec<(Timestamp, &'a Pod)> {
    let is_replaced = |finished: &Pod| {
        let end = finished.finished.unwrap_or(finished.created);
        pods.clone().any(|Seen { pod, .. }| pod.replacements > failures_in_a_row(finished) && pod.created >= end)
    };
    waiting(pods.clone().filter(|seen| !is_replaced(&seen.pod)), now)
}

/// The pods among these that wait to be replaced, in the order in which they finished. Deleted pods and old finishes do not wait.
fn waiting<'a>(pods: impl Iterator<Item = &'a Seen>, now: Timestamp) -> Vec<(Timestamp, &'a Pod)> {
    let mut waiting: Vec<(Timestamp, &Pod)> = pods
        .filter(|seen| !seen.is_terminating())
        .filter_map(|seen| Some((seen.finished_since?.into(), &*seen.pod)))
        .filter(|(at, _)| now.duration_since(*at) < STEADY)
        .collect();
    waiting.sort_by_key(|(at, _)| *at);
    waiting
}

/// The waiting replacements after this pod has also finished.
fn with_finished(former: Option<Replacement>, (at, pod): (Timestamp, &Pod)) -> Option<Replacement> {
    let failures = failures_in_a_row(pod);
    let own = Replacement { due: at + wait(failures), count: failures.saturating_add(1), pods: 1 };
    let pods = former.map_or(0, |former| former.pods).saturating_add(1);
    match former.filter(|_| !ran_well(pod)) {
        Some(former) => Some(Replacement { due: own.due.max(former.due), count: own.count.max(former.count), pods }),
        None => Some(Replacement { pods, ..own }),
    }
}

/// How long a set with these pods delays replacements: the next wait, or the wait before a recent replacement. Zero if its pods run well.
pub fn backoff<'a>(pods: impl Iterator<Item = &'a Seen>, now: Timestamp) -> SignedDuration {
    let is_recent = |at: Timestamp| now.duration_since(at) < STEADY;
    let wait_of = |seen: &Seen| match seen.finished_since {
        Some(at) => is_recent(at.into()).then(|| wait(failures_in_a_row(&seen.pod))),
        None => is_recent(seen.pod.created.into()).then(|| wait(seen.pod.replacements.saturating_sub(1))),
    };
    pods.filter_map(wait_of).max().unwrap_or_default()
}

/// How many replacements in a row the pod counts for: none if it ran well.
fn failures_in_a_row(pod: &Pod) -> u32 {
    if ran_well(pod) { 0 } else { pod.replacements }
}

/// Whether a finished pod ran for at least [`STEADY`].
fn ran_well(pod: &Pod) -> bool {
    let began = Timestamp::from(pod.started.unwrap_or(pod.created));
    pod.finished.is_some_and(|finished| Timestamp::from(finished).duration_since(began) >= STEADY)
}

fn wait(failures: u32) -> SignedDuration {
    match failures {
        0 => SignedDuration::ZERO,
        n => SignedDuration::from_secs(1 << n.saturating_sub(1).min(30)).min(LONGEST),
    }
}

/// The finished pods that are to be deleted, oldest first.
pub fn finished_to_delete<'a>(finished: &[&'a Seen]) -> Vec<&'a Seen> {
    let mut oldest_first = finished.to_vec();
    oldest_first.sort_by_key(|seen| (seen.finished_since, seen.pod.uid.clone()));
    oldest_first.truncate(finished.len().saturating_sub(KEPT));
    oldest_first
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::podset::testing::{self, PodBuilder};

    fn due_after(pods: &[PodBuilder]) -> Option<(i64, u32)> {
        let now = testing::now();
        let pods: Vec<Seen> = pods.iter().cloned().map(PodBuilder::seen).collect();
        without_history(pods.iter(), 0, now).map(|next| (next.due.duration_since(now).as_secs(), next.count))
    }

    #[test]
    fn waits_double_to_five_minutes() {
        let waits: Vec<_> = [0, 1, 2, 3, 9, 10, 400]
            .map(|count| due_after(&[testing::pod("a").failed(0).replacements(count)]).unwrap())
            .into();
        assert_eq!(waits, [(0, 1), (1, 2), (2, 3), (4, 4), (256, 10), (300, 11), (300, 401)]);
    }

    #[test]
    fn ten_minutes_of_running_reset_the_backoff() {
        assert_eq!(due_after(&[testing::pod("a").failed(0).ran(600).replacements(8)]), Some((0, 1)));
        assert_eq!(due_after(&[testing::pod("a").failed(0).ran(599).replacements(8)]), Some((128, 9)));
    }

    #[test]
    fn all_pods_wait_for_the_longest_backoff() {
        let old = || testing::pod("old").failed(100).replacements(9);
        let new = || testing::pod("new").failed(3).replacements(4);
        assert_eq!(due_after(&[old(), new()]), Some((256 - 100, 10)));
        assert_eq!(due_after(&[old(), new().ran(600)]), Some((-3, 1)), "a pod that ran well resets the backoff");
        assert_eq!(due_after(&[testing::pod("old").failed(700).replacements(9), new()]), Some((8 - 3, 5)));
        assert_eq!(due_after(&[testing::pod("a").failed(600).replacements(9)]), None, "too long ago");
        assert_eq!(due_after(&[]), None);
    }

    #[test]
    fn a_replaced_pod_causes_no_backoff() {
        let failed = || testing::pod("failed").failed(3).replacements(4);
        let made = |age: i64, count: u32| testing::pod("made").age(age).replacements(count);
        assert_eq!(due_after(&[failed(), made(1, 5)]), None);
        assert_eq!(due_after(&[failed(), made(1, 4)]), Some((5, 5)), "a pod of another chain");
        assert_eq!(due_after(&[failed(), made(600, 5)]), Some((5, 5)), "an older pod");
        assert_eq!(due_after(&[failed().terminating()]), None, "a user deleted it");
    }

    #[test]
    fn each_replacement_counts_for_one_pod() {
        let failed = |name: &str, ago: i64, count: u32| testing::pod(name).failed(ago).replacements(count);
        let made = |name: &str, age: i64, count: u32| testing::pod(name).age(age).replacements(count);
        let one_of_two = [failed("a", 10, 4), made("a2", 2, 5), failed("b", 1, 4)];
        assert_eq!(due_after(&one_of_two), Some((8 - 1, 5)));
        assert_eq!(due_after(&[failed("a", 10, 4), failed("b", 10, 0), made("a2", 2, 5), made("b2", 2, 5)]), None);
        let chain = [failed("a", 20, 0), failed("a2", 15, 1).age(19), made("a3", 14, 2)];
        assert_eq!(due_after(&chain), None, "each pod replaces the one before it");
    }

    #[test]
    fn as_many_wait_as_finished_and_all_from_three_on() {
        let waiting = |templates: &[i32]| {
            let failed = |(n, template): (usize, &i32)| {
                testing::pod(&n.to_string()).failed(1).of(Revision::of(None, *template)).seen()
            };
            let pods = templates.iter().enumerate().map(failed).collect();
            let mut finishes = Finishes::default();
            finishes.update(&View { set: Arc::new(testing::set(9)), pods, is_unread: true }, testing::now());
            finishes.next.values().map(|next| next.pods).collect::<Vec<_>>()
        };
        let all = [&[][..], &[0], &[0, 0], &[0, 0, 0], &[0, 0, 0, 0], &[0, 1], &[0, 0, 1]];
        let expected = [vec![], vec![1], vec![2], vec![9], vec![9], vec![1, 1], vec![9, 9]];
        assert_eq!(all.map(waiting), expected);
    }

    #[test]
    fn waiting_replacements_are_remembered_until_enough_pods_live() {
        let mut finishes = Finishes::default();
        let mut look = |wanted: usize, is_unread: bool, pods: Vec<PodBuilder>| {
            let pods = pods.into_iter().map(PodBuilder::seen).collect();
            finishes.update(&View { set: Arc::new(testing::set(wanted)), pods, is_unread }, testing::now());
            let next = finishes.next.get(&Some(Revision::of(None, 0)));
            next.map(|next| (next.due.duration_since(testing::now()).as_secs(), next.count, next.pods))
        };
        let ready = |name: &str| testing::pod(name).ready(9);
        let failed = |name: &str, count: u32| testing::pod(name).failed(1).replacements(count);
        assert_eq!(look(1, true, vec![failed("x", 4)]), Some((7, 5, 1)));
        let all = || ["x", "y", "z"].map(|name| failed(name, 9)).to_vec();
        assert_eq!(look(5, true, all()), Some((255, 10, 5)), "not read yet: other finished pods may have been deleted");
        assert_eq!(look(5, true, vec![]), None);
        let mut noted = |wanted, pods| look(wanted, false, pods);
        assert_eq!(noted(5, vec![]), None);
        assert_eq!(noted(5, vec![failed("a", 9), ready("b")]), Some((255, 10, 1)));
        let made = || ready("c").age(0).replacements(10);
        assert_eq!(noted(5, vec![failed("a", 9), made()]), Some((255, 10, 1)), "other pods do not matter");
        assert_eq!(
            noted(5, vec![failed("d", 0), failed("e", 0), failed("f", 0)]),
            Some((255, 10, 4)),
            "pod a was deleted"
        );
        assert_eq!(noted(5, vec![failed("g", 2).ran(600)]), Some((-1, 1, 5)), "a pod that ran well resets the backoff");
        assert_eq!(noted(1, vec![failed("g", 2).ran(600), ready("b")]), Some((-1, 1, 0)), "enough pods live");
        assert_eq!(noted(2, vec![failed("g", 2).ran(600), ready("b")]), Some((-1, 1, 0)), "g does not wait again");
        assert_eq!(noted(2, vec![failed("h", 2).terminating(), ready("b")]), Some((-1, 1, 0)), "a user deleted it");
        assert_eq!(noted(2, vec![failed("i", 6), ready("b")]), Some((31, 7, 1)));
        assert_eq!(noted(1, vec![failed("i", 6), ready("b")]), Some((31, 7, 0)));
        assert_eq!(noted(2, vec![failed("k", 0), ready("b")]), Some((31, 7, 1)), "the count continues");
        for _ in 0..2 {
            assert_eq!(look(2, true, vec![failed("k", 0), ready("b")]), Some((31, 7, 1)), "the set needs another read");
        }
    }

    #[test]
    fn no_more_wait_than_are_missing_and_created_ones_do_not() {
        let mut finishes = Finishes::default();
        let waiting = |finishes: &mut Finishes, wanted: usize, pods: &[PodBuilder]| {
            let pods = pods.iter().cloned().map(PodBuilder::seen).collect();
            finishes.update(&View { set: Arc::new(testing::set(wanted)), pods, is_unread: false }, testing::now());
            finishes.next.values().next().map(|next| next.pods)
        };
        let ready = |name: &str| testing::pod(name).ready(9);
        let failed = |name: &str| testing::pod(name).failed(1).replacements(9);
        let kept = [failed("x"), failed("y"), failed("z")];
        let two_live = [&kept[..], &[ready("a"), ready("b")]].concat();
        assert_eq!(waiting(&mut finishes, 5, &two_live), Some(3), "at first, all missing pods wait");
        let one_live = &two_live[..4];
        assert_eq!(waiting(&mut finishes, 5, one_live), Some(3), "the replacement of a deleted pod does not wait");
        finishes.created(Revision::of(None, 0), 0);
        assert_eq!(
            waiting(&mut finishes, 5, one_live),
            Some(3),
            "nor does its replacement count as one of a finished pod"
        );
        finishes.created(Revision::of(None, 0), 10);
        let made = [one_live, &[ready("c")]].concat();
        assert_eq!(waiting(&mut finishes, 5, &made), Some(2), "one was replaced, although others are missing");
        assert_eq!(waiting(&mut finishes, 3, &made), Some(1), "fewer are wanted");
    }

    #[test]
    fn a_backoff_lasts_until_a_pod_runs_well() {
        let seconds = |pods: Vec<PodBuilder>| {
            let pods: Vec<Seen> = pods.into_iter().map(PodBuilder::seen).collect();
            backoff(pods.iter(), testing::now()).as_secs()
        };
        let failed = |ago: i64| testing::pod("failed").failed(ago).replacements(4);
        let made = |age: i64| testing::pod("made").age(age).replacements(5);
        assert_eq!(seconds(vec![]), 0);
        assert_eq!(seconds(vec![testing::pod("a").age(5)]), 0, "it replaces no pod");
        assert_eq!(seconds(vec![failed(3)]), 8, "before the replacement");
        assert_eq!(seconds(vec![failed(20), made(9)]), 8, "after the replacement");
        assert_eq!(seconds(vec![failed(700), made(599)]), 8);
        assert_eq!(seconds(vec![failed(700), made(600)]), 0, "it runs well");
        assert_eq!(seconds(vec![failed(3).ran(600)]), 0, "it ran well");
        assert_eq!(seconds(vec![testing::pod("a").failed(1).replacements(400)]), 300);
    }

    #[test]
    fn the_three_newest_finished_pods_are_kept() {
        let pods: Vec<Seen> = [5, 1, 9, 3, 7].map(|ago| testing::pod(&format!("ago-{ago}")).failed(ago).seen()).into();
        let names: Vec<_> = finished_to_delete(&pods.iter().collect::<Vec<_>>())
            .iter()
            .map(|seen| seen.pod.key.name.to_string())
            .collect();
        assert_eq!(names, ["ago-9", "ago-7"]);
    }
}
