//! Checks "one writer": each write took effect while its sender held the Lease. No term began before the Lease expired.
//!
//! Lease and objects share resourceVersions, so the one after a write shows between which changes of the Lease it took
//! effect. Without one (a delete, or a patch that changed nothing), the write took effect between its receipt and its
//! response, like the changes of the Lease, and in doubt its sender held the Lease. No I/O, no clock.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// For this time after an edit by hand, the former holder may still write, because it may not know of the edit.
const NOTICE: SignedDuration = SignedDuration::from_secs(1);

/// One write of the Lease.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The resourceVersion after it; `None` if the Lease was deleted.
    pub version: Option<u64>,
    /// The replica that holds the Lease after it.
    pub leader: Option<String>,
    pub lasts: SignedDuration,
    pub is_release: bool,
    /// When the API server received it. It took effect between this …
    pub received: Timestamp,
    /// … and this, when the API server had answered.
    pub answered: Timestamp,
    /// The user that sent it.
    pub by: String,
    /// Whether this user is not a replica.
    pub is_by_hand: bool,
}

/// A write of something else.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The replica that sent it.
    pub by: &'a str,
    /// The resourceVersion after it, if it changed the object.
    pub version: Option<u64>,
    /// When the API server received it. It took effect between this …
    pub received: Timestamp,
    /// … and this, when the API server had answered.
    pub answered: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    Right,
    /// Its sender held the Lease before an edit by hand, and may not have known of the edit.
    Exempt,
    /// Its sender did not hold the Lease, with the reason.
    Wrong(String),
}

/// The writes of a Lease in the order in which they took effect, after an entry for the time before it existed.
#[derive(Clone, Debug)]
pub struct History(Vec<Change>);

impl Default for History {
    fn default() -> Self {
        let (received, answered) = (Timestamp::MIN, Timestamp::MIN);
        Self(vec![Change { version: Some(0), received, answered, ..Change::default() }])
    }
}

impl History {
    pub fn push(&mut self, change: Change) {
        self.0.push(change);
    }

    pub fn judge(&self, write: Write<'_>) -> Judgement {
        match self.check(write) {
            Ok(()) => Judgement::Right,
            Err(_) if self.is_exempt(write) => Judgement::Exempt,
            Err(why) => Judgement::Wrong(why),
        }
    }

    fn check(&self, write: Write<'_>) -> Result<(), String> {
        let Self(changes) = self;
        let is_leader = |change: &&Change| change.leader.as_deref() == Some(write.by);
        // All changes up to this one were complete before the write was received.
        let sure = changes.iter().rposition(|change| change.answered < write.received).unwrap_or(0);
        let own_version = write.version.filter(|version| changes[sure].version < Some(*version));
        let last = match own_version {
            Some(version) => changes.iter().rposition(|change| change.version.is_some_and(|it| it < version)),
            None => changes.iter().rposition(|change| change.received <= write.answered),
        };
        let last = last.unwrap_or(0).max(sure);
        let first = if own_version.is_some() { last } else { sure };
        let possible = &changes[first..=last];
        if !possible.iter().any(|change| is_leader(&change)) {
            let leaders: Vec<_> = possible.iter().map(|change| change.leader.as_deref().unwrap_or("nobody")).collect();
            return Err(format!("the Lease was held by {leaders:?}"));
        }
        // A term starts when a renewal is sent, which is before it is received.
        let renewed = changes.iter().rfind(|change| is_leader(change) && change.received <= write.received);
        match renewed {
            Some(renewed) if write.received > renewed.received + renewed.lasts => {
                let late = write.received.duration_since(renewed.received + renewed.lasts);
                Err(format!("its lease had expired {late:?} before"))
            }
            _ => Ok(()),
        }
    }

    fn is_exempt(&self, write: Write<'_>) -> bool {
        self.0.windows(2).any(|pair| {
            let (before, edit) = (&pair[0], &pair[1]);
            edit.is_by_hand && before.leader.as_deref() == Some(write.by) && write.received <= edit.answered + NOTICE
        })
    }

    /// When this user released the Lease.
    pub fn released(&self, user: &str) -> Option<Timestamp> {
        let is_it = |pair: &&[Change]| {
            pair[0].leader.as_deref() == Some(user) && pair[1].leader.is_none() && pair[1].by == user
        };
        self.0.windows(2).find(is_it).map(|pair| pair[1].answered)
    }

