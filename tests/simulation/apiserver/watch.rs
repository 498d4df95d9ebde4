//! Watches: what each sees of a change, in which order and when it arrives. A watch is a queue
//! between the store, which fills it at every change, and a task, which feeds the client's stream.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Weak,
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    Shared,
    faults::{WatchMode, WatchScope},
    kinds::Kind,
    object,
    read::{FieldSelector, presented},
    request::ApiRequest,
    selector::Selector,
    service::Cut,
    status::Status,
    store::{Change, ChangeKind, State},
};

/// How many of its last events a watch can be made to send again.
const REMEMBERED: usize = 200;
/// How long a watch without `timeoutSeconds` lives: the real server draws from 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// What the feeding task gets.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A line that arrives no earlier than at this instant.
    Line(Instant, Bytes),
    /// The stream ends as it does at its time-out.
    End,
    /// The connection breaks.
    Cut,
}

/// All open watches.
#[derive(Default)]
pub struct Watches {
    open: BTreeMap<u64, Watcher>,
    opened: u64,
    /// The faults in force, also for watches that open later.
    pub modes: Vec<(WatchScope, WatchMode)>,
}

struct Watcher {
    instance: String,
    kind: &'static Kind,
    namespace: String,
    selector: Selector,
    fields: FieldSelector,
    metadata_only: bool,
    deliveries: mpsc::UnboundedSender<Delivery>,
    sent: VecDeque<Bytes>,
    held: Vec<Bytes>,
    stalled: bool,
}

/// A watch just opened: what the feeding task needs.
pub struct Opened {
    id: u64,
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    timeout: Duration,
    bookmarks: Option<Duration>,
}

impl Watcher {
    /// What this watch sees of a change: an object that enters the selector is added, one that
    /// leaves it is deleted.
    fn event(&self, change: &Change) -> Option<Bytes> {
        if *change.kind != *self.kind {
            return None;
        }
        let inside = |o: &Value| {
            (self.namespace.is_empty() || object::namespace(o) == self.namespace)
                && self.selector.matches(o)
                && self.fields.matches(o)
        };
        let after = change.change != ChangeKind::Deleted && inside(&change.object);
        let before = change.before.as_deref().is_some_and(inside);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(self.line("ADDED", &change.object)),
            (true, true) => Some(self.line("MODIFIED", &change.object)),
            (true, false) if change.change == ChangeKind::Deleted => Some(self.line("DELETED", &change.object)),
            (true, false) => {
                // It left the selector: its former state, under the new resourceVersion.
                let mut last = change.before.as_deref().cloned().unwrap_or_default();
                let version = change.resource_version.to_string();
                object::meta_mut(&mut last).insert("resourceVersion".to_owned(), version.into());
                Some(self.line("DELETED", &last))
            }
        }
    }

    fn line(&self, kind: &str, object: &Value) -> Bytes {
        line(kind, &presented(object, self.metadata_only))
    }

    fn bookmark(&self, version: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let (kind, api_version) = if self.metadata_only {
            ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned())
        } else {
            (self.kind.kind, self.kind.api_version())
        };
        line(
            "BOOKMARK",
            &json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata }),
        )
    }

    fn deliver(&self, line: Bytes, delay: Duration) {
        // Nobody listens any more: the feeding task will take the watch off.
        let _ = self.deliveries.send(Delivery::Line(Instant::now() + delay, line));
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({ "type": kind, "object": object }).to_string();
    text.push('\n');
    text.into()
}

