//! How long a set waits before it replaces pods that finished. Pure.
//!
//! The first replacement comes at once, the next after 1 s, then 2 s, doubling to 5 min, counted from the finish. How often
//! in a row stands in an annotation of the replacements, so that it outlives the leader. A pod that ran for 10 min, or
//! 10 min after the last wait without a finish, begin the count anew. Where several pods wait to be replaced, all wait as
//! long as the one that waits longest. Which pods wait is remembered: of the finished ones few are kept, and those that are
//! deleted while they run are made up for at once.

use std::{cmp::Reverse, collections::BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::observe::{Pod, Seen, View};
use operator_kit::meta::Uid;

/// The longest wait.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// A pod that ran for so long did not fail at once; a set that was quiet for so long does not keep failing.
const STEADY: SignedDuration = SignedDuration::from_mins(10);

/// How far the clocks of nodes and API server are thought to be apart at most.
const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(30);

/// How many finished pods are kept to look at.
pub const KEPT: usize = 3;

/// What is remembered of the pods of a set that finished.
#[derive(Clone, Debug, Default)]
pub struct Finishes {
    /// Those that were taken in, as long as they are there; nothing before the first look that can be relied on.
    noted: Option<BTreeSet<Uid>>,
    /// What waits to be created in their place, or, with no pods, how the last ones were.
    pub next: Option<Replacement>,
}

impl Finishes {
    /// Takes in which pods of a set have finished. No more of them wait to be replaced than are missing: once as many live as are
    /// wanted, none; how often they had to be in a row still counts for those that finish next.
    pub fn note(&mut self, view: &View, now: Timestamp) {
        let finished: Vec<&Seen> = view.pods.iter().filter(|seen| seen.pod.is_finished()).collect();
        // What a new leader has not read may be long past.
        let noted = (!view.is_unread).then(|| finished.iter().map(|seen| seen.pod.uid.clone()).collect());
        let former = std::mem::replace(&mut self.noted, noted);
        let next = self.next.filter(|next| now.duration_since(next.due) < STEADY);
        if finished.is_empty() && next.is_none() {
            self.next = None;
            return;
        }
        let live = view.pods.iter().filter(|seen| seen.is_live()).count();
        let missing = view.set.replicas().saturating_sub(live);
        let next = match former {
            _ if missing == 0 => next,
            None => first_look(&view.pods, now),
            Some(former) => {
                let new = finished.into_iter().filter(|seen| !former.contains(&seen.pod.uid)).collect();
                waiting(new, now).into_iter().fold(next, joined)
            }
        };
        self.next = next.map(|next| Replacement { pods: next.pods.min(missing), ..next });
    }

    /// Takes in that a pod was created that counts so many replacements in a row: one fewer waits, if it is one.
    pub fn created(&mut self, replacements: u32) {
        if let Some(next) = self.next.as_mut().filter(|_| replacements > 0) {
            next.pods = next.pods.saturating_sub(1);
        }
    }
}

/// The next replacements of a set in which pods finished.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replacement {
    /// When they may be created.
    pub due: Timestamp,
    /// How many replacements in a row each of them will have been.
    pub count: u32,
    /// How many of the pods that are missing they are, at most: what else is missing was deleted, and waits for nothing.
    pub pods: usize,
}

/// What waits in a set of which nothing is remembered.
fn first_look(pods: &[Seen], now: Timestamp) -> Option<Replacement> {
    let waiting = waiting(unreplaced(pods), now);
    // Where all that are kept wait, others that wait may have been deleted.
    let others = if waiting.len() < KEPT { 0 } else { usize::MAX };
    let next = waiting.into_iter().fold(None, joined)?;
    Some(Replacement { pods: next.pods.saturating_add(others), ..next })
}

/// Those of these finished pods that wait to be replaced, and when they finished, in this order: who was deleted does not
/// wait, nor does who finished long ago.
fn waiting(finished: Vec<&Seen>, now: Timestamp) -> Vec<(Timestamp, &Pod)> {
    let mut waiting: Vec<(Timestamp, &Pod)> = finished
        .into_iter()
        .filter(|seen| !seen.is_terminating())
        .filter_map(|seen| Some((seen.finished_since?.into(), &*seen.pod)))
        .filter(|(at, _)| now.duration_since(*at) < STEADY)
        .collect();
    waiting.sort_by_key(|(at, _)| *at);
    waiting
}

