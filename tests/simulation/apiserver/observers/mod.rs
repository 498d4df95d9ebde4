//! What every simulation checks, at each change of an object and each request. An observer changes nothing.
//!
//! | observer | what must hold |
//! |---|---|
//! | `bound` | never more than N pods |
//! | `one_writer` | only the holder of the Lease writes |
//! | `deletes` | a delete follows from what its sender was sent, and hits the pod that was meant |
//! | `strangers` | a replica changes no pod that a user created, and of a PodSet only its status |
//! | `statuses`, `events` | what they say can be true |
//! | `rollouts` | no broken template takes more pods than `maxUnavailable` |

mod bound;
mod deletes;
mod events;
mod one_writer;
mod rollouts;
mod statuses;
mod strangers;

use std::time::Duration;

use serde_json::Value;

pub use self::{
    bound::Bound,
    deletes::{is_as_ordered, is_made_of},
    one_writer::{OneWriter, WRONG as ONE_WRITER},
};
use self::{deletes::Deletes, events::Events, rollouts::Rollouts, statuses::Statuses, strangers::Strangers};
use super::{
    kinds::PODS,
    log::LoggedRequest,
    object,
    request::{ApiRequest, Verb},
    store::Change,
};

/// Clients that write and are not replicas.
const NOT_REPLICAS: [&str; 5] = ["user", "kubelet", "scheduler", "garbage-collector", "namespace-controller"];

fn is_by_replica(change: &Change) -> bool {
    !NOT_REPLICAS.contains(&&*change.by)
}

/// Whether a pod can belong to a set in this namespace. An owner reference to a set in another namespace does not count. The namespace is
/// empty until the set was seen.
fn may_belong(pod: &Value, namespace: &str) -> bool {
    namespace.is_empty() || namespace == object::namespace(pod)
}

/// Whether it is a request of this verb for a pod.
fn is_of_pod(request: &ApiRequest, verb: Verb) -> bool {
    *request.kind == PODS && request.verb == verb
}

/// An error says what is wrong.
type Checked = Result<(), String>;

/// Checks one promise.
trait Observer {
    /// An object was created, changed or deleted.
    fn changed(&mut self, _change: &Change) -> Checked {
        Ok(())
    }

    /// A request was sent.
    fn arrived(&mut self, _request: &ApiRequest, _at: Duration) -> Checked {
        Ok(())
    }

    /// A request was executed. The store is at this version now.
    fn executed(&mut self, _entry: &LoggedRequest, _version: u64) -> Checked {
        Ok(())
    }
}

/// All observers.
#[derive(Default)]
pub struct Observers {
    pub bound: Bound,
    pub one_writer: OneWriter,
    deletes: Deletes,
    strangers: Strangers,
    statuses: Statuses,
    events: Events,
    rollouts: Rollouts,
    /// All that was wrong so far.
    pub violations: Vec<String>,
}

impl Observers {
    fn each(&mut self, tell: impl Fn(&mut dyn Observer) -> Checked) {
        let Self { bound, one_writer, deletes, strangers, statuses, events, rollouts, violations } = self;
        let all: [&mut dyn Observer; 7] = [bound, one_writer, deletes, strangers, statuses, events, rollouts];
        violations.extend(all.into_iter().filter_map(|observer| tell(observer).err()));
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

    /// The sender of a request gets its response.
    pub fn answered(&mut self, entry: &LoggedRequest, body: Option<&Value>, at: Duration) {
        if let Some(body) = body {
            self.deletes.answered(entry, body, at);
        }
        self.events.answered(entry);
    }

    /// A client gets an event of a watch.
    pub fn told(&mut self, client: &str, object: &Value, is_gone: bool, at: Duration) {
        self.deletes.told(client, object, is_gone, at);
    }

    /// A replica was kept from sending, or from hearing.
    pub fn held_up(&mut self) {
        self.events.held_up();
    }
}
