//! No replica changes a pod that a user created, or anything but the status of a set.

use super::*;

#[derive(Default)]
pub struct Strangers {
    pods: BTreeSet<String>,
}

impl Observer for Strangers {
    fn changed(&mut self, change: &Change) -> Checked {
        let uid = object::uid(&change.object);
        if *change.kind == PODS && change.event == EventType::Added && change.by == "user" {
            self.pods.insert(uid.to_owned());
        }
        if !is_by_replica(change) {
            return Ok(());
        }
        if *change.kind == PODS && self.pods.contains(uid) {
            return Err(format!("a replica changed a pod of a user: {change}"));
        }
        if *change.kind == PODSETS && !changes_only_status(change) {
            return Err(format!("more than a status was changed: {change}"));
        }
        Ok(())
    }
}

/// Whether the change modified only the status of a set.
pub fn changes_only_status(change: &Change) -> bool {
    let rest = |set: &Value| {
        let mut rest = set.clone();
        (rest["status"], rest["metadata"]["resourceVersion"]) = (Value::Null, Value::Null);
        rest
    };
    change.event == EventType::Modified
        && change.before.as_ref().is_some_and(|before| rest(before) == rest(&change.object))
}