/// What waits once this pod has finished as well.
fn joined(former: Option<Replacement>, (at, pod): (Timestamp, &Pod)) -> Option<Replacement> {
    let failures = failures_in_a_row(pod);
    let own = Replacement { due: at + wait(failures), count: failures.saturating_add(1), pods: 1 };
    let Some(former) = former else {
        return Some(own);
    };
    let pods = former.pods.saturating_add(1);
    if ran_well(pod) {
        return Some(Replacement { pods, ..own });
    }
    Some(Replacement { due: own.due.max(former.due), count: own.count.max(former.count), pods })
}

/// How long a set with these pods lets replacements wait: the wait that comes next, or that lies behind a replacement which
/// has not run for long yet. Zero for a set whose pods run well.
pub fn backoff<'a>(pods: impl Iterator<Item = &'a Seen>, now: Timestamp) -> SignedDuration {
    let is_recent = |at: Timestamp| now.duration_since(at) < STEADY;
    let wait_of = |seen: &Seen| match seen.finished_since {
        Some(at) => is_recent(at.into()).then(|| wait(failures_in_a_row(&seen.pod))),
        None => is_recent(seen.pod.created.into()).then(|| wait(seen.pod.replacements.saturating_sub(1))),
    };
    pods.filter_map(wait_of).max().unwrap_or_default()
}

/// The finished pods in whose place none was made yet. A replacement stands for one of them: one that counts less, and
/// that ended before it was made, as far as the clocks of nodes and API server agree.
fn unreplaced(pods: &[Seen]) -> Vec<&Seen> {
    let mut finished: Vec<&Seen> = pods.iter().filter(|seen| seen.pod.is_finished()).collect();
    let mut replacements: Vec<&Pod> = pods.iter().map(|seen| &*seen.pod).filter(|pod| pod.replacements > 0).collect();
    replacements.sort_by_key(|pod| pod.created);
    // Who counts most has the least choice.
    finished.sort_by_key(|seen| (Reverse(failures_in_a_row(&seen.pod)), seen.finished_since));
    finished.retain(|seen| {
        let failures = failures_in_a_row(&seen.pod);
        let end = Timestamp::from(seen.pod.finished.unwrap_or(seen.pod.created)) - CLOCKS_APART;
        let follows = |pod: &&Pod| pod.replacements > failures && Timestamp::from(pod.created) >= end;
        let successor = replacements.iter().position(follows);
        successor.map(|at| replacements.remove(at)).is_none()
    });
    finished
}

/// How many replacements in a row the pod counts for: none if it ran well for long.
fn failures_in_a_row(pod: &Pod) -> u32 {
    if ran_well(pod) { 0 } else { pod.replacements }
}

/// Whether a finished pod ran for so long that it did not fail at once.
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

