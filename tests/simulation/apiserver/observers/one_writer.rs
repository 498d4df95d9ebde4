//! Every change by a replica that stands for election is made while it holds the Lease, as the Lease is stored at that moment. The testkit
//! knows who holds it.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use testkit::lease::{self, History, Judgement, Write};

use super::{
    super::{
        kinds::LEASES,
        log::LoggedRequest,
        store::{Change, ChangeKind},
    },
    Checked, Observer,
};

/// How a violation begins.
pub const WRONG: &str = "written by one that does not lead";

#[derive(Default)]
pub struct OneWriter {
    /// Who stands for election, and when the lease ends that each wrote last.
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
        let (spec, is_there) = (&change.object["spec"], change.change != ChangeKind::Deleted);
        let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0));
        let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty() && is_there);
        // One that is given back early does not end before it would have.
        if let Some(ends) = self.replicas.get_mut(&change.by).filter(|_| holder.is_some()) {
            *ends = change.at + lasts;
        }
        self.history.push(lease::Change {
            version: Some(change.resource_version),
            // The rest of a holder identity is chance.
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
        // Nothing happened in the store since, so that all changes of the Lease so far came before it.
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
    /// From now on this client stands for election.
    pub fn stands(&mut self, replica: &str) {
        self.replicas.insert(replica.to_owned(), Duration::ZERO);
    }

    /// Whether a request of this client may be executed after its time-out: only while the lease lasts that it wrote.
    pub fn may_land(&self, client: &str, now: Duration) -> bool {
        self.replicas.get(client).is_none_or(|ends| now < *ends)
    }
}
