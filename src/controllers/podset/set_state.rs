//! What the operator remembers of a set between two reconciles because no cache can know it. No I/O.
//!
//! The fates of writes whose answers were lost, the wait after failures, and what was told to users already. It is lost
//! with the process, and the promise needs none of it afterwards: a create of a former process has taken effect, or never
//! will, before the next one leads.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{promise::Rules, rejected_deletes::RejectedDeletes, restart_backoff::Finishes, trace_link::TraceLink};
use crate::controllers::{
    failures::{Failures, Waits, doubled},
    meta::Uid,
    pace::Pace,
};

/// The first and the longest wait after a refused or unanswered write.
pub const BACKOFF: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(30));

/// The first and the last of the short waits after the API server says that the namespace is being deleted. A lagging API server can
/// say so of a namespace that was deleted and created again.
const TERMINATING: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(16));

/// The wait after the short ones: the namespace is being deleted.
const REST: SignedDuration = SignedDuration::from_mins(10);

/// With so many strays whose delete was rejected, no pod is created. A single one must not keep a set from its pods, but a webhook
/// that changes every pod, and a policy that protects them, must not lead to pods without bound. (A new leader does not know them, and
/// may add as many.)
const MOST_STRAYS: usize = 3;

/// What is remembered of a set.
#[derive(Clone, Debug, Default)]
pub struct SetState {
    /// Creates that did not succeed, by name.
    pub creates: BTreeMap<String, Create>,
    /// Deletes without an answer: when the last one was given up.
    pub deletes: BTreeMap<Uid, Timestamp>,
    /// Deletes that the API server rejected.
    pub rejected: RejectedDeletes,
    /// Pods to which the API server does not let the label be given back.
    pub relabels: RejectedDeletes,
    /// Pods that were made otherwise than ordered and shall go: their names by UID.
    pub strays: BTreeMap<Uid, String>,
    /// The pods that finished, and what waits to be created in their place.
    pub finishes: Finishes,
    /// The wait after a failure.
    pub backoff: Option<Backoff>,
    /// The wait because the namespace is being deleted: no pod is created.
    pub rest: Option<Backoff>,
    /// Why the API server refuses pods, while it does.
    pub rejected_create: Option<Rejection>,
    /// The refusal of which users were told.
    pub refusal_told: Option<Rejection>,
    /// Whether users were told that pods fail.
    pub failing_told: bool,
    /// The work that is under way and not yet told.
    pub burst: Option<Burst>,
    /// Work that ended and is not yet told, and how many pods were live then.
    pub ended: Vec<(Burst, usize)>,
    /// Whether a stranger had one of its names since the set was last read: before the next one is asked for, it is read again.
    pub met_stranger: bool,
    /// How many pods were live after the last pass that did something, or have been since: fewer have been lost since.
    pub live: usize,
    /// How many pods were wanted when last there were as many; nothing once another number is worked for.
    pub fulfilled: Option<usize>,
    /// The generation for which pods were last created, or tried to be.
    pub tried_generation: Option<i64>,
    /// When the status may be written again.
    pub pace: Pace,
    /// The reads of the set that have failed.
    pub read_failures: Failures,
    /// For the traces: which change is being worked on.
    pub trace_link: TraceLink,
}

/// A create that did not succeed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Create {
    /// The index of the name.
    pub index: u32,
    /// When it was given up.
    pub at: Timestamp,
    /// Whether it may still take effect. A create that was refused, or never left, cannot, but its name is asked for first
    /// again: should the refusal have been wrong, the same name makes no second pod.
    pub is_unknown: bool,
}

/// A wait after failures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    /// How long the last wait was, without jitter.
    pub wait: SignedDuration,
    /// Until when nothing is tried.
    pub until: Timestamp,
    /// The generation that failed: another one is tried at once.
    pub generation: i64,
}

/// Why pods are refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// The server's words, without what changes each time.
    pub message: String,
    /// What kind of refusal it is.
    pub kind: RejectionKind,
    /// The generation of the spec that was refused.
    pub generation: i64,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectionKind {
    /// It may be granted another time: quota, admission.
    Forbidden,
    /// Nobody can say that no pod was made: the API server fails, as where a webhook does not answer, or it is not heard.
    Unclear,
    /// The template is invalid in itself.
    InvalidTemplate,
    /// The namespace is being deleted: it will never be granted.
    NamespaceTerminating,
}

