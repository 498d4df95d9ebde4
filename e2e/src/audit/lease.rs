//! The history of a Lease: every write of it that took effect, by whomever, in the order in which they took effect.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Request, entries, read};

/// The duration, in seconds, of a Lease that was given back.
const RELEASED: i64 = 1;

/// One write of the Lease.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resourceVersion after it; none where it was deleted.
    pub version: Option<u64>,
    /// The user who holds the Lease after it; none where nobody does, or somebody who is none of the operators.
    pub leader: Option<String>,
    /// How long the Lease lasts from here.
    pub lasts: SignedDuration,
    /// Whether it gives the Lease back.
    pub is_release: bool,
    /// When the API server received the write. It took effect between this …
    pub received: Timestamp,
    /// … and this, when the API server had answered.
    pub answered: Timestamp,
    /// Who wrote.
    pub by: String,
}

impl Change {
    /// Whether a person did it.
    pub fn is_by_hand(&self) -> bool {
        !is_operator(&self.by)
    }
}

impl std::fmt::Display for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().skip(1).try_for_each(|change| writeln!(f, "{change}"))
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Change { version, leader, lasts, received, answered, by, .. } = self;
        let took = answered.duration_since(*received).as_millis();
        let (version, leader) = (version.unwrap_or(0), leader.as_deref().unwrap_or("nobody"));
        write!(f, "{received:.6} +{took} ms, resourceVersion {version}: {leader} for {lasts:#}, written by {by}")
    }
}

/// The writes of a Lease, after a first entry for the time before it was there.
pub struct History(pub Vec<Change>);

impl History {
    /// The history of the Lease of this name, from the audit log.
    pub fn read(log: &Path, namespace: &str, name: &str) -> Result<Self> {
        let mut requests = entries(&read(log)?, namespace, |line| line.contains(r#""resource":"leases""#))?;
        // A create has no name in its path, but the log knows it.
        requests.retain(|request| request.took_effect() && request.name() == name);
        Ok(Self::of(&requests))
    }

    /// The history that these writes make.
    pub fn of(writes: &[Request]) -> Self {
        // Each operator has a user and an identity of its own: what a user wrote as holder is that user.
        let wrote = writes.iter().filter(|write| is_operator(write.user())).map(|write| (holder(write), write.user()));
        let users: BTreeMap<&str, &str> = wrote.filter(|(holder, _)| !holder.is_empty()).collect();
        let change = |write: &Request| Change {
            version: write.version().filter(|_| write.verb != "delete"),
            leader: users.get(holder(write)).filter(|_| write.verb != "delete").map(|user| user.to_string()),
            lasts: SignedDuration::from_secs(duration(write)),
            is_release: holder(write).is_empty() && duration(write) == RELEASED,
            received: write.received(),
            answered: write.answered(),
            by: write.user().to_owned(),
        };
        let nobody = Change {
            version: Some(0),
            leader: None,
            lasts: SignedDuration::ZERO,
            is_release: false,
            received: Timestamp::MIN,
            answered: Timestamp::MIN,
            by: String::new(),
        };
        let (gone, mut changes): (Vec<_>, Vec<_>) = writes.iter().partition(|write| write.verb == "delete");
        changes.sort_by_key(|write| write.version());
        // A deletion has no resourceVersion; but the Lease cannot be made again before it is gone.
        for deletion in gone {
            let makes_it_again = |write: &&Request| write.verb == "create" && write.answered() > deletion.received();
            let place = changes.iter().position(makes_it_again).unwrap_or(changes.len());
            changes.insert(place, deletion);
        }
        Self(std::iter::once(nobody).chain(changes.into_iter().map(change)).collect())
    }

    /// When this user gave the Lease back.
    pub fn released(&self, user: &str) -> Option<Timestamp> {
        let mut leader = None;
        for change in &self.0 {
            if leader == Some(user) && change.leader.is_none() && change.by == user {
                return Some(change.answered);
            }
            leader = change.leader.as_deref();
        }
        None
    }

    /// The terms, in order: who, and when the write that began it was answered.
    pub fn terms(&self) -> Vec<(&str, Timestamp)> {
        let mut terms: Vec<(&str, Timestamp)> = Vec::new();
        let mut before = None;
        for change in &self.0 {
            let leader = change.leader.as_deref();
            if let Some(user) = leader
                && leader != before
            {
                terms.push((user, change.answered));
            }
            before = leader;
        }
        terms
    }

    /// One line for each term that began before the Lease of the leader before had run out, if that had not given it back.
    ///
    /// Whoever waits begins to count when it has seen the last renewal, and so later than that was received here.
    pub fn thefts(&self) -> Vec<String> {
        let mut thefts = Vec::new();
        let (mut before, mut free) = (None, Timestamp::MIN);
        for change in &self.0 {
            if change.leader.is_some() && change.leader != before && change.received < free {
                thefts.push(format!(
                    "the Lease was taken {:#} too early: {change}",
                    free.duration_since(change.received)
                ));
            }
            if change.leader.is_some() {
                before.clone_from(&change.leader);
            }
            let runs_out = change.received.saturating_add(change.lasts).unwrap_or(Timestamp::MAX);
            free = if change.is_release { Timestamp::MIN } else { free.max(runs_out) };
        }
        thefts
    }
}

fn is_operator(user: &str) -> bool {
    user.starts_with("system:serviceaccount:")
}

fn holder(write: &Request) -> &str {
    let spec = write.response_object.as_ref().and_then(|object| object.spec.as_ref());
    spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn duration(write: &Request) -> i64 {
    let spec = write.response_object.as_ref().and_then(|object| object.spec.as_ref());
    spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0)
}
