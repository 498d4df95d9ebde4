//! DELETE: preconditions, grace, finalizers, and what the client gets back.

use super::*;

/// The finalizer behind propagation policy Orphan.
pub const ORPHAN: &str = "orphan";
/// The finalizer behind propagation policy Foreground.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Checks the preconditions of a DELETE.
fn check(options: &Value, stored: &Value) -> Result<(), Status> {
    let kind = Kind::of(stored);
    for (field, called, cause) in
        [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
    {
        let held = object::meta(stored, field);
        if let Some(wanted) = options["preconditions"][field].as_str().filter(|wanted| *wanted != held) {
            let why = format!(
                "the {called} in the precondition ({wanted}) does not match the {called} in record ({held}). The object might have been {cause}"
            );
            return Err(Status::conflict(kind, kind.kind, object::name(stored), &why));
        }
    }
    Ok(())
}

impl State {
    /// DELETE of one object. Returns the body of the answer.
    pub(super) fn delete(&mut self, request: &ApiRequest) -> Result<Value, Status> {
        let stored = self.stored(request)?;
        let kind = request.kind;
        self.admit_delete(kind, &stored)?;
        let last = self.delete_object(&stored, &request.body, &request.instance)?;
        let gone = self.by_uid(object::uid(&stored)).is_none();
        if gone && *kind != PODS {
            // Only kinds with graceful deletion answer with the object once it is gone.
            let mut details = Status::about(kind, kind.plural, &request.name);
            details["uid"] = object::uid(&stored).into();
            return Ok(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            }));
        }
        Ok((*last).clone())
    }

    /// Deletes an object like a request with these DeleteOptions. Returns its last state if it was removed at once, otherwise its new
    /// state.
    pub(super) fn delete_object(&mut self, stored: &Arc<Value>, options: &Value, by: &str) -> Stored {
        let kind = Kind::of(stored);
        check(options, stored)?;
        if *kind == NAMESPACES {
            return Ok(self.terminate_namespace(stored, by));
        }
        let grace = if *kind == PODS { pod_grace(stored, options) } else { 0 };
        if object::is_terminating(stored) {
            return Ok(self.delete_again(stored, options, grace, by));
        }
        let finalizers = finalizers_after(stored, options);
        if *kind != PODS && finalizers.is_empty() {
            return Ok(self.remove(stored, by));
        }
        let mut marked = (**stored).clone();
        self.mark_deleted(&mut marked, grace);
        if object::generation(stored) > 0 {
            marked["metadata"]["generation"] = (object::generation(stored) + 1).into();
        }
        if !finalizers.is_empty() {
            marked["metadata"]["finalizers"] = json!(finalizers);
        }
        let marked = self.put(marked, by);
        if grace == 0 && finalizers.is_empty() {
            return Ok(self.remove(&marked, by));
        }
        Ok(marked)
    }

    /// Deletes an object again. This can only shorten the remaining grace period.
    fn delete_again(&mut self, stored: &Arc<Value>, options: &Value, grace: i64, by: &str) -> Arc<Value> {
        let left = stored["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if left > 0 && (options["gracePeriodSeconds"].is_null() || grace >= left) {
            return Arc::clone(stored);
        }
        let mut marked = (**stored).clone();
        if left > 0 {
            self.mark_deleted(&mut marked, grace);
        }
        let marked = self.put(marked, by);
        if grace == 0 && object::finalizers(&marked).is_empty() {
            return self.remove(&marked, by);
        }
        marked
    }

    fn mark_deleted(&self, marked: &mut Value, grace: i64) {
        marked["metadata"]["deletionTimestamp"] = self.clock.rfc3339_in(grace).into();
        marked["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }

    fn terminate_namespace(&mut self, stored: &Arc<Value>, by: &str) -> Arc<Value> {
        if object::is_terminating(stored) {
            return Arc::clone(stored);
        }
        let mut marked = (**stored).clone();
        marked["metadata"]["deletionTimestamp"] = self.clock.rfc3339().into();
        marked["status"]["phase"] = "Terminating".into();
        self.after(self.settings.collect_after, object::name(stored), State::drain_namespace);
        self.put(marked, by)
    }
}

/// The grace period in seconds: 0 for a pod that has no node or has finished.
fn pod_grace(pod: &Value, options: &Value) -> i64 {
    if pod["spec"]["nodeName"].is_null() || object::is_finished(pod) {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    options["gracePeriodSeconds"].as_i64().unwrap_or(own)
}

fn finalizers_after<'a>(stored: &'a Value, options: &Value) -> Vec<&'a str> {
    let policy = match options["propagationPolicy"].as_str() {
        Some("Orphan") => Some(ORPHAN),
        Some("Foreground") => Some(FOREGROUND),
        _ => None,
    };
    object::finalizers(stored).into_iter().chain(policy).collect()
}
