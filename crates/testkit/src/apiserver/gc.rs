//! The garbage collector and the namespace controller. Both act after a delay. They delete and update objects like any
//! client, through [`State::delete_object`] and [`State::replace`].

use super::delete::{FOREGROUND, ORPHAN};
use super::*;

const COLLECTOR: &str = "garbage-collector";
const NAMESPACE_CONTROLLER: &str = "namespace-controller";

impl State {
    /// Queues the jobs of the collector after a change.
    pub(super) fn queue_gc_jobs(&mut self, change: &Change) {
        let (uid, delay) = (object::uid(&change.object), self.settings.collect_after);
        if change.event == EventType::Deleted {
            for dependent in self.dependents(uid) {
                self.after(delay, object::uid(&dependent), State::collect);
            }
            for owner in object::owners(&change.object) {
                let owner = owner["uid"].as_str().unwrap_or_default();
                if self.by_uid(owner).is_some_and(|owner| object::is_terminating(owner)) {
                    self.after(delay, owner, State::finalize);
                }
            }
            return;
        }
        if change.event == EventType::Added && !object::owners(&change.object).is_empty() {
            // The owner may already be gone.
            self.after(delay, uid, State::collect);
        }
        let finalizers = object::finalizers(&change.object);
        let ours = finalizers.iter().any(|f| *f == ORPHAN || *f == FOREGROUND);
        if object::is_terminating(&change.object) && ours {
            self.after(delay, uid, State::finalize);
        }
    }

    fn dependents(&self, owner: &str) -> Vec<Arc<Value>> {
        let is_owned = |object: &&Arc<Value>| object::owners(object).iter().any(|r| r["uid"] == owner);
        self.objects.values().filter(is_owned).cloned().collect()
    }

    /// Deletes an object if all its owners are gone.
    fn collect(&mut self, uid: &str) {
        let Some(stored) = self.by_uid(uid).cloned() else { return };
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
            self.drop_finalizer(&owner, ORPHAN);
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
                self.drop_finalizer(&owner, FOREGROUND);
            }
        }
    }

    fn orphan(&mut self, owner: &str, dependent: &Value) {
        let mut orphan = dependent.clone();
        let left = object::owners(dependent).iter().filter(|r| r["uid"] != owner);
        orphan["metadata"]["ownerReferences"] = left.cloned().collect();
        self.replace("", dependent, orphan, COLLECTOR);
    }

    fn drop_finalizer(&mut self, owner: &Value, finalizer: &str) {
        let mut new = owner.clone();
        let left = object::finalizers(owner).into_iter().filter(|f| *f != finalizer);
        new["metadata"]["finalizers"] = left.collect();
        self.replace("", owner, new, COLLECTOR);
    }

    /// Deletes all objects in a terminating namespace, repeatedly until it is empty, and then the namespace.
    pub(super) fn drain_namespace(&mut self, name: &str) {
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
        self.after(self.settings.collect_after * 10, name, State::drain_namespace);
    }

    fn delete_as(&mut self, by: &str, stored: &Arc<Value>) {
        // An earlier delete of the same pass may have removed it.
        if self.by_uid(object::uid(stored)).is_some() {
            self.delete_object(stored, &Value::Null, by).expect("a delete without preconditions is never rejected");
        }
    }
}
