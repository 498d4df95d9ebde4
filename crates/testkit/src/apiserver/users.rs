//! What users do, such as `server.scale("default", "web", 3)`. It takes effect at once, and no fault hits it.

use super::*;

const USER: &str = "user";

/// The label by which the operator watches its pods.
pub const LABEL: &str = "app.kubernetes.io/managed-by";

impl ApiServer {
    pub fn create_namespace(&self, name: &str) {
        self.with(|state| state.ensure_namespace(name));
    }

    pub fn delete_namespace(&self, name: &str) {
        self.delete(&NAMESPACES, "", name, &Value::Null);
    }

    /// Creates a PodSet, and its namespace if needed. Returns its UID.
    pub fn create_podset(&self, namespace: &str, name: &str, replicas: i64) -> String {
        self.create(&PODSETS, namespace, json!({ "metadata": { "name": name }, "spec": { "replicas": replicas } }))
    }

    /// Creates a MyCustomResource that looks for a pod called `friend`. Returns its UID.
    pub fn create_mycustomresource(&self, namespace: &str, name: &str, friend: &str) -> String {
        let object = json!({ "metadata": { "name": name }, "spec": { "name": friend } });
        self.create(&MYCUSTOMRESOURCES, namespace, object)
    }

    /// Creates a pod without an owner. Returns its UID.
    pub fn create_pod(&self, namespace: &str, name: &str, labels: Value) -> String {
        self.create(&PODS, namespace, pod(json!({ "name": name, "labels": labels })))
    }

    /// Creates an object. Returns its UID. Panics if the API server rejects it.
    pub fn create(&self, kind: &'static Kind, namespace: &str, object: Value) -> String {
        self.try_to_create(kind, namespace, object).expect("the user's create is accepted")
    }

    /// Creates an object. Returns its UID, or the rejection by the API server.
    pub fn try_to_create(&self, kind: &'static Kind, namespace: &str, object: Value) -> Result<String, Status> {
        self.with(|state| {
            state.ensure_namespace(namespace);
            let created = state.create_object(kind, namespace, object, USER, false)?;
            Ok(object::uid(&created).to_owned())
        })
    }

    pub fn scale(&self, namespace: &str, name: &str, replicas: i64) {
        self.patch(&PODSETS, namespace, name, json!({ "spec": { "replicas": replicas } }));
    }

    /// Sets the podReplacementPolicy of a PodSet to TerminationComplete.
    pub fn wait_for_termination(&self, namespace: &str, name: &str) {
        let policy = json!({ "spec": { "podReplacementPolicy": "TerminationComplete" } });
        self.patch(&PODSETS, namespace, name, policy);
    }

    /// Applies a merge patch to an object. Panics if there is none.
    pub fn patch(&self, kind: &'static Kind, namespace: &str, name: &str, patch: Value) {
        self.edit(kind, namespace, name, "", |object| json_patch::merge(object, &patch));
    }

    /// Deletes a PodSet. The garbage collector deletes its pods.
    pub fn delete_podset(&self, namespace: &str, name: &str) {
        self.delete(&PODSETS, namespace, name, &json!({ "propagationPolicy": "Background" }));
    }

    pub fn orphan_podset(&self, namespace: &str, name: &str) {
        self.delete(&PODSETS, namespace, name, &json!({ "propagationPolicy": "Orphan" }));
    }

    /// Deletes a PodSet in the foreground: its pods go first.
    pub fn delete_podset_in_foreground(&self, namespace: &str, name: &str) {
        self.delete(&PODSETS, namespace, name, &json!({ "propagationPolicy": "Foreground" }));
    }

    pub fn delete_pod(&self, namespace: &str, name: &str) {
        self.delete(&PODS, namespace, name, &Value::Null);
    }

    /// Deletes a pod with grace period 0: it is gone at once.
    pub fn kill_pod(&self, namespace: &str, name: &str) {
        self.delete(&PODS, namespace, name, &json!({ "gracePeriodSeconds": 0 }));
    }

    pub fn strip_label(&self, namespace: &str, pod: &str) {
        self.patch(&PODS, namespace, pod, json!({ "metadata": { "labels": { LABEL: null } } }));
    }

    /// Adds a condition to a pod's status.
    pub fn set_pod_condition(&self, namespace: &str, pod: &str, condition: Value) {
        self.edit(&PODS, namespace, pod, "status", |pod| object::set_condition(pod, condition));
    }

    pub fn wipe_status(&self, namespace: &str, set: &str) {
        self.edit(&PODSETS, namespace, set, "status", |set| set["status"] = json!({}));
    }

    pub fn strip_owner(&self, namespace: &str, pod: &str) {
        self.patch(&PODS, namespace, pod, json!({ "metadata": { "ownerReferences": null } }));
    }

    /// Replaces the spec of a Lease. `None` deletes the Lease.
    pub fn edit_lease(&self, (namespace, name): (&str, &str), spec: Option<Value>) {
        match spec {
            Some(spec) => self.edit(&LEASES, namespace, name, "", |lease| lease["spec"] = spec),
            None => self.delete(&LEASES, namespace, name, &Value::Null),
        }
    }

    pub fn delete(&self, kind: &'static Kind, namespace: &str, name: &str, options: &Value) {
        self.with(|state| {
            let stored = state.expect(kind, namespace, name);
            state.delete_object(&stored, options, USER).expect("the user's delete is accepted");
        });
    }

    /// Updates an object. `path` is the subresource: `status`, or empty for the object itself.
    pub fn edit(&self, kind: &'static Kind, namespace: &str, name: &str, path: &str, change: impl FnOnce(&mut Value)) {
        self.with(|state| {
            let stored = state.expect(kind, namespace, name);
            let mut new = (*stored).clone();
            change(&mut new);
            state.replace(path, &stored, new, USER);
        });
    }
}

pub fn pod(metadata: Value) -> Value {
    json!({ "metadata": metadata, "spec": { "containers": [{ "name": "main", "image": "example.com/main" }] } })
}