/// The finished pods that are more than are kept, oldest first.
pub fn superfluous<'a>(finished: &[&'a Seen]) -> Vec<&'a Seen> {
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
        first_look(&pods, now).map(|next| (next.due.duration_since(now).as_secs(), next.count))
    }

    #[test]
    fn waits_double_to_five_minutes() {
        let waits: Vec<_> = [0, 1, 2, 3, 9, 10, 400]
            .map(|count| due_after(&[testing::pod("a").failed(0).replacements(count)]).unwrap())
            .into();
        assert_eq!(waits, [(0, 1), (1, 2), (2, 3), (4, 4), (256, 10), (300, 11), (300, 401)]);
    }

    #[test]
    fn a_pod_that_ran_for_ten_minutes_begins_anew() {
        assert_eq!(due_after(&[testing::pod("a").failed(0).ran(600).replacements(8)]), Some((0, 1)));
        assert_eq!(due_after(&[testing::pod("a").failed(0).ran(599).replacements(8)]), Some((128, 9)));
    }

    #[test]
    fn all_wait_as_long_as_the_one_that_waits_longest() {
        let old = || testing::pod("old").failed(100).replacements(9);
        let new = || testing::pod("new").failed(3).replacements(4);
        assert_eq!(due_after(&[old(), new()]), Some((256 - 100, 10)));
        assert_eq!(due_after(&[old(), new().ran(600)]), Some((-3, 1)), "one that ran well begins anew");
        assert_eq!(due_after(&[testing::pod("old").failed(700).replacements(9), new()]), Some((8 - 3, 5)));
        assert_eq!(due_after(&[testing::pod("a").failed(600).replacements(9)]), None, "long ago");
        assert_eq!(due_after(&[]), None);
    }

    #[test]
    fn what_was_replaced_holds_up_nothing() {
        let failed = || testing::pod("failed").failed(3).replacements(4);
        let made = |age: i64, count: u32| testing::pod("made").age(age).replacements(count);
        assert_eq!(due_after(&[failed(), made(1, 5)]), None);
        assert_eq!(due_after(&[failed(), made(1, 4)]), Some((5, 5)), "a pod of another chain");
        assert_eq!(due_after(&[failed(), made(600, 5)]), Some((5, 5)), "a pod from before");
        assert_eq!(due_after(&[failed().terminating()]), None, "its user does without it");
    }

    #[test]
    fn a_replacement_stands_for_one_pod() {
        let failed = |name: &str, ago: i64, count: u32| testing::pod(name).failed(ago).replacements(count);
        let made = |name: &str, age: i64, count: u32| testing::pod(name).age(age).replacements(count);
        let one_of_two = [failed("a", 10, 4), made("a2", 2, 5), failed("b", 1, 4)];
        assert_eq!(due_after(&one_of_two), Some((8 - 1, 5)));
        assert_eq!(due_after(&[failed("a", 10, 4), failed("b", 10, 0), made("a2", 2, 5), made("b2", 2, 5)]), None);
        let chain = [failed("a", 20, 0), failed("a2", 15, 1).age(19), made("a3", 14, 2)];
        assert_eq!(due_after(&chain), None, "each in place of the one before it");
    }

    #[test]
    fn as_many_wait_as_finished_and_all_where_some_may_have_been_forgotten() {
        let waiting = |count: usize| {
            let pods: Vec<Seen> = (0..count).map(|n| testing::pod(&n.to_string()).failed(1).seen()).collect();
            first_look(&pods, testing::now()).map(|next| next.pods)
        };
        assert_eq!([0, 1, 2, 3, 4].map(waiting), [None, Some(1), Some(2), Some(usize::MAX), Some(usize::MAX)]);
    }

    #[test]
    fn who_waits_is_remembered_until_as_many_live_as_are_wanted() {
        let mut finishes = Finishes::default();
        let mut look = |wanted: usize, is_unread: bool, pods: Vec<PodBuilder>| {
            let pods = pods.into_iter().map(PodBuilder::seen).collect();
            finishes.note(&View { set: Arc::new(testing::set(wanted)), pods, is_unread }, testing::now());
            finishes.next.map(|next| (next.due.duration_since(testing::now()).as_secs(), next.count, next.pods))
        };
        let ready = |name: &str| testing::pod(name).ready(9);
        let failed = |name: &str, count: u32| testing::pod(name).failed(1).replacements(count);
        assert_eq!(look(1, true, vec![failed("x", 4)]), Some((7, 5, 1)));
        let all = || ["x", "y", "z"].map(|name| failed(name, 9)).to_vec();
        assert_eq!(look(5, true, all()), Some((255, 10, 5)), "not read yet: others may have been cleared away");
        assert_eq!(look(5, true, vec![]), None);
        let mut noted = |wanted, pods| look(wanted, false, pods);
        assert_eq!(noted(5, vec![]), None);
        assert_eq!(noted(5, vec![failed("a", 9), ready("b")]), Some((255, 10, 1)));
        let made = || ready("c").age(0).replacements(10);
        assert_eq!(noted(5, vec![failed("a", 9), made()]), Some((255, 10, 1)), "whoever else comes or goes");
        assert_eq!(
            noted(5, vec![failed("d", 0), failed("e", 0), failed("f", 0)]),
            Some((255, 10, 4)),
            "a was cleared away"
        );
        assert_eq!(noted(5, vec![failed("g", 2).ran(600)]), Some((-1, 1, 5)), "one that ran well begins anew");
        assert_eq!(noted(1, vec![failed("g", 2).ran(600), ready("b")]), Some((-1, 1, 0)), "as many as wanted");
        assert_eq!(noted(2, vec![failed("g", 2).ran(600), ready("b")]), Some((-1, 1, 0)), "it is made up for");
        assert_eq!(
            noted(2, vec![failed("h", 2).terminating(), ready("b")]),
            Some((-1, 1, 0)),
            "its user does without it"
        );
        assert_eq!(noted(2, vec![failed("i", 6), ready("b")]), Some((31, 7, 1)));
        assert_eq!(noted(1, vec![failed("i", 6), ready("b")]), Some((31, 7, 0)));
        assert_eq!(noted(2, vec![failed("k", 0), ready("b")]), Some((31, 7, 1)), "it counts on");
    }

    #[test]
    fn no_more_wait_than_were_missing_nor_those_that_were_made() {
        let mut finishes = Finishes::default();
        let waiting = |finishes: &mut Finishes, wanted: usize, pods: &[PodBuilder]| {
            let pods = pods.iter().cloned().map(PodBuilder::seen).collect();
            finishes.note(&View { set: Arc::new(testing::set(wanted)), pods, is_unread: false }, testing::now());
            finishes.next.map(|next| next.pods)
        };
        let ready = |name: &str| testing::pod(name).ready(9);
        let failed = |name: &str| testing::pod(name).failed(1).replacements(9);
        let kept = [failed("x"), failed("y"), failed("z")];
        let two_live = [&kept[..], &[ready("a"), ready("b")]].concat();
        assert_eq!(waiting(&mut finishes, 5, &two_live), Some(3), "all that are missing, on the first look");
        let one_live = &two_live[..4];
        assert_eq!(waiting(&mut finishes, 5, one_live), Some(3), "a pod that was deleted waits for nothing");
        finishes.created(0);
        assert_eq!(waiting(&mut finishes, 5, one_live), Some(3), "nor is one that takes its place a replacement");
        finishes.created(10);
        let made = [one_live, &[ready("c")]].concat();
        assert_eq!(waiting(&mut finishes, 5, &made), Some(2), "a replacement, although others are missing");
        assert_eq!(waiting(&mut finishes, 3, &made), Some(1), "fewer are wanted");
    }

    #[test]
    fn a_back_off_lasts_until_a_pod_runs_well() {
        let seconds = |pods: Vec<PodBuilder>| {
            let pods: Vec<Seen> = pods.into_iter().map(PodBuilder::seen).collect();
            backoff(pods.iter(), testing::now()).as_secs()
        };
        let failed = |ago: i64| testing::pod("failed").failed(ago).replacements(4);
        let made = |age: i64| testing::pod("made").age(age).replacements(5);
        assert_eq!(seconds(vec![]), 0);
        assert_eq!(seconds(vec![testing::pod("a").age(5)]), 0, "it replaces none");
        assert_eq!(seconds(vec![failed(3)]), 8, "before the replacement");
        assert_eq!(seconds(vec![failed(20), made(9)]), 8, "and after it");
        assert_eq!(seconds(vec![failed(700), made(599)]), 8);
        assert_eq!(seconds(vec![failed(700), made(600)]), 0, "it runs well");
        assert_eq!(seconds(vec![failed(3).ran(600)]), 0, "it ran well");
        assert_eq!(seconds(vec![testing::pod("a").failed(1).replacements(400)]), 300);
    }

    #[test]
    fn the_three_newest_are_kept() {
        let pods: Vec<Seen> = [5, 1, 9, 3, 7].map(|ago| testing::pod(&format!("ago-{ago}")).failed(ago).seen()).into();
        let names: Vec<_> =
            superfluous(&pods.iter().collect::<Vec<_>>()).iter().map(|seen| seen.pod.key.name.to_string()).collect();
        assert_eq!(names, ["ago-9", "ago-7"]);
    }
}
