//! The history of a Lease: its writes in the order in which they took effect.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Request, entries, read};

/// The duration in seconds of a released Lease.
const RELEASED: i64 = 1;

/// One write of the Lease.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resourceVersion after it; `None` if the Lease was deleted.
    pub version: Option<u64>,
    /// The operator that holds the Lease after it.
    pub leader: Option<String>,
    /// The duration of the Lease.
    pub lasts: SignedDuration,
    /// Whether it releases the Lease.
    pub is_release: bool,
    /// When the API server received it. It took effect between this …
    pub received: Timestamp,
    /// … and this, when the API server had answered.
    pub answered: Timestamp,
    /// Who wrote.
    pub by: String,
}

impl Change {
    /// Whether it was not an operator.
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

/// The writes of a Lease, after an entry for the time before it existed.
pub struct History(pub Vec<Change>);

impl History {
    /// Reads the history of a Lease from the audit log.
    pub fn read(log: &Path, namespace: &str, name: &str) -> Result<Self> {
        let mut requests = entries(&read(log)?, namespace, |line| line.contains(r#""resource":"leases""#))?;
        requests.retain(|request| request.took_effect() && request.name() == name);
        Ok(Self::of(&requests))
    }

    pub fn of(writes: &[Request]) -> Self {
        // Each operator has its own user and identity: the holder that a user wrote is that user.
        let wrote =
            writes.iter().filter(|write| is_operator(write.user())).map(|write| (write.lease().0, write.user()));
        let users: BTreeMap<&str, &str> = wrote.filter(|(holder, _)| !holder.is_empty()).collect();
        let change = |write: &Request| Change {
            version: write.version().filter(|_| write.verb != "delete"),
            leader: users.get(write.lease().0).filter(|_| write.verb != "delete").map(|user| user.to_string()),
            lasts: SignedDuration::from_secs(write.lease().1),
            is_release: write.lease() == ("", RELEASED),
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
        // A deletion has no resourceVersion, but the Lease cannot be created again before it.
        for deletion in gone {
            let makes_it_again = |write: &&Request| write.verb == "create" && write.answered() > deletion.received();
            let place = changes.iter().position(makes_it_again).unwrap_or(changes.len());
            changes.insert(place, deletion);
        }
        Self(std::iter::once(nobody).chain(changes.into_iter().map(change)).collect())
    }

    /// When this user released the Lease.
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

    /// The leaders in order, and when the write was answered that began the term.
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

    /// A line for each term that began before the Lease expired or was released.
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
