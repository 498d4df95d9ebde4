//! What one watch sees: the objects, their form, and the event for a change.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    object,
    read::{Selector, presented, shown_as},
    request::ApiRequest,
    status::Status,
    store::{Change, ChangeKind},
    watch::Line,
};

/// The part of the store that a watch looks at.
#[derive(Clone, Debug)]
pub struct Window {
    /// The resource.
    pub kind: &'static Kind,
    /// Its namespace; empty for all.
    pub namespace: String,
    selector: Selector,
    metadata_only: bool,
}

impl Window {
    /// The window of a watch request.
    pub fn of(request: &ApiRequest) -> Result<Self, Status> {
        Ok(Self {
            kind: request.kind,
            namespace: request.namespace.clone(),
            selector: Selector::of(request)?,
            metadata_only: request.metadata_only(),
        })
    }

    /// Whether an object of this kind is in the window.
    pub fn contains(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || object::namespace(object) == self.namespace) && self.selector.matches(object)
    }

    /// The event for a change: ADDED for an object that enters the window, DELETED for one that leaves it.
    pub fn sight(&self, change: &Change) -> Option<Sight> {
        if *change.kind != *self.kind {
            return None;
        }
        let gone = change.change == ChangeKind::Deleted;
        let before = change.before.as_deref().is_some_and(|o| self.contains(o));
        let after = !gone && self.contains(&change.object);
        let (event, is_former) = match (before, after) {
            (false, false) => return None,
            (false, true) => ("ADDED", false),
            (true, true) => ("MODIFIED", false),
            // An object that no longer matches the selector: its former state, with the new resourceVersion.
            (true, false) => ("DELETED", !gone),
        };
        Some(Sight { event, is_former, metadata_only: self.metadata_only })
    }

    /// The event for an object that exists when the watch opens.
    pub fn present(&self, object: &Arc<Value>) -> Line {
        event_line("ADDED", object, self.metadata_only)
    }

    /// An error in the middle of a watch's stream.
    pub fn error(&self, status: &Status) -> Bytes {
        line("ERROR", &status.to_value(), false)
    }

    /// A bookmark.
    pub fn bookmark(&self, version: u64) -> Bytes {
        let metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
        let (kind, api_version) = shown_as(self.kind, self.metadata_only);
        let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
        line("BOOKMARK", &object, false)
    }
}

/// How a watch sees a change. Watches that see it alike get the same line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Sight {
    event: &'static str,
    is_former: bool,
    metadata_only: bool,
}

impl Sight {
    /// The line for the change.
    pub fn line(&self, change: &Change) -> Line {
        if !self.is_former {
            return event_line(self.event, &change.object, self.metadata_only);
        }
        let mut last = change.before.as_deref().cloned().unwrap_or_default();
        let version = change.resource_version.to_string();
        object::meta_mut(&mut last).insert("resourceVersion".to_owned(), version.into());
        event_line(self.event, &Arc::new(last), self.metadata_only)
    }
}

fn event_line(event: &str, object: &Arc<Value>, metadata_only: bool) -> Line {
    let whole = (!metadata_only).then(|| (Arc::clone(object), event == "DELETED"));
    Line { bytes: line(event, object, metadata_only), object: whole }
}

fn line(event: &str, object: &Value, metadata_only: bool) -> Bytes {
    let object = if metadata_only { &presented(object, true) } else { object };
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n").into()
}
