//! What this controller knows: its resources, and which pod names exist. No I/O, no decision.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::pace::Writes;
use crate::api::{MyCustomResourceSpec, MyCustomResourceStatus};
use operator_kit::{ObjectKey, in_scope, interner::Interner, listwatch::{Change, Scope, Watched}, meta::{Meta, Uid}, queue::{self, Trigger}, statuses::{self, Writing}};

/// A resource as the API server sends it. Spec and status are decoded later, so that one that does not decode stops no
/// other.
#[derive(Deserialize)]
struct ResourceWire {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// A MyCustomResource.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(from = "ResourceWire")]
pub struct Resource {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Uid,
    /// resourceVersion.
    pub version: u64,
    /// Generation of the spec.
    pub generation: i64,
    /// The name of the friend; `None` when the spec cannot be read.
    pub friend: Option<Arc<str>>,
    /// The stored status.
    pub status: MyCustomResourceStatus,
}

impl Watched for Resource {
    fn version(&self) -> u64 {
        self.version
    }
}

impl From<ResourceWire> for Resource {
    fn from(wire: ResourceWire) -> Self {
        let spec = serde_json::from_value::<MyCustomResourceSpec>(wire.spec);
        Resource {
            key: wire.metadata.key(),
            version: wire.metadata.version(),
            generation: wire.metadata.generation,
            friend: spec.ok().map(|spec| spec.name.into()),
            status: statuses::stored(wire.status),
            uid: wire.metadata.uid.into(),
        }
    }
}

/// Resources by name and by friend, and the names of pods.
#[derive(Debug)]
pub struct Index {
    /// The scopes whose pods have not been listed yet: until none is left nobody can say that a friend is missing.
    unlisted: HashSet<Scope>,
    resources: HashMap<ObjectKey, Resource>,
    seekers: HashMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// The pods that exist: name and namespace. There may be a hundred thousand.
    pods: BTreeSet<(Arc<str>, Arc<str>)>,
    namespaces: Interner,
    /// Statuses that are being written.
    pub writing: Writing<MyCustomResourceStatus>,
    /// The last writes of statuses.
    writes: Writes,
}

impl Index {
    /// Nothing is known yet of these scopes.
    pub fn new(scopes: &[Scope]) -> Self {
        Index {
            unlisted: scopes.iter().cloned().collect(),
            resources: HashMap::new(),
            seekers: HashMap::new(),
            pods: BTreeSet::new(),
            namespaces: Interner::default(),
            writing: Writing::default(),
            writes: Writes::default(),
        }
    }

    /// Whether there is nobody to look for a friend.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Takes in what the watch of resources says. Returns the resources to reconcile, and why.
    pub fn apply_resources(&mut self, scope: &Scope, change: Change<Resource>) -> Vec<(ObjectKey, Trigger)> {
        match change {
            Change::Snapshot { items, version } => {
                let listed: HashSet<&ObjectKey> = items.iter().map(|resource| &resource.key).collect();
                let is_gone = |resource: &&Resource| {
                    in_scope(scope, &resource.key) && resource.version <= version && !listed.contains(&resource.key)
                };
                let gone: Vec<_> = self.resources.values().filter(is_gone).map(|gone| gone.key.clone()).collect();
                for key in gone {
                    self.remove(&key);
                }
                items.into_iter().filter_map(|resource| self.upsert(resource)).collect()
            }
            Change::Applied(resource) => self.upsert(resource).into_iter().collect(),
            Change::Deleted(resource) => {
                if self.resources.get(&resource.key).is_some_and(|known| known.uid == resource.uid) {
                    self.remove(&resource.key);
                }
                Vec::new()
            }
            Change::Progress(_) => Vec::new(),
        }
    }

    /// A request for this resource was answered with this state of it; `None`: it is gone. Returns the resource to reconcile, and why.
    pub fn answered(&mut self, resource: &Resource, found: Option<Resource>) -> Option<(ObjectKey, Trigger)> {
        if self.resources.get(&resource.key).is_none_or(|known| known.uid != resource.uid) {
            return None;
        }
        if found.is_none() {
            self.remove(&resource.key);
        }
        self.upsert(found?)
    }

    /// Takes in a state of a resource, unless a newer one is known. Returns its key if its spec is new, or its status one
    /// that somebody else wrote, perhaps a former leader who knew less.
    fn upsert(&mut self, resource: Resource) -> Option<(ObjectKey, Trigger)> {
        let key = resource.key.clone();
        let former = self.resources.get(&key);
        if former.is_some_and(|former| former.version > resource.version) {
            return None;
        }
        let is_new =
            former.is_none_or(|former| (&former.uid, former.generation) != (&resource.uid, resource.generation));
        let is_strange =
            former.is_some_and(|former| self.writing.is_strange(&resource.uid, &former.status, &resource.status));
        if is_new {
            self.remove(&key);
            if let Some(friend) = &resource.friend {
                self.seekers.entry(friend.clone()).or_default().insert(key.clone());
            }
        }
        self.resources.insert(key.clone(), resource);
        match (is_new, is_strange) {
            (true, _) => Some((key, queue::SPEC)),
            (false, true) => Some((key, queue::STATUS)),
            (false, false) => None,
        }
    }

