//! The garbage collector and the namespace controller. Both act through [`State::delete_object`] and
//! [`State::put`], like any client, after a delay.

use std::sync::Arc;

use serde_json::Value;

use super::{
    delete::{DeleteOptions, FOREGROUND, ORPHAN},
    kinds::NAMESPACES,
    object,
    store::{Change, ChangeKind, State},
};

const COLLECTOR: &str = "garbage-collector";
const NAMESPACE_CONTROLLER: &str = "namespace-controller";

impl State {
    /// Queues the jobs of the collector after a change.
    pub fn collector_sees(&mut self, change: &Change) {
        let uid = object::uid(&change.object);
        if change.change == ChangeKind::Deleted {
            for dependent in self.dependents(uid) {
                self.collect_soon(&dependent);
            }
            for owner in object::owners(&change.object) {
                let owner = self.by_uid(owner["uid"].as_str().unwrap_or_default()).cloned();
                if let Some(owner) = owner.filter(|owner| object::is_terminating(owner)) {
                    self.finalize_soon(&owner);
                }
            }
            return;
        }
        if change.change == ChangeKind::Added && !object::owners(&change.object).is_empty() {
            // The owner may already be gone.
            self.collect_soon(&change.object);
        }
        let finalizers = object::finalizers(&change.object);
        let ours = finalizers.iter().any(|f| *f == ORPHAN || *f == FOREGROUND);
        if object::is_terminating(&change.object) && ours {
            self.finalize_soon(&change.object);
        }
    }

    fn collect_soon(&mut self, dependent: &Value) {
        let uid = object::uid(dependent).to_owned();
        self.jobs.push(self.settings.collect_after, move |state| state.collect(&uid));
    }

    fn finalize_soon(&mut self, owner: &Value) {
        let uid = object::uid(owner).to_owned();
        self.jobs.push(self.settings.collect_after, move |state| state.finalize(&uid));
    }

    fn dependents(&self, owner: &str) -> Vec<Arc<Value>> {
        let is_owned = |object: &&Arc<Value>| object::owners(object).iter().any(|r| r["uid"] == owner);
        self.objects.values().filter(is_owned).cloned().collect()
    }

    /// Deletes an object all of whose owners are gone.
    fn collect(&mut self, uid: &str) {
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
    fn finalize(&mut self, uid: &str) {
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
        self.put(orphan, COLLECTOR);
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
            self.remove(&new, COLLECTOR);
        } else {
            self.put(new, COLLECTOR);
        }
    }

    /// Deletes all objects in a terminating namespace, repeatedly until it is empty, and then the
    /// namespace.
    pub fn drain_namespace(&mut self, name: &str) {
        let inside: Vec<Arc<Value>> =
            self.objects.iter().filter(|(key, _)| key.1 == name).map(|(_, o)| Arc::clone(o)).collect();
        if inside.is_empty() {
            if let Some(namespace) = self.get(&NAMESPACES, "", name).cloned() {
                self.remove(&namespace, NAMESPACE_CONTROLLER);
            }
            return;
        }
        for object in inside.iter().filter(|o| !object::is_terminating(o)) {
            self.delete_as(NAMESPACE_CONTROLLER, object);
        }
        let name = name.to_owned();
        self.jobs.push(self.settings.collect_after * 10, move |state| state.drain_namespace(&name));
    }

    fn delete_as(&mut self, by: &str, stored: &Arc<Value>) {
        let options = DeleteOptions::of_uid(object::uid(stored));
        // An earlier delete of the same pass may have removed it.
        if self.by_uid(object::uid(stored)).is_some() {
            let deleted = self.delete_object(stored, &options, by);
            debug_assert!(deleted.is_ok(), "a delete of the stored UID is never rejected");
        }
    }
}
