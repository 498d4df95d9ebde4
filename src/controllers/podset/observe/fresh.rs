//! As of when a watch is complete: our own writes prove it. What happened before a write was sent has a lower resourceVersion,
//! and a watch brings them in their order. No I/O, no decision.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::listwatch::Scope;

/// How many writes that a watch has not come to yet are remembered, those that were answered first.
const AHEAD: usize = 128;

/// As of when the watch of each scope is complete.
#[derive(Debug, Default)]
pub struct Fresh(HashMap<Scope, Watched>);

#[derive(Debug, Default)]
struct Watched {
    heard: u64,
    /// The versions that our own writes were given and the watch has not come to, and when each was sent.
    ahead: VecDeque<(u64, Timestamp)>,
    as_of: Option<Timestamp>,
}

impl Watched {
    fn catch_up(&mut self) {
        let Watched { heard, ahead, as_of } = self;
        ahead.retain(|(version, sent)| {
            let is_ahead = version > heard;
            if !is_ahead {
                *as_of = (*as_of).max(Some(*sent));
            }
            is_ahead
        });
    }
}

impl Fresh {
    /// The watch of this scope has come to this version.
    pub fn heard(&mut self, scope: &Scope, version: u64) {
        let watched = self.0.entry(scope.clone()).or_default();
        watched.heard = version.max(watched.heard);
        watched.catch_up();
    }

    /// A write of ours within the scope was given this version: one that changed nothing was given none.
    pub fn wrote(&mut self, scope: &Scope, version: u64, sent: Timestamp) {
        let Some(watched) = self.0.get_mut(scope) else { return };
        if watched.ahead.len() < AHEAD {
            watched.ahead.push_back((version, sent));
        }
        watched.catch_up();
    }

    /// As of when the watch of this scope is complete, if that is proved.
    pub fn as_of(&self, scope: &Scope) -> Option<Timestamp> {
        self.0.get(scope)?.as_of
    }

    /// The watched scope that this namespace belongs to.
    pub fn scope(&self, namespace: &str) -> Scope {
        if self.0.contains_key(&None) { None } else { Some(namespace.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::testing;
    use jiff::SignedDuration;

    fn at(second: i64) -> Timestamp {
        testing::now() + SignedDuration::from_secs(second)
    }

    #[test]
    fn a_watch_is_complete_as_of_the_last_write_that_it_has_come_to() {
        let mut fresh = Fresh::default();
        fresh.wrote(&None, 5, at(0));
        fresh.heard(&None, 10);
        assert_eq!(fresh.as_of(&None), None, "nobody watched then");
        fresh.wrote(&None, 12, at(2));
        fresh.wrote(&None, 11, at(1));
        fresh.wrote(&None, 13, at(3));
        assert_eq!(fresh.as_of(&None), None, "an answer alone proves nothing of the watch");
        fresh.heard(&None, 12);
        assert_eq!(fresh.as_of(&None), Some(at(2)));
        fresh.heard(&None, 20);
        assert_eq!(fresh.as_of(&None), Some(at(3)));
        fresh.wrote(&None, 15, at(4));
        assert_eq!(fresh.as_of(&None), Some(at(4)), "the watch was faster than the answer");
        assert_eq!(fresh.as_of(&Some("a".into())), None);
    }

    #[test]
    fn a_watch_that_stands_still_costs_little_and_is_proved_right_when_it_goes_on() {
        let mut fresh = Fresh::default();
        fresh.heard(&None, 0);
        for version in 1..=1000 {
            fresh.wrote(&None, version, at(0));
        }
        assert_eq!(fresh.0[&None].ahead.len(), AHEAD);
        fresh.heard(&None, 1);
        assert_eq!(fresh.as_of(&None), Some(at(0)));
    }

    #[test]
    fn a_namespace_belongs_to_its_own_watch_or_to_that_of_all() {
        let mut fresh = Fresh::default();
        fresh.heard(&Some("a".into()), 1);
        assert_eq!(fresh.scope("a"), Some("a".into()));
        fresh.heard(&None, 1);
        assert_eq!(fresh.scope("a"), None);
    }
}
