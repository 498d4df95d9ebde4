//! A change of an object in the store.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    kinds::{Kind, PODS, PODSETS},
    object,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Change {
    /// Time since the server started.
    pub at: Duration,
    pub resource_version: u64,
    pub event: EventType,
    pub kind: &'static Kind,
    /// The object after the change. For a deletion: its last state, with the new resourceVersion.
    pub object: Arc<Value>,
    pub before: Option<Arc<Value>>,
    /// The author: a client's name, `user`, `kubelet`, `garbage-collector`, ….
    pub by: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = &self.object;
        let (namespace, name) = (object::namespace(object), object::name(object));
        let at = self.at.as_secs_f64();
        let version = self.resource_version;
        write!(f, "{at:>10.3}s rv {version} {:?} {} ", self.event, self.kind.kind)?;
        write!(f, "{namespace}/{name} by {}", self.by)?;
        if *self.kind == PODSETS {
            let (generation, replicas) = (object::generation(object), &object["spec"]["replicas"]);
            write!(f, " (generation {generation}, replicas {replicas}, observed ")?;
            write!(f, "{})", object["status"]["observedGeneration"])?;
        } else if *self.kind == PODS {
            let terminating = if object::is_terminating(object) { ", terminating" } else { "" };
            write!(f, " ({}{terminating})", object::phase(object))?;
        }
        Ok(())
    }
}
