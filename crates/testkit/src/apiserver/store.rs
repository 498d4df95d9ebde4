//! The store: objects, one resourceVersion for all of them, and the history of every change. All changes go through
//! [`State::put`] and [`State::remove`], which notify the observers, the watches, the kubelet and the garbage collector.

use std::fmt;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::watch::Sender;

use super::{
    clock::Clock,
    faults::{Coverage, Listener},
    jobs::Jobs,
    list::List,
    observers::Observers,
    settings::Admission,
    watch::Watches,
    *,
};

/// The key of an object: resource, namespace, name.
pub type Key = (&'static str, String, String);

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
        let Self { at, resource_version: version, event, kind: Kind { kind, .. }, object, by, .. } = self;
        let (at, namespace, name) = (at.as_secs_f64(), object::namespace(object), object::name(object));
        write!(f, "{at:>10.3}s rv {version} {event:?} {kind} {namespace}/{name} by {by}")?;
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
    pub jobs: Jobs,
    pub admission: Admission,
    /// How many pods were bound to a node so far. Binding is round robin.
    pub bound: u64,
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
            bound: 0,
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
        self.create_object(&NAMESPACES, "", namespace, "user", false).expect("the name of the namespace is valid");
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

    /// Stores an object with the next resourceVersion. One equal to the stored one changes nothing, as in the real server.
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
