//! The store: objects, one resourceVersion for all of them, and the history of every change.
//!
//! All changes go through [`State::put`] and [`State::remove`], which notify the observers, the watches,
//! the kubelet and the garbage collector. The store knows no requests and no verbs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::watch::Sender;

use super::{
    change::{Change, EventType},
    clock::Clock,
    faults::{Coverage, Listener, Rule},
    jobs::Jobs,
    kinds::{Kind, NAMESPACES},
    list::List,
    log::LoggedRequest,
    object,
    observers::Observers,
    quorum::Quorum,
    settings::{Admission, Kubelet, Settings},
    watcher::Watches,
};

/// The key of an object: resource, namespace, name.
pub type Key = (&'static str, String, String);

/// A step of one of the cluster's controllers. It gets the UID of its object (or the name of its namespace): an object that
/// is recreated under the same name is a different one.
type Job = Box<dyn FnOnce(&mut State, &str) + Send>;

pub struct State {
    pub clock: Clock,
    /// The source of all randomness, from the seed of the test.
    pub random: StdRng,
    pub settings: Settings,
    pub listener: Listener,
    pub objects: BTreeMap<Key, Arc<Value>>,
    pub keys_by_uid: BTreeMap<String, Key>,
    pub resource_version: u64,
    pub history: Vec<Change>,
    pub lists: Vec<List>,
    pub changes: Sender<()>,
    pub watches: Watches,
    /// The rules in force, in the order in which the test added them.
    pub faults: Vec<Arc<Rule>>,
    pub coverage: Coverage,
    pub quorum: Quorum,
    pub log: Vec<LoggedRequest>,
    pub jobs: Jobs<Job>,
    pub admission: Admission,
    pub kubelet: Kubelet,
    pub observers: Observers,
}

impl State {
    /// An empty cluster with the namespaces that every cluster has.
    pub(super) fn new(seed: u64) -> Self {
        let mut state = Self {
            clock: Clock::start(),
            random: StdRng::seed_from_u64(seed),
            settings: Settings::default(),
            listener: Listener::default(),
            objects: BTreeMap::new(),
            keys_by_uid: BTreeMap::new(),
            // Not 0: to a client, resourceVersion 0 means "any".
            resource_version: 1,
            history: Vec::new(),
            lists: Vec::new(),
            changes: Sender::new(()),
            watches: Watches::default(),
            faults: Vec::new(),
            coverage: Coverage::default(),
            quorum: Quorum::default(),
            log: Vec::new(),
            jobs: Jobs::default(),
            admission: Admission::default(),
            kubelet: Kubelet::default(),
            observers: Observers::default(),
        };
        for namespace in ["default", "kube-system"] {
            state.ensure_namespace(namespace);
        }
        state
    }

    pub(super) fn ensure_namespace(&mut self, name: &str) {
        if self.get(&NAMESPACES, "", name).is_some() {
            return;
        }
        let namespace = json!({ "metadata": { "name": name } });
        if let Err(status) = self.create_object(&NAMESPACES, "", namespace, "user", false) {
            panic!("the namespace was rejected: {}", status.message);
        }
    }

    /// Queues a job for this UID.
    pub(super) fn after(&mut self, delay: Duration, uid: &str, job: impl FnOnce(&mut Self, &str) + Send + 'static) {
        self.jobs.push(delay, uid, Box::new(job));
    }

    pub(super) fn latency(&mut self, plain: Duration) -> Duration {
        let most = u64::try_from(self.settings.jitter.as_micros()).unwrap_or(u64::MAX);
        if most == 0 {
            return plain;
        }
        plain + Duration::from_micros(self.random.random_range(0..most))
    }

    pub(super) fn get(&self, kind: &'static Kind, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&key(kind, namespace, name))
    }

    /// The stored object; panics if there is none.
    pub(super) fn expect(&self, kind: &'static Kind, namespace: &str, name: &str) -> Arc<Value> {
        let stored = self.get(kind, namespace, name).cloned();
        stored.unwrap_or_else(|| panic!("there is no {} {namespace}/{name}", kind.kind))
    }

    /// All objects of a kind, in a namespace or (if empty) in all namespaces, in the order of their keys.
    pub(super) fn of_kind(&self, kind: &'static Kind, namespace: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.objects
            .range(key(kind, namespace, "")..)
            .take_while(move |(k, _)| k.0 == kind.plural)
            .filter(move |(k, _)| namespace.is_empty() || k.1 == namespace)
            .map(|(_, object)| object)
    }

    /// The object with this UID, whatever its kind.
    pub(super) fn by_uid(&self, uid: &str) -> Option<&Arc<Value>> {
        self.objects.get(self.keys_by_uid.get(uid)?)
    }

    /// Stores an object with the next resourceVersion. An object equal to the stored one changes
    /// nothing, as in the real server.
    pub(super) fn put(&mut self, mut object: Value, by: &str) -> Arc<Value> {
        let key = key(Kind::of(&object), object::namespace(&object), object::name(&object));
        let before = self.objects.get(&key).cloned();
        if let Some(stored) = &before {
            object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            if **stored == object {
                return Arc::clone(stored);
            }
        }
        let object = self.version(object);
        self.keys_by_uid.insert(object::uid(&object).to_owned(), key.clone());
        self.objects.insert(key, Arc::clone(&object));
        let event = if before.is_some() { EventType::Modified } else { EventType::Added };
        self.record(event, Arc::clone(&object), before, by);
        object
    }

    /// Removes an object from the store. Its last state gets the resourceVersion of the deletion.
    pub(super) fn remove(&mut self, stored: &Value, by: &str) -> Arc<Value> {
        let key = key(Kind::of(stored), object::namespace(stored), object::name(stored));
        let before = self.objects.remove(&key);
        let last = self.version(stored.clone());
        self.keys_by_uid.remove(object::uid(stored));
        self.record(EventType::Deleted, Arc::clone(&last), before, by);
        last
    }

    fn version(&mut self, mut object: Value) -> Arc<Value> {
        self.resource_version += 1;
        object["metadata"]["resourceVersion"] = self.resource_version.to_string().into();
        Arc::new(object)
    }

    fn record(&mut self, event: EventType, object: Arc<Value>, before: Option<Arc<Value>>, by: &str) {
        let change = Change {
            at: self.clock.elapsed(),
            resource_version: self.resource_version,
            event,
            kind: Kind::of(&object),
            object,
            before,
            by: by.to_owned(),
        };
        self.observers.changed(&change);
        self.notify_watches(&change);
        self.queue_pod_jobs(&change);
        self.queue_gc_jobs(&change);
        self.history.push(change);
        self.changes.send_replace(());
    }
}

pub fn key(kind: &'static Kind, namespace: &str, name: &str) -> Key {
    (kind.plural, namespace.to_owned(), name.to_owned())
}
