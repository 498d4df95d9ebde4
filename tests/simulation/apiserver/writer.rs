//! The checker of the promise "one writer": every change by a replica that stands for election is made while the Lease
//! names it, as the Lease is stored at that moment. Reads; changes nothing.
//!
//! After an edit of the Lease by hand, what was sent up to a second later is exempt.

use std::{collections::BTreeSet, time::Duration};

use super::{
    kinds::{Kind, LEASES},
    log::LoggedRequest,
};

/// How long after an edit by hand a request may still be sent.
const EXEMPT: Duration = Duration::from_secs(1);

/// The checker.
#[derive(Default)]
pub struct OneWriter {
    replicas: BTreeSet<String>,
    edited: Option<Duration>,
    violations: Vec<String>,
}

impl OneWriter {
    /// From now on this client stands for election.
    pub fn stands(&mut self, replica: &str) {
        self.replicas.insert(replica.to_owned());
    }

    /// Somebody changed an object.
    pub fn changed(&mut self, kind: &Kind, by: &str, at: Duration) {
        if *kind == LEASES && by == "user" {
            self.edited = Some(at);
        }
    }

    /// A request was executed while the Lease named this holder.
    pub fn executed(&mut self, entry: &LoggedRequest, holder: Option<&str>) {
        let request = &entry.request;
        let counts = entry.took_effect() && request.verb.mutates() && *request.kind != LEASES;
        let is_exempt = self.edited.is_some_and(|edited| entry.at <= edited + EXEMPT);
        // The rest of a holder identity is chance.
        let holds = holder.and_then(|holder| holder.rsplit_once('_')).is_some_and(|(name, _)| name == request.instance);
        if counts && !is_exempt && self.replicas.contains(&request.instance) && !holds {
            self.violations.push(format!("{} while the Lease names {holder:?}", entry.line()));
        }
    }

    /// All violations so far.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}
