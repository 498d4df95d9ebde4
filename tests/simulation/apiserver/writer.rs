//! The checker of the promise "one writer": every change by a replica that stands for election is made while the Lease
//! names it, as the Lease is stored at that moment. Reads; changes nothing.
//!
//! After an edit of the Lease by hand, what was sent up to a second later is exempt.

use std::{collections::BTreeMap, time::Duration};

use super::{kinds::LEASES, log::LoggedRequest, store::Change};

/// How long after an edit by hand a request may still be sent.
const EXEMPT: Duration = Duration::from_secs(1);

/// The checker.
#[derive(Default)]
pub struct OneWriter {
    /// Who stands for election, and when the lease ends that each wrote last.
    replicas: BTreeMap<String, Duration>,
    edited: Option<Duration>,
    violations: Vec<String>,
}

impl OneWriter {
    /// From now on this client stands for election.
    pub fn stands(&mut self, replica: &str) {
        self.replicas.insert(replica.to_owned(), Duration::ZERO);
    }

    /// Somebody changed an object.
    pub fn changed(&mut self, change: &Change) {
        if *change.kind != LEASES {
            return;
        }
        if change.by == "user" {
            self.edited = Some(change.at);
        }
        let spec = &change.object["spec"];
        let is_held = spec["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
        // One that is given back early does not end before it would have.
        if let Some(ends) = self.replicas.get_mut(&change.by).filter(|_| is_held) {
            *ends = change.at + Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0));
        }
    }

    /// Whether a request of this client may be executed after its time-out: only while the lease lasts that it wrote.
    pub fn may_land(&self, client: &str, now: Duration) -> bool {
        self.replicas.get(client).is_none_or(|ends| now < *ends)
    }

    /// A request was executed while the Lease named this holder.
    pub fn executed(&mut self, entry: &LoggedRequest, holder: Option<&str>) {
        let request = &entry.request;
        let counts = entry.took_effect() && request.verb.mutates() && *request.kind != LEASES;
        let is_exempt = self.edited.is_some_and(|edited| entry.at <= edited + EXEMPT);
        // The rest of a holder identity is chance.
        let holds = holder.and_then(|holder| holder.rsplit_once('_')).is_some_and(|(name, _)| name == request.instance);
        if counts && !is_exempt && self.replicas.contains_key(&request.instance) && !holds {
            self.violations.push(format!("{} while the Lease names {holder:?}", entry.line()));
        }
    }

    /// All violations so far.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}
