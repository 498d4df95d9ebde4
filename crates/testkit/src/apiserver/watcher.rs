//! A watch is a queue of events. `watch.rs` adds the events, and a task in `feed.rs` sends them to the client.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{
    change::{Change, EventType},
    faults::{WatchMode, WatchScope},
    ice::Ice,
    kinds::Kind,
    list::{Selector, presented},
    object,
    status::Status,
};

/// From a change to the arrival of its event.
pub const LATENCY: Duration = Duration::from_millis(2);

/// How many of its last events a watch can replay.
pub const REPLAYABLE: usize = 200;

/// A message to the task in `feed.rs`.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// An event that arrives no earlier than this instant.
    Event(Instant, Event),
    /// The stream ends like after a timeout.
    End,
    /// The connection breaks.
    Cut,
}

#[derive(Clone, Debug)]
pub struct Event {
    /// ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    pub what: &'static str,
    pub object: Arc<Value>,
    pub metadata_only: bool,
}

impl Event {
    pub fn line(&self) -> String {
        let object = if self.metadata_only { &presented(&self.object, true) } else { &*self.object };
        format!("{{\"type\":\"{}\",\"object\":{object}}}\n", self.what)
    }
}

/// A fault of some watches, and the action that placed it.
pub struct ModeInForce {
    pub scope: WatchScope,
    pub mode: WatchMode,
    pub action: &'static str,
}

#[derive(Default)]
pub struct Watches {
    pub open: BTreeMap<u64, Watcher>,
    pub opened: u64,
    /// The faults in force, also for watches that open later.
    pub modes: Vec<ModeInForce>,
    pub ice: BTreeMap<String, Ice>,
}

pub struct Watcher {
    pub instance: String,
    pub kind: &'static Kind,
    /// Empty for all.
    pub namespace: String,
    pub selector: Selector,
    pub metadata_only: bool,
    pub deliveries: mpsc::UnboundedSender<Delivery>,
    pub sent: VecDeque<Event>,
    pub held: Vec<Event>,
    /// The action that made it half-open.
    pub stalled: Option<&'static str>,
}

impl Watcher {
    pub fn deliver(&self, delivery: Delivery) {
        // Fails only if the task has ended, which also closes the watch.
        let _ = self.deliveries.send(delivery);
    }

    pub fn replay(&self, count: usize) {
        let skip = self.sent.len().saturating_sub(count);
        for event in self.sent.iter().skip(skip) {
            self.deliver(Delivery::Event(Instant::now() + LATENCY, event.clone()));
        }
    }

    pub fn expire(&self) {
        let gone = Status::expired("too old resource version: 1 (2)").to_value();
        let event = Event { what: "ERROR", object: gone.into(), metadata_only: false };
        self.deliver(Delivery::Event(Instant::now(), event));
        self.deliver(Delivery::End);
    }

    pub fn selects(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || object::namespace(object) == self.namespace) && self.selector.matches(object)
    }

    pub fn event(&self, what: &'static str, object: &Arc<Value>) -> Event {
        Event { what, object: Arc::clone(object), metadata_only: self.metadata_only }
    }

    /// The event for a change: ADDED for an object that is selected from now on, DELETED for one that no longer is.
    pub fn sees(&self, change: &Change) -> Option<Event> {
        if *change.kind != *self.kind {
            return None;
        }
        let is_gone = change.event == EventType::Deleted;
        let before = change.before.as_ref().filter(|object| self.selects(object));
        match (before, !is_gone && self.selects(&change.object)) {
            (None, false) => None,
            (None, true) => Some(self.event("ADDED", &change.object)),
            (Some(_), true) => Some(self.event("MODIFIED", &change.object)),
            (Some(_), false) if is_gone => Some(self.event("DELETED", &change.object)),
            // An object that no longer matches the selector: its former state, with the new resourceVersion.
            (Some(before), false) => {
                let mut last = (**before).clone();
                last["metadata"]["resourceVersion"] = change.resource_version.to_string().into();
                Some(self.event("DELETED", &last.into()))
            }
        }
    }
}

/// A watch that was just opened, for the task in `feed.rs`.
pub struct Opened {
    pub id: u64,
    pub client: String,
    pub ice: Ice,
    pub deliveries: mpsc::UnboundedReceiver<Delivery>,
    pub timeout: Duration,
}