impl State {
    /// Opens a watch.
    pub fn watch(&mut self, request: &ApiRequest) -> Result<Opened, Status> {
        let (sender, deliveries) = mpsc::unbounded_channel();
        let watcher = Watcher {
            instance: request.instance.clone(),
            kind: request.kind,
            namespace: request.namespace.clone(),
            selector: Selector::parse(request.query("labelSelector")).map_err(Status::bad_request)?,
            fields: FieldSelector::parse(request.query("fieldSelector"))?,
            metadata_only: request.metadata_only(),
            deliveries: sender,
            sent: VecDeque::new(),
            held: Vec::new(),
            stalled: false,
        };
        let lines = self.first_lines(&watcher, request);
        self.watches.opened += 1;
        let id = self.watches.opened;
        self.watches.open.insert(id, watcher);
        for line in lines {
            self.send_line(id, line);
        }
        if self.expired(request) {
            self.deliver_all(&[id], &Delivery::End);
        }
        let seconds = request.query("timeoutSeconds").parse().ok();
        let bookmarks = request.flag("allowWatchBookmarks") || request.flag("sendInitialEvents");
        Ok(Opened {
            id,
            deliveries,
            timeout: seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            bookmarks: bookmarks.then_some(self.settings.bookmark_every),
        })
    }

    fn expired(&self, request: &ApiRequest) -> bool {
        let version: u64 = request.query("resourceVersion").parse().unwrap_or(0);
        version != 0 && version < self.compacted
    }

    /// What a watch begins with: the present, or what happened since its resourceVersion.
    fn first_lines(&self, watcher: &Watcher, request: &ApiRequest) -> Vec<Bytes> {
        if self.expired(request) {
            let asked = request.query("resourceVersion");
            let message = format!("too old resource version: {asked} ({})", self.compacted);
            return vec![line("ERROR", &Status::expired(message).to_value())];
        }
        let version: u64 = request.query("resourceVersion").parse().unwrap_or(0);
        let initial = request.flag("sendInitialEvents");
        if version > 0 && !initial {
            let since = self.history.partition_point(|c| c.resource_version <= version);
            return self.history[since..].iter().filter_map(|c| watcher.event(c)).collect();
        }
        let present = self.of_kind(watcher.kind, &watcher.namespace);
        let mut lines: Vec<Bytes> = present
            .filter(|o| watcher.selector.matches(o) && watcher.fields.matches(o))
            .map(|o| watcher.line("ADDED", o))
            .collect();
        if initial {
            lines.push(watcher.bookmark(self.resource_version, true));
        }
        lines
    }

    /// Called with every change: every watch that sees it gets its event.
    pub fn watch_change(&mut self, change: &Change) {
        let events: Vec<(u64, Bytes)> = self
            .watches
            .open
            .iter()
            .filter_map(|(id, watcher)| Some((*id, watcher.event(change)?)))
            .collect();
        for (id, event) in events {
            self.send_line(id, event);
        }
    }

    /// Sends a line, or does with it what the faults in force say.
    fn send_line(&mut self, id: u64, line: Bytes) {
        let mut delay = self.settings.watch_latency;
        let mode = self.watch_mode(id);
        let Some(watcher) = self.watches.open.get_mut(&id) else {
            return;
        };
        watcher.stalled |= mode == Some(WatchMode::Stall);
        match mode {
            _ if watcher.stalled => return,
            Some(WatchMode::Hold) => return watcher.held.push(line),
            Some(WatchMode::Delay(more)) => delay += more,
            Some(WatchMode::Stall) | None => {}
        }
        watcher.sent.push_back(line.clone());
        if watcher.sent.len() > REMEMBERED {
            watcher.sent.pop_front();
        }
        watcher.deliver(line, delay);
    }

    fn watch_mode(&self, id: u64) -> Option<WatchMode> {
        let watcher = self.watches.open.get(&id)?;
        let covers = |scope: &WatchScope| scope.covers(&watcher.instance, watcher.kind.plural);
        self.watches
            .modes
            .iter()
            .rev()
            .find(|(scope, _)| covers(scope))
            .map(|(_, mode)| *mode)
    }

