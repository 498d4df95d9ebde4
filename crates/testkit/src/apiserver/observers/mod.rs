//! Checks of each change of an object and each request, on every server. An observer changes nothing. The server reads two
//! of them: it does not execute a request after the lease of its sender, and it stops after too many pods.

mod bound;
mod deletes;
mod events;
mod one_writer;
mod rollouts;
mod statuses;
mod strangers;

use std::collections::BTreeSet;

pub use self::{
    bound::Bound,
    deletes::{has_template, is_as_requested},
    one_writer::{OneWriter, WRONG as ONE_WRITER},
};
use self::{
    deletes::Deletes,
    events::Events,
    rollouts::Rollouts,
    statuses::Statuses,
    strangers::{Strangers, changes_only_status},
};
use super::*;

/// Clients that write but are not replicas.
const NOT_REPLICAS: [&str; 5] = ["user", "kubelet", "scheduler", "garbage-collector", "namespace-controller"];

fn is_by_replica(change: &Change) -> bool {
    !NOT_REPLICAS.contains(&&*change.by)
}

/// What identifies a set: its namespace and UID. A pod belongs to no set in another namespace.
fn key(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// The key of the set that controls this pod.
fn owner(pod: &Value) -> Option<String> {
    object::controller_uid(pod).map(|uid| key(object::namespace(pod), uid))
}

fn is_of_pod(request: &ApiRequest, verb: Verb) -> bool {
    *request.kind == PODS && request.verb == verb
}

/// The result of a check. An error is a violation.
type Checked = Result<(), String>;

trait Observer {
    fn changed(&mut self, _change: &Change) -> Checked {
        Ok(())
    }

    fn arrived(&mut self, _request: &ApiRequest, _at: Duration) -> Checked {
        Ok(())
    }

    /// A request was executed. `version` is the current version of the store.
    fn executed(&mut self, _entry: &LoggedRequest, _version: u64) -> Checked {
        Ok(())
    }
}

#[derive(Default)]
pub struct Observers {
    pub bound: Bound,
    pub one_writer: OneWriter,
    pub deletes: Deletes,
    strangers: Strangers,
    statuses: Statuses,
    pub events: Events,
    rollouts: Rollouts,
    pub violations: Vec<String>,
    /// How many of them the test has read.
    pub expected: usize,
}

impl Observers {
    fn each(&mut self, check: impl Fn(&mut dyn Observer) -> Checked) {
        let Self { bound, one_writer, deletes, strangers, statuses, events, rollouts, violations, .. } = self;
        let all: [&mut dyn Observer; 7] = [bound, one_writer, deletes, strangers, statuses, events, rollouts];
        violations.extend(all.into_iter().filter_map(|observer| check(observer).err()));
    }

    pub fn changed(&mut self, change: &Change) {
        self.each(|observer| observer.changed(change));
    }

    pub fn arrived(&mut self, request: &ApiRequest, at: Duration) {
        self.each(|observer| observer.arrived(request, at));
    }

    pub fn executed(&mut self, entry: &LoggedRequest, version: u64) {
        self.each(|observer| observer.executed(entry, version));
    }

    /// A client receives the response to a request. It has received these objects on the former pages of a list.
    pub fn answered(&mut self, entry: &LoggedRequest, body: Option<&Value>, former: &[Arc<Value>], at: Duration) {
        if let Some(body) = body {
            self.deletes.answered(entry, body, former, at);
        }
        self.events.answered(entry);
    }
}
