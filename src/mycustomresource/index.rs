//! The cache: the resources, and the names of the pods that exist. No I/O, no decision.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::Value;

use crate::api::{MyCustomResourceSpec, MyCustomResourceStatus};
use operator_kit::{
    ObjectKey, in_scope,
    interner::Interner,
    listwatch::{Change, Scope, Watched},
    meta::{Meta, Uid},
    pace::Pace,
    queue::{self, Trigger},
    statuses,
};

/// A resource as the API server sends it. Spec and status are decoded later, so that an invalid one does not stop the watch of the others.
#[derive(Deserialize)]
struct ResourceWire {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(from = "ResourceWire")]
pub struct Resource {
    pub key: ObjectKey,
    pub uid: Uid,
    pub version: u64,
    pub generation: i64,
    /// The name of the friend; `None` when the spec cannot be read.
    pub friend: Option<Arc<str>>,
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

#[derive(Debug, Default)]
pub struct Index {
    /// The scopes whose pods have not been listed yet. Until all are listed, a missing friend may exist.
    unlisted: HashSet<Scope>,
    resources: BTreeMap<ObjectKey, (Resource, Pace)>,
    /// The keys of the resources, by the names of their friends.
    by_friend: BTreeSet<(Arc<str>, ObjectKey)>,
    /// Name and namespace of each pod. There may be a hundred thousand.
    pods: BTreeSet<(Arc<str>, Arc<str>)>,
    namespaces: Interner,
}

impl Index {
    pub fn new(scopes: &[Scope]) -> Self {
        Index { unlisted: scopes.iter().cloned().collect(), ..Index::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Applies a change of resources. Returns the resources to reconcile, and why.
    pub fn apply_resources(&mut self, scope: &Scope, change: Change<Resource>) -> Vec<(ObjectKey, Trigger)> {
        match change {
            Change::Snapshot { items, version } => {
                let listed: HashSet<&ObjectKey> = items.iter().map(|resource| &resource.key).collect();
                self.resources
                    .retain(|key, (known, _)| !in_scope(scope, key) || known.version > version || listed.contains(key));
                self.by_friend.retain(|(_, key)| self.resources.contains_key(key));
                items.into_iter().filter_map(|resource| self.upsert(resource)).collect()
            }
            Change::Applied(resource) => self.upsert(resource).into_iter().collect(),
            Change::Deleted(resource) => {
                self.answered(&resource, None);
                Vec::new()
            }
            Change::Progress(_) => Vec::new(),
        }
    }

    /// Applies the answer to a request for this resource; `None`: it is gone. Returns its key and trigger if its spec is new.
    pub fn answered(&mut self, resource: &Resource, found: Option<Resource>) -> Option<(ObjectKey, Trigger)> {
        self.pace(resource)?;
        let Some(found) = found else {
            self.forget(&resource.key);
            return None;
        };
        self.upsert(found).filter(|(_, trigger)| *trigger == queue::SPEC)
    }

    /// Applies a state of a resource, unless a newer one is known. Returns its key and a trigger if its spec or its status is new.
    fn upsert(&mut self, resource: Resource) -> Option<(ObjectKey, Trigger)> {
        let key = resource.key.clone();
        let known = self.resources.get(&key).map(|(known, _)| known);
        if known.is_some_and(|known| known.version > resource.version) {
            return None;
        }
        let known = known.filter(|known| known.uid == resource.uid);
        let has_new_spec = known.is_none_or(|known| known.generation != resource.generation);
        let is_changed = has_new_spec || known.is_some_and(|known| known.status != resource.status);
        let pace = match self.forget(&key) {
            Some((former, pace)) if former.uid == resource.uid => pace,
            _ => Pace::new(1),
        };
        self.by_friend.extend(resource.friend.clone().map(|friend| (friend, key.clone())));
        self.resources.insert(key.clone(), (resource, pace));
        is_changed.then_some((key, if has_new_spec { queue::SPEC } else { queue::STATUS }))
    }

    /// Removes a resource. Returns the resource and its pace.
    fn forget(&mut self, key: &ObjectKey) -> Option<(Resource, Pace)> {
        let (former, pace) = self.resources.remove(key)?;
        if let Some(friend) = &former.friend {
            self.by_friend.remove(&(friend.clone(), key.clone()));
        }
        Some((former, pace))
    }

    /// The pace of this resource's status, unless the resource is gone.
    pub fn pace(&mut self, resource: &Resource) -> Option<&mut Pace> {
        let (known, pace) = self.resources.get_mut(&resource.key)?;
        (known.uid == resource.uid).then_some(pace)
    }

    /// Applies a change of pods. Only their keys matter. Returns the resources to reconcile; after a list, these are all resources.
    pub fn apply_pods(&mut self, scope: &Scope, change: Change<impl Into<ObjectKey>>) -> Vec<ObjectKey> {
        let changed = match change {
            Change::Snapshot { items, .. } => {
                self.unlisted.remove(scope);
                self.pods.retain(|(_, namespace)| scope.as_ref().is_some_and(|scope| scope != namespace));
                for pod in items {
                    self.appeared(pod.into());
                }
                return self.keys();
            }
            Change::Applied(pod) => self.appeared(pod.into()),
            Change::Deleted(pod) => self.vanished(pod.into()),
            Change::Progress(_) => None,
        };
        changed.iter().flat_map(|name| self.waiting_for(name)).cloned().collect()
    }

    /// The resources that wait for a pod of this name.
    fn waiting_for(&self, name: &Arc<str>) -> impl Iterator<Item = &ObjectKey> {
        let from = self.by_friend.range((name.clone(), ObjectKey::new("", ""))..);
        from.take_while(move |(friend, _)| friend == name).map(|(_, key)| key)
    }

    /// Adds a pod. Returns its name if it is the first of this name.
    fn appeared(&mut self, ObjectKey { mut namespace, name }: ObjectKey) -> Option<Arc<str>> {
        let is_first = !self.exists(&name);
        self.namespaces.share(&mut namespace);
        self.pods.insert((name.clone(), namespace));
        is_first.then_some(name)
    }

    /// Removes a pod. Returns its name if it was the last of this name.
    fn vanished(&mut self, ObjectKey { namespace, name }: ObjectKey) -> Option<Arc<str>> {
        let was_known = self.pods.remove(&(name.clone(), namespace));
        (was_known && !self.exists(&name)).then_some(name)
    }

    /// Whether there is a pod of this name in any namespace.
    fn exists(&self, name: &Arc<str>) -> bool {
        let mut from = self.pods.range((name.clone(), Arc::default())..);
        from.next().is_some_and(|(first, _)| first == name)
    }

    /// The resource with this key, and whether its friend exists; inner `None`: not all pods are listed, and none of this name is known.
    pub fn view(&self, key: &ObjectKey) -> Option<(Resource, Option<bool>)> {
        let (resource, _) = self.resources.get(key)?;
        let is_found = resource.friend.as_ref().is_some_and(|friend| self.exists(friend));
        Some((resource.clone(), (is_found || self.unlisted.is_empty()).then_some(is_found)))
    }

    pub fn keys(&self) -> Vec<ObjectKey> {
        self.resources.keys().cloned().collect()
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
    fn a_new_spec_is_queued_once_from_a_response_or_the_watch() {
        let mut index = Index::new(&[]);
        let (old, new) = (resource("one", "joe", 1), resource("one", "jim", 2));
        index.apply_resources(&None, Change::Applied(old.clone()));
        assert_eq!(index.answered(&old, Some(new.clone())), Some((old.key.clone(), queue::SPEC)));
        assert!(index.apply_resources(&None, Change::Applied(new)).is_empty(), "the watch repeats it");
        assert_eq!(index.answered(&old, Some(old.clone())), None, "an older state");
        let former = Resource { uid: "former".into(), ..old.clone() };
        assert!(index.apply_resources(&None, Change::Applied(former)).is_empty(), "it was deleted and created again");
        assert_eq!(index.answered(&old, None), None);
        assert!(index.is_empty());
    }

    #[test]
    fn a_friend_exists_while_any_pod_has_its_name() {
        let mut index = Index::new(&[]);
        let one = ObjectKey::new("default", "one");
        assert_eq!(
            index.apply_resources(&None, Change::Applied(resource("one", "joe", 1))),
            [(one.clone(), queue::SPEC)]
        );
        assert!(index.apply_pods(&None, Change::Applied(pod("a", "jim"))).is_empty());
        assert_eq!(index.apply_pods(&None, Change::Applied(pod("a", "joe"))), std::slice::from_ref(&one));
        assert!(index.apply_pods(&None, Change::Applied(pod("b", "joe"))).is_empty(), "nothing new");
        assert!(index.apply_pods(&None, Change::Deleted(pod("a", "joe"))).is_empty(), "one is left");
        assert_eq!(index.view(&one).unwrap().1, Some(true));
        assert_eq!(index.apply_pods(&None, Change::Deleted(pod("b", "joe"))), std::slice::from_ref(&one));
        assert_eq!(index.view(&one).unwrap().1, Some(false));
    }

    #[test]
    fn no_friend_is_missing_before_all_pods_are_listed() {
        let scopes = [Some("a".into()), Some("b".into())];
        let mut index = Index::new(&scopes);
        assert!(index.is_empty());
        index.apply_resources(&scopes[0], Change::Applied(resource("one", "joe", 1)));
        let one = ObjectKey::new("default", "one");
        let list = |items: Vec<ObjectKey>| Change::Snapshot { items, version: 9 };
        index.apply_pods(&scopes[0], list(Vec::new()));
        assert_eq!(index.view(&one).unwrap().1, None);
        assert_eq!(index.apply_pods(&scopes[1], list(Vec::new())), std::slice::from_ref(&one));
        assert_eq!(index.view(&one).unwrap().1, Some(false));
    }

    #[test]
    fn a_friend_that_is_listed_exists_whatever_is_still_to_be_listed() {
        let scopes = [Some("a".into()), Some("b".into())];
        let mut index = Index::new(&scopes);
        index.apply_resources(&scopes[0], Change::Applied(resource("one", "joe", 1)));
        let one = ObjectKey::new("default", "one");
        let list = Change::Snapshot { items: vec![pod("a", "joe")], version: 9 };
        assert_eq!(index.apply_pods(&scopes[0], list), std::slice::from_ref(&one));
        assert_eq!(index.view(&one).unwrap().1, Some(true));
    }

    #[test]
    fn a_new_spec_looks_for_another_friend() {
        let mut index = Index::new(&[]);
        index.apply_resources(&None, Change::Applied(resource("one", "joe", 1)));
        index.apply_resources(&None, Change::Applied(resource("one", "jim", 2)));
        assert!(index.apply_pods(&None, Change::Applied(pod("a", "joe"))).is_empty());
        assert_eq!(index.apply_pods(&None, Change::Applied(pod("a", "jim"))).len(), 1);
        assert_eq!(index.apply_resources(&None, Change::Applied(resource("one", "joe", 1))), [], "an old state");
        let mut newer = resource("one", "jim", 3);
        newer.generation = index.view(&ObjectKey::new("default", "one")).unwrap().0.generation;
        newer.status.healthy = true;
        let [(_, trigger)] = &index.apply_resources(&None, Change::Applied(newer))[..] else { panic!("one is queued") };
        assert_eq!(*trigger, queue::STATUS, "another client wrote the status");
    }

    #[test]
    fn a_recreated_resource_has_its_own_pace() {
        let (mut index, now) = (Index::new(&[]), jiff::Timestamp::UNIX_EPOCH);
        let (one, mut another) = (resource("one", "joe", 1), resource("one", "joe", 2));
        another.uid = "another".into();
        index.apply_resources(&None, Change::Applied(one.clone()));
        index.pace(&one).unwrap().failed(Some(1), "away", now);
        assert!(index.pace(&one).unwrap().due(Some(1), true, now).is_some());
        index.apply_resources(&None, Change::Deleted(another.clone()));
        assert!(index.pace(&one).is_some(), "the deleted one had another UID");
        let recreated = index.apply_resources(&None, Change::Applied(another.clone()));
        assert_eq!(recreated, [(one.key.clone(), queue::SPEC)]);
        assert!(index.pace(&one).is_none());
        assert_eq!(index.pace(&another).unwrap().due(Some(1), true, now), None);
        index.apply_resources(&None, Change::Deleted(another.clone()));
        assert!(index.pace(&another).is_none());
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
