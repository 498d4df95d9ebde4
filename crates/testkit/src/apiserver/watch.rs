//! Watches. Each watch is a queue of events: this file adds the events of each change, and a task in
//! `feed.rs` sends them to the client.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{
    faults::{WatchMode, WatchScope},
    ice::Ice,
    request::ApiRequest,
    status::Status,
    store::{Change, State},
    window::Window,
};

/// From a change to the arrival of its event.
const LATENCY: Duration = Duration::from_millis(2);

/// How many of its last events a watch can replay.
const REPLAYABLE: usize = 200;
/// A message to the task in `feed.rs`.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A line that arrives no earlier than this instant.
    Line(Instant, Line),
    /// The stream ends like after a timeout.
    End,
    /// The connection breaks.
    Cut,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub bytes: Bytes,
    /// The object of the event, unless it is metadata alone, and whether the object is gone or no longer selected.
    pub object: Option<(Arc<Value>, bool)>,
}

impl From<Bytes> for Line {
    fn from(bytes: Bytes) -> Self {
        Line { bytes, object: None }
    }
}

/// A fault of some watches, and the action that placed it.
pub struct ModeInForce {
    pub scope: WatchScope,
    pub mode: WatchMode,
    pub action: &'static str,
}

/// All open watches.
#[derive(Default)]
pub struct Watches {
    open: BTreeMap<u64, Watcher>,
    opened: u64,
    /// The faults in force, also for watches that open later.
    pub modes: Vec<ModeInForce>,
    /// The freezes of clients.
    pub ice: BTreeMap<String, Ice>,
}

struct Watcher {
    instance: String,
    window: Window,
    deliveries: mpsc::UnboundedSender<Delivery>,
    sent: VecDeque<Line>,
    held: Vec<Line>,
    /// The action that made it half-open.
    stalled: Option<&'static str>,
}

impl Watcher {
    fn deliver(&self, line: Line, delay: Duration) {
        // Fails only if the task in `feed.rs` has ended, which also closes the watch.
        let _ = self.deliveries.send(Delivery::Line(Instant::now() + delay, line));
    }
}

/// A watch that was just opened, for the task in `feed.rs`.
pub struct Opened {
    pub id: u64,
    pub client: String,
    pub ice: Ice,
    /// The queue of events.
    pub deliveries: mpsc::UnboundedReceiver<Delivery>,
    pub timeout: Duration,
}