    /// The open watches that a scope covers, in the order of their opening.
    pub fn watches_in(&self, scope: &WatchScope) -> Vec<u64> {
        let covered = |w: &Watcher| scope.covers(&w.instance, w.kind.plural);
        self.watches
            .open
            .iter()
            .filter(|(_, w)| covered(w))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Puts the fault modes of a scope into force on watches that are open, and lets go what no
    /// mode holds any more.
    pub fn apply_watch_modes(&mut self, scope: &WatchScope) {
        for id in self.watches_in(scope) {
            let mode = self.watch_mode(id);
            let Some(watcher) = self.watches.open.get_mut(&id) else {
                continue;
            };
            watcher.stalled |= mode == Some(WatchMode::Stall);
            if mode != Some(WatchMode::Hold) {
                for line in std::mem::take(&mut watcher.held) {
                    self.send_line(id, line);
                }
            }
        }
    }

    /// Hands the same delivery to several watches.
    pub fn deliver_all(&mut self, ids: &[u64], delivery: &Delivery) {
        for watcher in ids.iter().filter_map(|id| self.watches.open.get(id)) {
            // A closed stream needs no ending.
            let _ = watcher.deliveries.send(delivery.clone());
        }
    }

    /// Sends the last `count` events of these watches once more.
    pub fn replay(&mut self, ids: &[u64], count: usize) {
        for watcher in ids.iter().filter_map(|id| self.watches.open.get(id)) {
            let skip = watcher.sent.len().saturating_sub(count);
            for line in watcher.sent.iter().skip(skip) {
                watcher.deliver(line.clone(), self.settings.watch_latency);
            }
        }
    }

    /// Answers 410 on these watches and ends them.
    pub fn expire_watches(&mut self, ids: &[u64]) {
        let message = format!("too old resource version: 1 ({})", self.resource_version);
        let gone = line("ERROR", &Status::expired(message).to_value());
        self.deliver_all(ids, &Delivery::Line(Instant::now(), gone));
        self.deliver_all(ids, &Delivery::End);
    }

    /// Sends a bookmark on these watches, behind all events so far.
    pub fn send_bookmarks(&mut self, ids: &[u64]) {
        for id in ids {
            let Some(watcher) = self.watches.open.get(id) else {
                continue;
            };
            let bookmark = watcher.bookmark(self.resource_version, false);
            self.send_line(*id, bookmark);
        }
    }

    fn is_stalled(&self, id: u64) -> bool {
        self.watches.open.get(&id).is_some_and(|w| w.stalled)
    }
}

/// Feeds a client's stream from its watch until one of the two ends.
pub async fn feed(server: Weak<Shared>, mut opened: Opened, stream: mpsc::UnboundedSender<Result<Bytes, Cut>>) {
    let end = Instant::now() + opened.timeout;
    let mut bookmarks = interval(opened.bookmarks.unwrap_or(opened.timeout.max(Duration::from_secs(1))));
    bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    bookmarks.tick().await;
    let mut timed_out = false;
    loop {
        let delivery = tokio::select! {
            biased;
            () = stream.closed() => break,
            delivery = opened.deliveries.recv() => delivery,
            _ = bookmarks.tick(), if opened.bookmarks.is_some() => {
                let Some(server) = server.upgrade() else { break };
                server.with(|state| state.send_bookmarks(&[opened.id]));
                continue;
            }
            () = sleep_until(end), if !timed_out => {
                let Some(server) = server.upgrade() else { break };
                // A half-open connection does not even end.
                timed_out = true;
                if server.with(|state| state.is_stalled(opened.id)) { continue; }
                break;
            }
        };
        let sent = match delivery {
            None | Some(Delivery::End) => break,
            Some(Delivery::Cut) => {
                // The client may be gone already; there is no one else to tell.
                let _ = stream.send(Err(Cut));
                break;
            }
            Some(Delivery::Line(at, line)) => {
                sleep_until(at).await;
                stream.send(Ok(line))
            }
        };
        if sent.is_err() {
            break;
        }
    }
    if let Some(server) = server.upgrade() {
        server.with(|state| state.watches.open.remove(&opened.id));
    }
}