    /// When the status of this resource may be written again; `None`: at once.
    pub fn next_write(&self, resource: &Resource) -> Option<Timestamp> {
        self.writes.next(resource)
    }

    /// The status of this resource was written.
    pub fn note_success(&mut self, resource: &Resource, at: Timestamp) {
        if self.resources.contains_key(&resource.key) {
            self.writes.succeeded(resource, at);
        }
    }

    /// The status of this resource may not have been written, for this reason. Returns how long to wait, and whether the reason is
    /// news.
    pub fn note_failure(&mut self, resource: &Resource, error: &str, at: Timestamp) -> (SignedDuration, bool) {
        let is_known = self.resources.contains_key(&resource.key);
        let mut forgotten = Writes::default();
        let writes = if is_known { &mut self.writes } else { &mut forgotten };
        writes.failed(resource, error, at)
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.writes.forget(key);
        let Some(friend) = self.resources.remove(key).and_then(|resource| resource.friend) else {
            return;
        };
        if let Some(seekers) = self.seekers.get_mut(&friend) {
            seekers.remove(key);
            if seekers.is_empty() {
                self.seekers.remove(&friend);
            }
        }
    }

    /// Takes in what the watch of pods says, each pod as its key. Returns the resources to reconcile.
    pub fn apply_pods(&mut self, scope: &Scope, change: Change<ObjectKey>) -> BTreeSet<ObjectKey> {
        let mut changed = BTreeSet::new();
        match change {
            Change::Snapshot { items, .. } => {
                if self.unlisted.remove(scope) && self.unlisted.is_empty() {
                    changed.extend(self.seekers.keys().cloned());
                }
                let listed: HashSet<ObjectKey> = items.into_iter().collect();
                for key in self.pods_in(scope).into_iter().filter(|key| !listed.contains(key)) {
                    self.vanished(&key, &mut changed);
                }
                for key in listed {
                    self.appeared(key, &mut changed);
                }
            }
            Change::Applied(key) => self.appeared(key, &mut changed),
            Change::Deleted(key) => self.vanished(&key, &mut changed),
            Change::Progress(_) => {}
        }
        changed.iter().filter_map(|name| self.seekers.get(name)).flatten().cloned().collect()
    }

    fn appeared(&mut self, pod: ObjectKey, changed: &mut BTreeSet<Arc<str>>) {
        let ObjectKey { mut namespace, name } = pod;
        if !self.exists(&name) {
            changed.insert(name.clone());
        }
        self.namespaces.share(&mut namespace);
        self.pods.insert((name, namespace));
    }

    fn vanished(&mut self, pod: &ObjectKey, changed: &mut BTreeSet<Arc<str>>) {
        let is_known = self.pods.remove(&(pod.name.clone(), pod.namespace.clone()));
        if is_known && !self.exists(&pod.name) {
            changed.insert(pod.name.clone());
        }
    }

    /// Whether there is a pod of this name, in whatever namespace.
    fn exists(&self, name: &Arc<str>) -> bool {
        let mut from = self.pods.range((name.clone(), Arc::default())..);
        from.next().is_some_and(|(first, _)| first == name)
    }

    fn pods_in(&self, scope: &Scope) -> Vec<ObjectKey> {
        let all = self.pods.iter().map(|(name, namespace)| ObjectKey::new(namespace.clone(), name.clone()));
        all.filter(|key| in_scope(scope, key)).collect()
    }

    /// The resource of this name, and whether its friend exists; `None`: the pods have not been listed yet.
    pub fn view(&self, key: &ObjectKey) -> Option<(Resource, Option<bool>)> {
        let resource = self.resources.get(key)?.clone();
        let is_found = resource.friend.as_ref().is_some_and(|friend| self.exists(friend));
        Some((resource, self.unlisted.is_empty().then_some(is_found)))
    }

    /// The names of all resources.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<_> = self.resources.keys().cloned().collect();
        keys.sort();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, friend: &str, generation: i64) -> Resource {
        Resource {
            key: ObjectKey::new("default", name),
            uid: name.into(),
            version: 10 + u64::try_from(generation).unwrap(),
            generation,
            friend: Some(friend.into()),
            status: MyCustomResourceStatus::default(),
        }
    }

    fn pod(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(namespace, name)
    }