/// Work on the pods that is not yet told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Burst {
    /// How many pods were wanted: work for another number is told apart.
    pub wanted: usize,
    /// Pods that were live when it began.
    pub from: usize,
    /// Pods created.
    pub created: usize,
    /// Whether surplus pods were to be deleted.
    pub is_deleting: bool,
    /// Whether it brings the set to what its spec wants for the first time; otherwise it makes up for pods that went.
    pub is_scaling: bool,
}

impl SetState {
    /// The names of the creates that may still take effect.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.creates.iter().filter(|(_, create)| create.is_unknown).map(|(name, _)| name.as_str())
    }

    /// Whether a delete of the pod of this UID was tried lately and may still take effect.
    pub fn is_going(&self, uid: &Uid) -> bool {
        self.deletes.contains_key(uid)
    }

    /// Forgets what is too old to matter. A create of unknown fate is not forgotten: after the quarantine it is looked up.
    pub fn expire(&mut self, now: Timestamp, rules: &Rules) {
        let is_open = |at: Timestamp| now.duration_since(at) < rules.quarantine;
        self.creates.retain(|_, create| is_open(create.at) || !(rules.may_forget)(create));
        self.deletes.retain(|_, at| is_open(*at));
    }

    /// The creates of unknown fate that can take effect no more: a read tells whether they did.
    pub fn overdue(&self, now: Timestamp, quarantine: SignedDuration) -> impl Iterator<Item = &str> {
        let is_overdue = move |create: &Create| create.is_unknown && now.duration_since(create.at) >= quarantine;
        self.creates.iter().filter(move |(_, create)| is_overdue(create)).map(|(name, _)| name.as_str())
    }

    /// When the next fate can be settled.
    pub fn next_settled(&self, now: Timestamp, quarantine: SignedDuration) -> Option<Timestamp> {
        let creates = self.creates.values().filter(|create| create.is_unknown).map(|create| create.at);
        creates.chain(self.deletes.values().copied()).map(|at| at + quarantine).filter(|at| *at > now).min()
    }

    /// A create was not answered.
    pub fn create_unanswered(&mut self, name: &str, index: u32, at: Timestamp) {
        self.creates.insert(name.to_owned(), Create { index, at, is_unknown: true });
    }

    /// A create was refused, or never left. An earlier one of the same name may still take effect.
    pub fn create_refused(&mut self, name: &str, index: u32, at: Timestamp) {
        let refused = Create { index, at, is_unknown: false };
        self.creates
            .entry(name.to_owned())
            .and_modify(|create| *create = if create.is_unknown { *create } else { refused })
            .or_insert(refused);
    }

    /// A create was answered for certain, and its pod is known. An earlier one of the same name may still take effect.
    pub fn create_settled(&mut self, name: &str) {
        if self.creates.get(name).is_some_and(|create| !create.is_unknown) {
            self.creates.remove(name);
        }
    }

    /// Something failed: waits, twice as long as the last time, up to a bound. `jittered` is the wait with its jitter.
    pub fn back_off(&mut self, now: Timestamp, generation: i64, jittered: impl Fn(SignedDuration) -> SignedDuration) {
        let former = self.backoff.filter(|backoff| backoff.generation == generation);
        let wait = doubled(former.map(|backoff| backoff.wait), BACKOFF);
        self.backoff = Some(Backoff { wait, until: now + jittered(wait), generation });
    }

    /// Whether strays keep pods from being created: one of them is still going, or too many cannot be deleted.
    pub fn strays_hold(&self) -> bool {
        self.has_pending_strays() || self.strays.len() >= MOST_STRAYS
    }

    /// Whether a stray is there whose delete was not rejected.
    pub fn has_pending_strays(&self) -> bool {
        self.strays.keys().any(|uid| !self.rejected.contains(uid))
    }

    /// The API server says that the namespace is being deleted: for this generation of the spec, nothing is created for a while, and
    /// after a few tries for a long time.
    pub fn give_up(&mut self, now: Timestamp, generation: i64, jittered: impl Fn(SignedDuration) -> SignedDuration) {
        let former = self.rest.filter(|rest| rest.generation == generation).map(|rest| rest.wait);
        let (_, last) = TERMINATING;
        let is_tried = former.is_some_and(|wait| wait >= last);
        let wait = if is_tried { REST } else { doubled(former, TERMINATING) };
        self.rest = Some(Backoff { wait, until: now + jittered(wait), generation });
    }

    /// Until when no pod is created for this generation of the spec because the namespace is being deleted.
    pub fn rests_until(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        running(self.rest, generation, now)
    }

    /// Until when nothing is tried that failed, for this generation of the spec.
    pub fn waits_until(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        running(self.backoff, generation, now)
    }
}

