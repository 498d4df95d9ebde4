//! POST and PATCH. Both end in [`State::put`], unless nothing is stored, or a patch removes the last finalizer of an object.

use rand::{RngExt, rngs::StdRng};

use super::kinds::{ACCESS_REVIEWS, TOKEN_REVIEWS};
use super::{admission::set_defaults, *};

/// An object as it is stored after a request, or the rejection of the request.
pub type Stored = Result<Arc<Value>, Status>;

/// The operator's own conditions. An apply without them removes them.
const OPERATORS_CONDITIONS: [&str; 4] = ["Ready", "Reconciling", "Stalled", "ReplicaFailure"];

impl State {
    pub(super) fn create(&mut self, request: &ApiRequest) -> Stored {
        let ApiRequest { kind, namespace, body, instance, .. } = request;
        // Every token is known, and its user may do everything.
        if [&TOKEN_REVIEWS, &ACCESS_REVIEWS].contains(kind) {
            let mut review = body.clone();
            review["status"] = json!({ "authenticated": true, "user": { "username": "me" }, "allowed": true });
            return Ok(Arc::new(review));
        }
        self.create_object(kind, namespace, body.clone(), instance, request.query("dryRun") == "All")
    }

    /// Completes a new object, runs admission, and stores the object unless it is a dry run.
    pub(super) fn create_object(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        mut new: Value,
        by: &str,
        is_dry_run: bool,
    ) -> Stored {
        if !["", namespace].contains(&object::namespace(&new)) {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(why));
        }
        if *kind != NAMESPACES {
            new["metadata"]["namespace"] = namespace.into();
        }
        set_defaults(kind, &mut new);
        self.prepare_for_create(kind, &mut new);
        self.admit_create(kind, namespace, &mut new)?;
        let name = object::name(&new);
        if let Some(existing) = self.get(kind, namespace, name) {
            let terminating = object::is_terminating(existing);
            let generated = !object::meta(&new, "generateName").is_empty();
            return Err(Status::already_exists(kind, name, generated, terminating));
        }
        Ok(if is_dry_run { Arc::new(new) } else { self.put(new, by) })
    }

    fn prepare_for_create(&mut self, kind: &'static Kind, new: &mut Value) {
        if kind.has_status_subresource {
            new.as_object_mut().map(|map| map.remove("status"));
        }
        if *kind == PODS {
            new["status"] = json!({ "phase": "Pending", "qosClass": "BestEffort" });
        }
        if *kind == NAMESPACES {
            new["spec"] = json!({ "finalizers": ["kubernetes"] });
            new["status"] = json!({ "phase": "Active" });
            let name = object::name(new).to_owned();
            new["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
        }
        let has_generation = kind.custom || *kind == PODS;
        let metadata = json!({
            "resourceVersion": null, "deletionTimestamp": null, "deletionGracePeriodSeconds": null,
            "uid": uid(&mut self.random),
            "creationTimestamp": self.clock.rfc3339(),
            "generation": has_generation.then_some(1),
        });
        json_patch::merge(new, &json!({ "metadata": metadata }));
    }

    /// PATCH with a JSON merge patch, of the object or of its status.
    fn merge_patch(&mut self, request: &ApiRequest) -> Stored {
        let (kind, name) = (request.kind, request.name.as_str());
        let stored = self.stored(request)?;
        let mut new = (*stored).clone();
        json_patch::merge(&mut new, &request.body);
        if object::meta(&new, "resourceVersion") != object::meta(&stored, "resourceVersion") {
            return Err(Status::modified(kind, name));
        }
        let uid = object::uid(&new);
        // A write to the status of a custom resource ignores metadata, so another UID goes unnoticed.
        let is_checked = !(kind.custom && request.subresource == "status");
        if is_checked && uid != object::uid(&stored) {
            let why = format!("Invalid value: \"{uid}\": field is immutable");
            return Err(Status::invalid(kind, name, "metadata.uid", "FieldValueInvalid", &why));
        }
        Ok(self.replace(&request.subresource, &stored, new, &request.instance))
    }

    /// Forced server-side apply of a status, as the operator sends it. Keeps the conditions of other controllers.
    ///
    /// Like kube-apiserver 1.36.3, it does not compare the UID in the body with the stored one.
    fn apply(&mut self, request: &ApiRequest) -> Stored {
        let kind = request.kind;
        let is_forced = request.query("force") == "true" && !request.query("fieldManager").is_empty();
        if request.subresource != "status" || !is_forced {
            return Err(Status::bad_request("this API server applies only a status, forced and by a field manager"));
        }
        let stored = self.stored(request)?;
        let version = object::meta(&request.body, "resourceVersion");
        if !version.is_empty() && version != object::meta(&stored, "resourceVersion") {
            return Err(Status::modified(kind, &request.name));
        }
        let mut new = request.body.clone();
        for theirs in stored["status"]["conditions"].as_array().into_iter().flatten() {
            let type_ = theirs["type"].as_str().unwrap_or_default();
            if !OPERATORS_CONDITIONS.contains(&type_) && object::condition(&new, type_).is_none() {
                object::set_condition(&mut new, theirs.clone());
            }
        }
        Ok(self.replace("status", &stored, new, &request.instance))
    }

    pub(super) fn patch(&mut self, request: &ApiRequest) -> Stored {
        match request.content_type() {
            "application/merge-patch+json" => self.merge_patch(request),
            "application/apply-patch+yaml" => self.apply(request),
            other => Err(Status::bad_request(format!("this API server does not support the patch type {other}"))),
        }
    }

    /// The stored object that a request names.
    pub(super) fn stored(&self, request: &ApiRequest) -> Stored {
        let stored = self.get(request.kind, &request.namespace, &request.name).cloned();
        stored.ok_or_else(|| Status::not_found(request.kind, &request.name))
    }

    /// Replaces `stored` with `new`, but keeps the fields that a write to this path cannot change.
    pub(super) fn replace(&mut self, subresource: &str, stored: &Value, new: Value, by: &str) -> Arc<Value> {
        let kind = Kind::of(stored);
        let mut new = if subresource == "status" {
            let mut with_status = stored.clone();
            with_status["status"] = new["status"].clone();
            with_status
        } else {
            keep_system_fields(kind, stored, new)
        };
        if new["status"].is_null() {
            new.as_object_mut().map(|map| map.remove("status"));
        }
        set_defaults(kind, &mut new);
        if kind.custom && subresource.is_empty() && new["spec"] != stored["spec"] {
            new["metadata"]["generation"] = (object::generation(stored) + 1).into();
        }
        let gone = object::is_terminating(&new)
            && object::finalizers(&new).is_empty()
            && !object::finalizers(stored).is_empty()
            && new["metadata"]["deletionGracePeriodSeconds"] == 0;
        if gone {
            self.remove(&new, by);
            // For the last finalizer, kube-apiserver 1.36.3 answers with the resourceVersion from before this write.
            new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            return Arc::new(new);
        }
        self.put(new, by)
    }
}

/// A random UUID, version 4.
fn uid(random: &mut StdRng) -> String {
    let [high, low]: [u64; 2] = random.random();
    let [second, third, fourth, last] = [high >> 16 & 0xffff, high & 0xfff, low >> 48 & 0xfff, low & 0xffff_ffff_ffff];
    format!("{:08x}-{second:04x}-4{third:03x}-8{fourth:03x}-{last:012x}", high >> 32)
}

/// Keeps the stored fields that an update of the main resource cannot change: most of the metadata, and the status if it is a subresource.
fn keep_system_fields(kind: &'static Kind, stored: &Value, mut new: Value) -> Value {
    let mut metadata = stored["metadata"].clone();
    for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
        metadata[field] = new["metadata"][field].take();
    }
    let is_empty = |value: &Value| value.is_null() || *value == json!([]) || *value == json!({});
    metadata.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !is_empty(value)));
    new["metadata"] = metadata;
    if kind.has_status_subresource {
        new["status"] = stored["status"].clone();
    }
    new
}