    #[test]
    fn a_new_spec_is_news_whoever_brings_it() {
        let mut index = Index::new(&[]);
        let (old, new) = (resource("one", "joe", 1), resource("one", "jim", 2));
        index.apply_resources(&None, Change::Applied(old.clone()));
        assert_eq!(index.answered(&old, Some(new.clone())), Some((old.key.clone(), queue::SPEC)));
        assert!(index.apply_resources(&None, Change::Applied(new)).is_empty(), "the watch says it once more");
        assert_eq!(index.answered(&old, Some(old.clone())), None, "an older state");
        assert_eq!(index.answered(&old, None), None);
        assert!(index.is_empty());
    }

    #[test]
    fn a_friend_exists_as_long_as_one_pod_of_the_name_does() {
        let mut index = Index::new(&[]);
        let one = ObjectKey::new("default", "one");
        assert_eq!(
            index.apply_resources(&None, Change::Applied(resource("one", "joe", 1))),
            [(one.clone(), queue::SPEC)]
        );
        assert!(index.apply_pods(&None, Change::Applied(pod("a", "jim"))).is_empty());
        assert_eq!(index.apply_pods(&None, Change::Applied(pod("a", "joe"))), BTreeSet::from([one.clone()]));
        assert!(index.apply_pods(&None, Change::Applied(pod("b", "joe"))).is_empty(), "nothing new");
        assert!(index.apply_pods(&None, Change::Deleted(pod("a", "joe"))).is_empty(), "one is left");
        assert_eq!(index.view(&one).unwrap().1, Some(true));
        assert_eq!(index.apply_pods(&None, Change::Deleted(pod("b", "joe"))), BTreeSet::from([one.clone()]));
        assert_eq!(index.view(&one).unwrap().1, Some(false));
    }

    #[test]
    fn nobody_is_missing_before_all_pods_were_listed() {
        let scopes = [Some("a".into()), Some("b".into())];
        let mut index = Index::new(&scopes);
        assert!(index.is_empty());
        index.apply_resources(&scopes[0], Change::Applied(resource("one", "joe", 1)));
        let one = ObjectKey::new("default", "one");
        let list = |items| Change::Snapshot { items, version: 9 };
        assert!(index.apply_pods(&scopes[0], list(Vec::new())).is_empty());
        assert_eq!(index.view(&one).unwrap().1, None);
        assert_eq!(index.apply_pods(&scopes[1], list(Vec::new())), BTreeSet::from([one.clone()]));
        assert_eq!(index.view(&one).unwrap().1, Some(false));
        assert!(index.apply_pods(&scopes[1], list(Vec::new())).is_empty(), "nothing new");
    }

    #[test]
    fn a_new_spec_looks_for_another_friend() {
        let mut index = Index::new(&[]);
        index.apply_resources(&None, Change::Applied(resource("one", "joe", 1)));
        index.apply_resources(&None, Change::Applied(resource("one", "jim", 2)));
        assert!(index.apply_pods(&None, Change::Applied(pod("a", "joe"))).is_empty());
        assert_eq!(index.apply_pods(&None, Change::Applied(pod("a", "jim"))).len(), 1);
        assert_eq!(index.apply_resources(&None, Change::Applied(resource("one", "joe", 1))), [], "an old state");
        let mut told = resource("one", "jim", 3);
        told.generation = index.view(&ObjectKey::new("default", "one")).unwrap().0.generation;
        told.status.healthy = true;
        let [(_, trigger)] = &index.apply_resources(&None, Change::Applied(told))[..] else { panic!("one is woken") };
        assert_eq!(*trigger, queue::STATUS, "somebody else wrote it");
    }

    #[test]
    fn the_writes_of_a_resource_are_forgotten_with_it() {
        let (mut index, now) = (Index::new(&[]), Timestamp::UNIX_EPOCH);
        let one = resource("one", "joe", 1);
        index.apply_resources(&None, Change::Applied(one.clone()));
        index.note_failure(&one, "away", now);
        assert!(index.next_write(&one).is_some());
        index.apply_resources(&None, Change::Deleted(resource("one", "joe", 2)));
        index.note_failure(&one, "away", now);
        index.note_success(&one, now);
        assert_eq!(index.next_write(&one), None);
    }

    #[test]
    fn a_list_replaces_what_was_known_of_its_namespace() {
        let mut index = Index::new(&[]);
        index.apply_resources(&None, Change::Applied(resource("one", "joe", 1)));
        let scope = Some("a".into());
        index.apply_pods(&scope, Change::Applied(pod("a", "joe")));
        index.apply_pods(&Some("b".into()), Change::Applied(pod("b", "jim")));
        let woken = index.apply_pods(&scope, Change::Snapshot { items: vec![pod("a", "jane")], version: 9 });
        assert_eq!(woken.len(), 1, "joe is gone");
        assert!(index.exists(&"jim".into()), "another namespace is untouched");
    }

    #[test]
    fn a_resource_that_does_not_decode_has_no_friend() {
        let resource = serde_json::json!({ "metadata": { "name": "x", "namespace": "d" }, "spec": { "name": 7 } });
        assert_eq!(serde_json::from_value::<Resource>(resource).unwrap().friend, None);
    }
}
