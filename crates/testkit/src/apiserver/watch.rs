//! Opens watches, and adds the events of each change to them.

use std::{collections::VecDeque, time::Duration};

use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use super::{
    change::Change,
    faults::{WatchMode, WatchScope},
    list::{Selector, shown_as},
    request::ApiRequest,
    status::Status,
    store::State,
    watcher::{Delivery, Event, LATENCY, ModeInForce, Opened, REPLAYABLE, Watcher},
};

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

    /// Applies the fault modes to the open watches in this scope, and releases events that no mode
    /// holds any more.
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