impl State {
    pub fn watch(&mut self, request: &ApiRequest) -> Result<Opened, Status> {
        let (sender, deliveries) = mpsc::unbounded_channel();
        let window = Window::of(request)?;
        let seconds = request.query("timeoutSeconds").parse();
        let seconds = seconds.map_err(|_| Status::bad_request("this API server needs timeoutSeconds"))?;
        if request.query("allowWatchBookmarks") != "true" {
            return Err(Status::bad_request("this API server needs allowWatchBookmarks"));
        }
        let lines = self.first_lines(&window, request);
        let watcher = Watcher {
            instance: request.instance.clone(),
            window,
            deliveries: sender,
            sent: VecDeque::new(),
            held: Vec::new(),
            stalled: None,
        };
        self.watches.opened += 1;
        let id = self.watches.opened;
        self.watches.open.insert(id, watcher);
        for line in lines {
            self.send_line(id, line);
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
    fn first_lines(&self, window: &Window, request: &ApiRequest) -> Vec<Line> {
        let version: u64 = request.query("resourceVersion").parse().unwrap_or(0);
        if version > 0 {
            let since = self.history.partition_point(|c| c.resource_version <= version);
            return self.history[since..].iter().filter_map(|c| Some(window.sight(c)?.line(c))).collect();
        }
        let present = self.of_kind(window.kind, &window.namespace);
        present.filter(|o| window.contains(o)).map(|o| window.present(o)).collect()
    }

    /// Sends the event of a change to each watch that sees it.
    pub fn watch_change(&mut self, change: &Change) {
        let seen = self.watches.open.iter().filter_map(|(id, watcher)| Some((*id, watcher.window.sight(change)?)));
        let mut lines = BTreeMap::new();
        for (id, sight) in seen.collect::<Vec<_>>() {
            let line = lines.entry(sight).or_insert_with(|| sight.line(change)).clone();
            self.send_line(id, line);
        }
    }

    /// Sends a line, subject to the faults in force.
    fn send_line(&mut self, id: u64, line: Line) {
        let mut delay = self.latency(LATENCY);
        let mode = self.watch_mode(id);
        let Some(watcher) = self.watches.open.get_mut(&id) else {
            return;
        };
        if let (Some((WatchMode::Stall, action)), None) = (mode, watcher.stalled) {
            watcher.stalled = Some(action);
        }
        if let Some(action) = watcher.stalled.or(mode.map(|(_, action)| action)) {
            self.coverage.hit(action);
        }
        match mode {
            _ if watcher.stalled.is_some() => return,
            Some((WatchMode::Hold, _)) => return watcher.held.push(line),
            Some((WatchMode::Delay(more), _)) => delay += more,
            Some((WatchMode::Stall, _)) | None => {}
        }
        watcher.sent.push_back(line.clone());
        if watcher.sent.len() > REPLAYABLE {
            watcher.sent.pop_front();
        }
        watcher.deliver(line, delay);
    }

    fn watch_mode(&self, id: u64) -> Option<(WatchMode, &'static str)> {
        let watcher = self.watches.open.get(&id)?;
        let covers = |scope: &WatchScope| scope.covers(&watcher.instance, watcher.window.kind.plural);
        self.watches.modes.iter().rev().find(|mode| covers(&mode.scope)).map(|mode| (mode.mode, mode.action))
    }

    /// The open watches that a scope covers, in the order in which they opened.
    pub fn watches_in(&self, scope: &WatchScope) -> Vec<u64> {
        let covered = |w: &Watcher| scope.covers(&w.instance, w.window.kind.plural);
        self.watches.open.iter().filter(|(_, w)| covered(w)).map(|(id, _)| *id).collect()
    }

    /// Applies the fault modes to the open watches in this scope, and releases events that no mode
    /// holds any more.
    pub fn apply_watch_modes(&mut self, scope: &WatchScope) {
        for id in self.watches_in(scope) {
            let mode = self.watch_mode(id);
            let Some(watcher) = self.watches.open.get_mut(&id) else {
                continue;
            };
            if let (Some((WatchMode::Stall, action)), None) = (mode, watcher.stalled) {
                watcher.stalled = Some(action);
            }
            if !matches!(mode, Some((WatchMode::Hold, _))) {
                for line in std::mem::take(&mut watcher.held) {
                    self.send_line(id, line);
                }
            }
        }
    }

    /// Sends the same delivery to several watches.
    pub fn deliver_all(&mut self, ids: &[u64], delivery: &Delivery) {
        for watcher in ids.iter().filter_map(|id| self.watches.open.get(id)) {
            // Fails only if the stream is closed.
            let _ = watcher.deliveries.send(delivery.clone());
        }
    }

    /// Sends the last `count` events of these watches again.
    pub fn replay(&mut self, ids: &[u64], count: usize) {
        for watcher in ids.iter().filter_map(|id| self.watches.open.get(id)) {
            let skip = watcher.sent.len().saturating_sub(count);
            for line in watcher.sent.iter().skip(skip) {
                watcher.deliver(line.clone(), LATENCY);
            }
        }
    }

    /// Answers 410 on these watches and ends them.
    pub fn expire_watches(&mut self, ids: &[u64]) {
        let message = format!("too old resource version: 1 ({})", self.resource_version);
        let gone = Status::expired(message);
        for watcher in ids.iter().filter_map(|id| self.watches.open.get(id)) {
            watcher.deliver(watcher.window.error(&gone).into(), Duration::ZERO);
        }
        self.deliver_all(ids, &Delivery::End);
    }

    /// Sends a bookmark on a watch, behind all events so far.
    pub fn send_bookmark(&mut self, id: u64) {
        // Without a quorum, the store reports no progress.
        if let Some(watcher) = self.watches.open.get(&id).filter(|_| !self.quorum.is_lost()) {
            let bookmark = watcher.window.bookmark(self.resource_version);
            self.send_line(id, bookmark.into());
        }
    }

    /// Whether a watch's connection is half-open.
    pub fn is_stalled(&self, id: u64) -> bool {
        self.watches.open.get(&id).is_some_and(|w| w.stalled.is_some())
    }

    pub fn close_watch(&mut self, id: u64) {
        self.watches.open.remove(&id);
    }
}
