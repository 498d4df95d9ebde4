//! How long a set waits before it replaces pods that finished. Pure.
//!
//! The first replacement comes at once, the next after 1 s, then 2 s, doubling to 5 min, counted from the newest finish.
//! How often in a row stands in an annotation of the replacements, so that it outlives the leader. A pod that ran for
//! 10 min, or 10 min without a finish, begin the count anew.

use jiff::{SignedDuration, Timestamp};

use super::observe::{Pod, Seen};

/// The longest wait.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// A pod that ran for so long did not fail at once; a set that was quiet for so long does not keep failing.
const STEADY: SignedDuration = SignedDuration::from_mins(10);

/// How far the clocks of nodes and API server are thought to be apart at most.
const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(30);

/// How many finished pods are kept to look at.
pub const KEPT: usize = 3;

/// The next replacement of a set in which pods finished.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replacement {
    /// When it may be created.
    pub due: Timestamp,
    /// How many replacements in a row it will have been.
    pub count: u32,
}

/// The next replacement; `None` for a set in which no pod finished lately that was not replaced.
pub fn replacement(pods: &[Seen], now: Timestamp) -> Option<Replacement> {
    let newest = pods
        .iter()
        .filter(|seen| seen.pod.is_finished() && !is_replaced(&seen.pod, pods))
        .filter_map(|seen| Some((seen.finished_since?, failures_in_a_row(&seen.pod))))
        .max()
        .filter(|(at, _)| now.duration_since(*at) < STEADY)?;
    let (at, failures) = newest;
    Some(Replacement { due: at + wait(failures), count: failures.saturating_add(1) })
}

/// How long a set with these pods lets replacements wait: the wait that comes next, or that lies behind a replacement which
/// has not run for long yet. Zero for a set whose pods run well.
pub fn backoff<'a>(pods: impl Iterator<Item = &'a Seen>, now: Timestamp) -> SignedDuration {
    let is_recent = |at: Timestamp| now.duration_since(at) < STEADY;
    let wait_of = |seen: &Seen| match seen.finished_since {
        Some(at) => is_recent(at).then(|| wait(failures_in_a_row(&seen.pod))),
        None => is_recent(seen.pod.created).then(|| wait(seen.pod.replacements.saturating_sub(1))),
    };
    pods.filter_map(wait_of).max().unwrap_or_default()
}

/// Whether a pod was made in place of this one: one that counts a replacement more, and was made after its end, as far
/// as the clocks of nodes and API server agree.
fn is_replaced(finished: &Pod, pods: &[Seen]) -> bool {
    let count = failures_in_a_row(finished).saturating_add(1);
    let end = finished.finished.unwrap_or(finished.created) - CLOCKS_APART;
    pods.iter().any(|seen| seen.pod.replacements == count && seen.pod.created >= end)
}

/// How many replacements in a row the pod counts for: none if it ran well for long.
fn failures_in_a_row(pod: &Pod) -> u32 {
    let ran = pod.finished.map(|finished| finished.duration_since(pod.started.unwrap_or(pod.created)));
    if ran.is_some_and(|ran| ran >= STEADY) { 0 } else { pod.replacements }
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
    use super::*;
    use crate::controllers::podset::testing::{self, PodBuilder};

    fn due_after(pods: &[PodBuilder]) -> Option<(i64, u32)> {
        let now = testing::now();
        let pods: Vec<Seen> = pods.iter().cloned().map(PodBuilder::seen).collect();
        replacement(&pods, now).map(|next| (next.due.duration_since(now).as_secs(), next.count))
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
    fn the_newest_finish_counts() {
        let old = testing::pod("old").failed(100).replacements(9);
        assert_eq!(due_after(&[old.clone(), testing::pod("new").failed(3).replacements(4)]), Some((8 - 3, 5)));
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
