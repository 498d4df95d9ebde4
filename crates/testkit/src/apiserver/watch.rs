//! Opens watches, and adds the events of each change to them. A watch is a queue, which a task in `feed.rs` sends to the client.

use std::collections::VecDeque;

use tokio::{sync::mpsc, time::Instant};

use super::list::{Selector, shown_as};
use super::*;

/// From a change to the arrival of its event.
const LATENCY: Duration = Duration::from_millis(2);

/// How many of its last events a watch can replay.
const REPLAYABLE: usize = 200;

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

impl State {
    pub(super) fn watch(&mut self, request: &ApiRequest) -> Result<Opened, Status> {
        let (sender, deliveries) = mpsc::unbounded_channel();
        let watcher = Watcher {
            instance: request.instance.clone(),
            kind: request.kind,
            namespace: request.namespace.clone(),
            selector: Selector::of(request)?,
            metadata_only: request.metadata_only(),
            deliveries: sender,
            sent: VecDeque::new(),
            held: Vec::new(),
            stalled: None,
        };
        let seconds = request.query("timeoutSeconds").parse();
        let seconds = seconds.map_err(|_| Status::bad_request("this API server needs timeoutSeconds"))?;
        if request.query("allowWatchBookmarks") != "true" {
            return Err(Status::bad_request("this API server needs allowWatchBookmarks"));
        }
        let events = self.first_events(&watcher, request);
        self.watches.opened += 1;
        let id = self.watches.opened;
        self.watches.open.insert(id, watcher);
        for event in events {
            self.send(id, event);
        }
        Ok(Opened {
            id,
            client: request.instance.clone(),
            ice: self.watches.ice.get(&request.instance).cloned().unwrap_or_default(),
            deliveries,
            timeout: Duration::from_secs(seconds),
        })
    }

    /// The first events of a watch: the current objects, or the changes since its resourceVersion.
    fn first_events(&self, watcher: &Watcher, request: &ApiRequest) -> Vec<Event> {
        let version: u64 = request.query("resourceVersion").parse().unwrap_or(0);
        if version > 0 {
            let since = self.history.partition_point(|c| c.resource_version <= version);
            return self.history[since..].iter().filter_map(|change| watcher.sees(change)).collect();
        }
        let present = self.of_kind(watcher.kind, &watcher.namespace);
        present.filter(|object| watcher.selects(object)).map(|object| watcher.event("ADDED", object)).collect()
    }

    pub(super) fn notify_watches(&mut self, change: &Change) {
        let seen = self.watches.open.iter().filter_map(|(id, watcher)| Some((*id, watcher.sees(change)?)));
        for (id, event) in seen.collect::<Vec<_>>() {
            self.send(id, event);
        }
    }

    /// Sends an event, subject to the faults in force.
    fn send(&mut self, id: u64, event: Event) {
        let mut delay = self.latency(LATENCY);
        let mode = self.watch_mode(id);
        let Some(watcher) = self.watches.open.get_mut(&id) else { return };
        if let Some((mode, action)) = mode {
            self.coverage.hit(action);
            match mode {
                WatchMode::Stall => return,
                WatchMode::Hold => return watcher.held.push(event),
                WatchMode::Delay(more) => delay += more,
            }
        }
        watcher.sent.push_back(event.clone());
        if watcher.sent.len() > REPLAYABLE {
            watcher.sent.pop_front();
        }
        watcher.deliver(Delivery::Event(Instant::now() + delay, event));
    }

    /// The fault in force for a watch, and the action that placed it. A half-open connection stays half-open.
    fn watch_mode(&mut self, id: u64) -> Option<(WatchMode, &'static str)> {
        let watcher = self.watches.open.get_mut(&id)?;
        let covers = |mode: &&ModeInForce| mode.scope.covers(&watcher.instance, watcher.kind.plural);
        let mode = self.watches.modes.iter().rev().find(covers).map(|mode| (mode.mode, mode.action));
        if let Some((WatchMode::Stall, action)) = mode {
            watcher.stalled.get_or_insert(action);
        }
        watcher.stalled.map(|action| (WatchMode::Stall, action)).or(mode)
    }

    /// The open watches that a scope covers, in the order in which they opened.
    pub(super) fn watches_in(&self, scope: &WatchScope) -> impl Iterator<Item = (u64, &Watcher)> {
        let open = self.watches.open.iter().map(|(id, watcher)| (*id, watcher));
        open.filter(|(_, watcher)| scope.covers(&watcher.instance, watcher.kind.plural))
    }

    /// Applies the fault modes to the open watches in this scope, and releases events that no mode holds any more.
    pub(super) fn apply_watch_modes(&mut self, scope: &WatchScope) {
        for id in self.watches_in(scope).map(|(id, _)| id).collect::<Vec<_>>() {
            let mode = self.watch_mode(id);
            let Some(watcher) = self.watches.open.get_mut(&id) else { continue };
            if !matches!(mode, Some((WatchMode::Hold, _))) {
                for event in std::mem::take(&mut watcher.held) {
                    self.send(id, event);
                }
            }
        }
    }

    /// Sends a bookmark on a watch, behind all events so far.
    pub(super) fn send_bookmark(&mut self, id: u64) {
        // Without a quorum, the store reports no progress.
        if let Some(watcher) = self.watches.open.get(&id).filter(|_| !self.quorum.is_lost()) {
            let metadata = json!({ "resourceVersion": self.resource_version.to_string(), "creationTimestamp": null });
            let (kind, api_version) = shown_as(watcher.kind, watcher.metadata_only);
            let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
            self.send(id, watcher.event("BOOKMARK", &object.into()));
        }
    }

    pub(super) fn is_stalled(&self, id: u64) -> bool {
        self.watches.open.get(&id).is_some_and(|w| w.stalled.is_some())
    }
}
