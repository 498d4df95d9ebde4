//! DELETE: preconditions, grace, finalizers, and what the client gets back.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    kinds::{Kind, NAMESPACES, PODS},
    object,
    request::ApiRequest,
    status::Status,
    store::State,
};

/// The finalizer behind propagation policy Orphan.
pub const ORPHAN: &str = "orphan";
/// The finalizer behind propagation policy Foreground.
pub const FOREGROUND: &str = "foregroundDeletion";

/// The options of a DELETE.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Precondition: the UID of the object.
    pub uid: Option<String>,
    /// Precondition: the resourceVersion of the object.
    pub resource_version: Option<String>,
    /// Grace period of a pod in seconds; none for the grace period in its spec.
    pub grace_period: Option<i64>,
    /// Propagation policy; none for Background.
    pub propagation: Option<String>,
}

impl DeleteOptions {
    /// From the body of a DELETE.
    fn of(body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            grace_period: body["gracePeriodSeconds"].as_i64(),
            propagation: text(&body["propagationPolicy"]),
        }
    }

    /// A delete with the UID as a precondition.
    pub fn of_uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), ..Self::default() }
    }

    fn check(&self, stored: &Value) -> Result<(), Status> {
        let kind = Kind::of(stored);
        let name = object::name(stored);
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != object::uid(stored)) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The \
                 object might have been deleted and then recreated",
                object::uid(stored)
            );
            return Err(Status::precondition(kind, name, &why));
        }
        let stored_version = object::meta(stored, "resourceVersion");
        if let Some(version) = self.resource_version.as_deref().filter(|v| *v != stored_version) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the \
                 ResourceVersion in record ({stored_version}). The object might have been modified"
            );
            return Err(Status::precondition(kind, name, &why));
        }
        Ok(())
    }
}

impl State {
    /// DELETE of one object. Returns the body of the answer.
    pub fn delete(&mut self, request: &ApiRequest) -> Result<Value, Status> {
        let stored = self.stored(request)?;
        let options = DeleteOptions::of(&request.body);
        let kind = request.kind;
        self.admit_delete(kind, &stored)?;
        let last = self.delete_object(&stored, &options, &request.instance)?;
        let gone = self.by_uid(object::uid(&stored)).is_none();
        if gone && *kind != PODS {
            // Only kinds with graceful deletion answer with the object once it is gone.
            let mut details = Status::about(kind, kind.plural, &request.name);
            details["uid"] = object::uid(&stored).into();
            return Ok(json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }));
        }
        Ok((*last).clone())
    }

    /// Deletes an object as for a client. Returns its last or its new state.
    pub fn delete_object(
        &mut self,
        stored: &Arc<Value>,
        options: &DeleteOptions,
        by: &str,
    ) -> Result<Arc<Value>, Status> {
        let kind = Kind::of(stored);
        options.check(stored)?;
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
        object::set_finalizers(&mut marked, &finalizers);
        let marked = self.put(marked, by);
        if grace == 0 && finalizers.is_empty() {
            return Ok(self.remove(&marked, by));
        }
        Ok(marked)
    }

    /// Deletes an object again. This can only shorten the remaining grace period.
    fn delete_again(&mut self, stored: &Arc<Value>, options: &DeleteOptions, grace: i64, by: &str) -> Arc<Value> {
        let left = stored["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if left > 0 && (options.grace_period.is_none() || grace >= left) {
            return Arc::clone(stored);
        }
        let mut marked = (**stored).clone();
        if left > 0 {
            let until = self.clock.rfc3339_in(grace);
            object::meta_mut(&mut marked).insert("deletionTimestamp".to_owned(), until.into());
            object::meta_mut(&mut marked).insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        }
        let marked = self.put(marked, by);
        if grace == 0 && object::finalizers(&marked).is_empty() {
            return self.remove(&marked, by);
        }
        marked
    }

    fn mark_deleted(&self, marked: &mut Value, grace: i64) {
        let generation = object::generation(marked);
        let meta = object::meta_mut(marked);
        meta.insert("deletionTimestamp".to_owned(), self.clock.rfc3339_in(grace).into());
        meta.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        if generation > 0 {
            meta.insert("generation".to_owned(), (generation + 1).into());
        }
    }

    fn terminate_namespace(&mut self, stored: &Arc<Value>, by: &str) -> Arc<Value> {
        if object::is_terminating(stored) {
            return Arc::clone(stored);
        }
        let mut marked = (**stored).clone();
        let now = self.clock.rfc3339();
        object::meta_mut(&mut marked).insert("deletionTimestamp".to_owned(), now.into());
        marked["status"]["phase"] = "Terminating".into();
        let name = object::name(stored).to_owned();
        self.jobs.push(self.settings.collect_after, move |state| state.drain_namespace(&name));
        self.put(marked, by)
    }
}

/// The grace period in seconds: 0 for a pod that has no node or has finished.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    if pod["spec"]["nodeName"].is_null() || object::is_finished(pod) {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    options.grace_period.unwrap_or(own)
}

fn finalizers_after(stored: &Value, options: &DeleteOptions) -> Vec<String> {
    let policy = match options.propagation.as_deref() {
        Some("Orphan") => Some(ORPHAN),
        Some("Foreground") => Some(FOREGROUND),
        _ => None,
    };
    object::finalizers(stored).into_iter().chain(policy).map(str::to_owned).collect()
}
