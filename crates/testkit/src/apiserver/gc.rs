//! The garbage collector and the namespace controller. Both act through [`State::delete_object`] and
//! [`State::put`], like any client, after a delay.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    delete::{DeleteOptions, FOREGROUND, ORPHAN},
    jobs::Job,
    kinds::{Kind, NAMESPACES},
    object,
    store::{Change, ChangeKind, State},
};

const COLLECTOR: &str = "garbage-collector";
const NAMESPACE_CONTROLLER: &str = "namespace-controller";

/// UIDs of dependents, by the UID of their owner.
#[derive(Default)]
pub struct Dependents {
    by_owner: BTreeMap<String, BTreeSet<String>>,
}

impl Dependents {
    fn note(&mut self, change: &Change) {
        let uid = object::uid(&change.object);
        let owner_uid = |owner: &Value| owner["uid"].as_str().unwrap_or_default().to_owned();
        for owner in change.before.iter().flat_map(|before| object::owners(before)) {
            let owner = owner_uid(owner);
            let left = self.by_owner.get_mut(&owner).is_none_or(|uids| {
                uids.remove(uid);
                uids.is_empty()
            });
            if left {
                self.by_owner.remove(&owner);
            }
        }
        if change.change != ChangeKind::Deleted {
            for owner in object::owners(&change.object) {
                self.by_owner.entry(owner_uid(owner)).or_default().insert(uid.to_owned());
            }
        }
    }
}

impl State {
    /// Queues the jobs of the collector after a change.
    pub fn collector_sees(&mut self, change: &Change) {
        self.dependents.note(change);
        let delay = self.settings.collect_after;
        let uid = object::uid(&change.object).to_owned();
        if change.change == ChangeKind::Deleted {
            for dependent in self.dependents(&uid) {
                let job = Job::Collect(object::uid(&dependent).to_owned());
                self.jobs.push(delay, job);
            }
            for owner in object::owners(&change.object) {
                let owner = owner["uid"].as_str().unwrap_or_default().to_owned();
                let waits = self.by_uid(&owner).is_some_and(|o| object::is_terminating(o));
                if waits {
                    self.jobs.push(delay, Job::Finalize(owner));
                }
            }
            return;
        }
        if change.change == ChangeKind::Added && !object::owners(&change.object).is_empty() {
            // The owner may already be gone.
            self.jobs.push(delay, Job::Collect(uid.clone()));
        }
        let finalizers = object::finalizers(&change.object);
        let ours = finalizers.iter().any(|f| *f == ORPHAN || *f == FOREGROUND);
        if object::is_terminating(&change.object) && ours {
            self.jobs.push(delay, Job::Finalize(uid));
        }
    }

    fn dependents(&self, owner: &str) -> Vec<Arc<Value>> {
        let uids = self.dependents.by_owner.get(owner).into_iter().flatten();
        uids.filter_map(|uid| self.by_uid(uid)).cloned().collect()
    }

    /// Deletes an object all of whose owners are gone.
    pub fn collect(&mut self, uid: &str) {
        let Some(stored) = self.by_uid(uid).cloned() else {
            return;
        };
        let owners = object::owners(&stored);
        let gone = |owner: &Value| self.by_uid(owner["uid"].as_str().unwrap_or_default()).is_none();
        if owners.is_empty() || object::is_terminating(&stored) || !owners.iter().all(gone) {
            return;
        }
        self.delete_as(COLLECTOR, &stored);
    }

    /// Orphans or deletes the dependents of an owner that waits for this.
    pub fn finalize(&mut self, uid: &str) {
        let Some(owner) = self.by_uid(uid).cloned() else { return };
        let finalizers = object::finalizers(&owner);
        let mut dependents = self.dependents(uid);
        dependents.retain(|dependent| object::namespace(dependent) == object::namespace(&owner));
        if finalizers.contains(&ORPHAN) {
            for dependent in dependents {
                self.orphan(uid, &dependent);
            }
            self.drop_finalizer(uid, ORPHAN);
        } else if finalizers.contains(&FOREGROUND) {
            let mut blocked = false;
            for dependent in dependents {
                blocked |=
                    object::owners(&dependent).iter().any(|r| r["uid"] == uid && r["blockOwnerDeletion"] == true);
                if !object::is_terminating(&dependent) {
                    self.delete_as(COLLECTOR, &dependent);
                }
            }
            if !blocked {
                self.drop_finalizer(uid, FOREGROUND);
            }
        }
    }

    fn orphan(&mut self, owner: &str, dependent: &Value) {
        let mut orphan = dependent.clone();
        let left: Vec<Value> = object::owners(dependent).iter().filter(|r| r["uid"] != owner).cloned().collect();
        let meta = object::meta_mut(&mut orphan);
        if left.is_empty() {
            meta.remove("ownerReferences");
        } else {
            meta.insert("ownerReferences".to_owned(), left.into());
        }
        self.put(kind_of(dependent), orphan, COLLECTOR);
    }

    fn drop_finalizer(&mut self, uid: &str, finalizer: &str) {
        let Some(stored) = self.by_uid(uid).cloned() else {
            return;
        };
        let left: Vec<String> =
            object::finalizers(&stored).into_iter().filter(|f| *f != finalizer).map(str::to_owned).collect();
        let mut new = (*stored).clone();
        object::set_finalizers(&mut new, &left);
        if left.is_empty() {
            self.remove(kind_of(&stored), &new, COLLECTOR);
        } else {
            self.put(kind_of(&stored), new, COLLECTOR);
        }
    }

    /// Deletes all objects in a terminating namespace, repeatedly until it is empty, and then the
    /// namespace.
    pub fn drain_namespace(&mut self, name: &str) {
        let inside: Vec<Arc<Value>> =
            self.objects.iter().filter(|(key, _)| key.1 == name).map(|(_, o)| Arc::clone(o)).collect();
        if inside.is_empty() {
            if let Some(namespace) = self.get(&NAMESPACES, "", name).cloned() {
                self.remove(&NAMESPACES, &namespace, NAMESPACE_CONTROLLER);
            }
            return;
        }
        for object in inside.iter().filter(|o| !object::is_terminating(o)) {
            self.delete_as(NAMESPACE_CONTROLLER, object);
        }
        let again = self.settings.collect_after * 10;
        self.jobs.push(again, Job::DrainNamespace(name.to_owned()));
    }

    fn delete_as(&mut self, by: &str, stored: &Arc<Value>) {
        let options = DeleteOptions::of_uid(object::uid(stored));
        // An earlier delete of the same pass may have removed it.
        if self.by_uid(object::uid(stored)).is_some() {
            let deleted = self.delete_object(kind_of(stored), stored, &options, by);
            debug_assert!(deleted.is_ok(), "a delete of the stored UID is never rejected");
        }
    }
}

/// The kind of a stored object.
fn kind_of(object: &Value) -> &'static Kind {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].as_str().unwrap_or_default();
    Kind::of_object(group, version, kind)
}
