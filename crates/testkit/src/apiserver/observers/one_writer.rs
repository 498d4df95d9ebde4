//! A replica that stands for election makes changes only while it holds the stored Lease. [`crate::lease`] determines the holder.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::lease::{self, History, Judgement, Write};

/// The prefix of a violation.
pub const WRONG: &str = "written by a replica that is not the leader";

#[derive(Default)]
pub struct OneWriter {
    /// The replicas that stand for election, and when the lease that each wrote last expires.
    replicas: BTreeMap<String, Duration>,
    history: History,
}

fn time(since_start: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH + since_start
}

impl Observer for OneWriter {
    fn changed(&mut self, change: &Change) -> Checked {
        if *change.kind != LEASES {
            return Ok(());
        }
        let (spec, is_there) = (&change.object["spec"], change.event != EventType::Deleted);
        let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0));
        let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty() && is_there);
        // A lease that is released early still counts for its whole duration.
        if let Some(ends) = self.replicas.get_mut(&change.by).filter(|_| holder.is_some()) {
            *ends = change.at + lasts;
        }
        self.history.push(lease::Change {
            version: Some(change.resource_version),
            // The rest of the holder identity is random.
            leader: holder.and_then(|holder| holder.rsplit_once('_')).map(|(name, _)| name.to_owned()),
            lasts: SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX),
            is_release: holder.is_none() && is_there,
            received: time(change.at),
            answered: time(change.at),
            by: change.by.clone(),
            is_by_hand: change.by == "user",
        });
        Ok(())
    }

    fn executed(&mut self, entry: &LoggedRequest, version: u64) -> Checked {
        let request = &entry.request;
        let counts = entry.took_effect() && request.verb.mutates() && *request.kind != LEASES;
        if !counts || !self.replicas.contains_key(&request.instance) {
            return Ok(());
        }
        // The store did not change since, so all changes of the Lease so far came before this write.
        let write = Write {
            by: &request.instance,
            version: Some(version + 1),
            received: time(entry.at),
            answered: time(entry.executed_at.unwrap_or(entry.at)),
        };
        match self.history.judge(write) {
            Judgement::Wrong(why) => Err(format!("{WRONG}: {}: {why}", entry.line())),
            _ => Ok(()),
        }
    }
}

impl OneWriter {
    /// Declares that this client stands for election from now on.
    pub fn stands(&mut self, replica: &str) {
        self.replicas.insert(replica.to_owned(), Duration::ZERO);
    }

    /// Whether a request of this client may be executed after its timeout: only until the lease that it wrote expires.
    pub fn may_land(&self, client: &str, now: Duration) -> bool {
        self.replicas.get(client).is_none_or(|ends| now < *ends)
    }
}
