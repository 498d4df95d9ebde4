//! The sources that can be watched, and the changes that a watch returns.

use kube::Resource;

use crate::object_key::Scope;

/// A change from a list or a watch.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// All objects as of `version`: a consistent list.
    Snapshot {
        /// The objects.
        items: Vec<T>,
        /// The resourceVersion of the list.
        version: u64,
    },
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted, or is no longer selected.
    Deleted(T),
    /// A bookmark: all changes up to this resourceVersion have been returned.
    Progress(u64),
}

/// A collection to watch.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in logs: `podsets.app.example.com`.
    pub what: &'static str,
    /// The path of its collection.
    pub path: String,
    /// Label selector, if only some are watched.
    pub labels: Option<String>,
    /// Whether to request the metadata of each object only, which saves memory.
    pub metadata_only: bool,
    /// Whether an event with this resourceVersion is older than the last one and is dropped.
    pub is_stale: fn(version: u64, heard: u64) -> bool,
}

impl Source {
    /// All objects of a kind in this scope. `what` is their name in logs.
    pub fn new<K: Resource<DynamicType = ()>>(what: &'static str, scope: &Scope) -> Self {
        let path = K::url_path(&(), scope.as_deref());
        Source { what, path, labels: None, metadata_only: false, is_stale }
    }
}

/// The resourceVersions in a watch only rise, so an event with a lower one is a replay.
pub fn is_stale(version: u64, heard: u64) -> bool {
    version < heard
}