    /// The leaders in order, each with the time of the response to the write that began its term.
    pub fn terms(&self) -> Vec<(&str, Timestamp)> {
        let begins = |pair: &[Change]| pair[1].leader != pair[0].leader;
        let begun = self.0.windows(2).filter(|pair| begins(pair)).map(|pair| &pair[1]);
        begun.filter_map(|change| Some((change.leader.as_deref()?, change.answered))).collect()
    }

    /// A line for each term that began before the Lease expired or was released.
    pub fn thefts(&self) -> Vec<String> {
        let mut thefts = Vec::new();
        let (mut before, mut free) = (None, Timestamp::MIN);
        for change in &self.0 {
            if change.leader.is_some() && change.leader != before && change.received < free {
                let early = free.duration_since(change.received);
                thefts.push(format!("the Lease was taken {early:#} too early: {change}"));
            }
            if change.leader.is_some() {
                before.clone_from(&change.leader);
            }
            let expires = change.received.saturating_add(change.lasts).unwrap_or(Timestamp::MAX);
            free = if change.is_release { Timestamp::MIN } else { free.max(expires) };
        }
        thefts
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().skip(1).try_for_each(|change| writeln!(f, "{change}"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { version, leader, lasts, received, answered, by, .. } = self;
        let took = answered.duration_since(*received).as_millis();
        let (version, leader) = (version.unwrap_or(0), leader.as_deref().unwrap_or("nobody"));
        write!(f, "{received:.6} +{took} ms, resourceVersion {version}: {leader} for {lasts:#}, written by {by}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    /// A write of the Lease that is received `ms` milliseconds after the start and answered 10 ms later.
    fn change(by: &str, ms: i64, version: Option<u64>, leader: &str) -> Change {
        let leader = Some(leader.to_owned()).filter(|leader| !leader.is_empty());
        Change {
            version,
            is_release: leader.is_none() && version.is_some(),
            lasts: SignedDuration::from_secs(if leader.is_some() { 15 } else { 1 }),
            leader,
            received: at(ms),
            answered: at(ms + 10),
            by: by.to_owned(),
            is_by_hand: by == "person",
        }
    }

    fn history(changes: impl IntoIterator<Item = Change>) -> History {
        let mut history = History::default();
        changes.into_iter().for_each(|change| history.push(change));
        history
    }

    fn is_wrong(history: &History, by: &str, ms: i64, version: Option<u64>) -> bool {
        matches!(history.judge(Write { by, version, received: at(ms), answered: at(ms + 10) }), Judgement::Wrong(_))
    }

    #[test]
    fn a_write_is_judged_by_its_resource_version_or_by_time() {
        // A takes the Lease at 1 s and releases it at 5 s. B takes it right after.
        let changes =
            [change("a", 1_000, Some(10), "a"), change("a", 5_000, Some(50), ""), change("b", 5_015, Some(51), "b")];
        let history = history(changes);
        let create = |by, ms, version| is_wrong(&history, by, ms, Some(version));
        assert!(!create("a", 4_995, 49) && create("a", 4_995, 52), "A sent it in time, and it took effect under B");
        assert!(!create("b", 5_030, 52) && create("b", 4_000, 40) && create("a", 500, 5));
        // A delete has no resourceVersion of its own, only the older one of the deleted object.
        for version in [None, Some(7)] {
            let delete = |by, ms| is_wrong(&history, by, ms, version);
            assert!(!delete("a", 5_005) && delete("a", 5_040) && !delete("b", 5_040) && delete("b", 4_000));
        }
        assert_eq!((history.terms().len(), history.thefts().len()), (2, 0));
        assert_eq!((history.released("a"), history.released("b")), (Some(at(5_010)), None));
    }

    #[test]
    fn an_expired_lease_permits_no_write_and_a_valid_one_no_theft() {
        let taken = change("a", 1_000, Some(10), "a");
        let alone = history([taken.clone()]);
        assert!(!is_wrong(&alone, "a", 15_900, Some(20)) && is_wrong(&alone, "a", 16_100, Some(20)));
        let thefts = |ms| history([taken.clone(), change("b", ms, Some(50), "b")]).thefts().len();
        assert_eq!((thefts(16_100), thefts(15_900)), (0, 1));
    }

    #[test]
    fn after_an_edit_by_hand_the_former_leader_may_write_for_a_second() {
        for edit in [Some(50), None] {
            let mut edit = change("person", 5_000, edit, "");
            edit.is_release = false;
            let history = history([change("a", 1_000, Some(10), "a"), edit, change("b", 20_000, Some(80), "b")]);
            let create = |by, ms| is_wrong(&history, by, ms, Some(55));
            assert!(history.thefts().is_empty() && !create("a", 5_900) && create("a", 6_100) && create("b", 5_900));
        }
    }
}
