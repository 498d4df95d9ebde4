//! The objects of one kind as a watch shows them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::Resource;
use serde::Serialize;
use serde_json::json;
use testkit::watches::{News, Stream, WatchedBound};

use super::follow::Step;
use crate::types::{controller, uid, version};

/// The objects by UID and by owner.
pub struct Objects<K> {
    by_uid: BTreeMap<String, K>,
    by_owner: BTreeMap<String, BTreeSet<String>>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_uid: BTreeMap::new(), by_owner: BTreeMap::new() }
    }
}

impl<K: Resource + Serialize> Objects<K> {
    pub fn all(&self) -> impl Iterator<Item = &K> {
        self.by_uid.values()
    }

    pub fn named(&self, name: &str) -> Option<&K> {
        self.all().find(|object| object.meta().name.as_deref() == Some(name))
    }

    /// Those whose controller has this UID.
    pub fn owned_by(&self, owner: &str) -> impl Iterator<Item = &K> {
        self.by_owner.get(owner).into_iter().flatten().filter_map(|uid| self.by_uid.get(uid))
    }

    /// Whether they are the same as in a list.
    pub fn are(&self, listed: &[K]) -> bool {
        let known = |object: &K| self.by_uid.get(&uid(object.meta())).map(|known| version(known.meta()));
        self.by_uid.len() == listed.len() && listed.iter().all(|object| known(object) == Some(version(object.meta())))
    }

    fn apply(&mut self, object: K) {
        let uid = uid(object.meta());
        self.remove(&uid);
        if let Some(owner) = controller(object.meta()) {
            self.by_owner.entry(owner.to_owned()).or_default().insert(uid.clone());
        }
        self.by_uid.insert(uid, object);
    }

    fn remove(&mut self, uid: &str) -> Option<K> {
        let object = self.by_uid.remove(uid)?;
        if let Some(owned) = controller(object.meta()).and_then(|owner| self.by_owner.get_mut(owner)) {
            owned.remove(uid);
        }
        Some(object)
    }

    /// Removes those that a list does not have in the same version.
    fn remove_others(&mut self, listed: &[K]) -> Vec<K> {
        let versions: HashMap<_, _> = listed.iter().map(|it| (uid(it.meta()), version(it.meta()))).collect();
        let differs = |(uid, known): &(&String, &K)| versions.get(*uid) != Some(&version(known.meta()));
        let uids: Vec<_> = self.by_uid.iter().filter(differs).map(|(uid, _)| uid.clone()).collect();
        uids.iter().filter_map(|uid| self.remove(uid)).collect()
    }
    /// Applies a step of the watch, also to the check of the bound if these objects are one of its streams.
    pub fn take_in(&mut self, step: Step<K>, bound: &mut WatchedBound, stream: Option<Stream>) {
        let mut judge = |object: &K, news| {
            if let Some(stream) = stream {
                bound.event(stream, json!(object), news);
            }
        };
        let version = match step {
            Step::Applied(object) => {
                judge(&object, News::Applied);
                return self.apply(object);
            }
            Step::Deleted(object) => {
                judge(&object, News::Deleted);
                return drop(self.remove(&uid(object.meta())));
            }
            Step::Nothing(version) => version,
            Step::Listed(mut objects, version_of_list) => {
                self.remove_others(&objects).iter().for_each(|object| judge(object, News::Missed));
                objects.sort_by_key(|object| version(object.meta()));
                for object in objects {
                    judge(&object, News::Applied);
                    self.apply(object);
                }
                version_of_list
            }
        };
        if let Some(stream) = stream {
            bound.progress(stream, version);
        }
    }
}