/// Until when a wait lasts that concerns this generation of the spec, if it still runs.
fn running(wait: Option<Backoff>, generation: i64, now: Timestamp) -> Option<Timestamp> {
    wait.filter(|wait| wait.generation == generation && now < wait.until).map(|wait| wait.until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::{promise::QUARANTINE, testing};

    #[test]
    fn waits_double_up_to_thirty_seconds_and_begin_anew_with_the_spec() {
        let mut state = SetState::default();
        let now = testing::now();
        let waits: Vec<i64> = (0..7)
            .map(|_| {
                state.back_off(now, 1, |wait| wait);
                state.waits_until(1, now).unwrap().duration_since(now).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(state.waits_until(2, now), None, "a new spec is tried at once");
        state.back_off(now, 2, |wait| wait);
        assert_eq!(state.waits_until(2, now).unwrap().duration_since(now).as_secs(), 1);
    }

    #[test]
    fn a_namespace_that_is_said_to_go_is_tried_a_few_times_and_then_left_for_long() {
        let (mut state, start) = (SetState::default(), testing::now());
        let mut wait = |generation| {
            state.give_up(start, generation, |wait| wait);
            state.rests_until(generation, start).unwrap().duration_since(start).as_secs()
        };
        let waits: Vec<i64> = (0..7).map(|_| wait(1)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 600, 600]);
        assert_eq!(wait(2), 1, "a new spec begins anew");
    }

    #[test]
    fn strays_that_cannot_be_deleted_keep_pods_from_being_created_only_if_they_are_many() {
        let mut state = SetState::default();
        for (uid, holds) in [("a", false), ("b", false), ("c", true)] {
            state.strays.insert(uid.into(), uid.to_owned());
            assert!(state.strays_hold(), "{uid} may still go");
            state.rejected.note(uid.into(), 0, "no".to_owned(), testing::now(), |wait| wait);
            assert_eq!(state.strays_hold(), holds, "{uid}");
        }
    }

    #[test]
    fn only_a_read_after_the_quarantine_settles_an_unknown_fate() {
        let mut state = SetState::default();
        let start = testing::now();
        state.create_unanswered("a", 0, start);
        state.create_settled("a");
        state.create_refused("a", 0, start + SignedDuration::from_secs(9));
        state.expire(start + SignedDuration::from_secs(59), &Rules::default());
        assert_eq!(state.unknown().collect::<Vec<_>>(), ["a"]);
        assert_eq!(state.next_settled(start, QUARANTINE), Some(start + QUARANTINE));
        let end = start + QUARANTINE;
        state.expire(end, &Rules::default());
        assert_eq!(state.unknown().collect::<Vec<_>>(), ["a"], "until it was looked up");
        assert_eq!(state.overdue(end - SignedDuration::from_secs(1), QUARANTINE).count(), 0);
        assert_eq!(state.overdue(end, QUARANTINE).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_refused_name_is_remembered_but_does_not_count() {
        let mut state = SetState::default();
        state.create_refused("a", 0, testing::now());
        assert_eq!(state.unknown().count(), 0);
        assert!(state.creates.contains_key("a"));
        state.create_settled("a");
        assert!(state.creates.is_empty());
    }
}
