//! What users do, in sentences: `server.scale("default", "web", 3)`. They act at once and past every
//! fault, as somebody whose own connection is sound. Reads nothing for tests; that is `views.rs`.

use serde_json::{Value, json};

use super::{
    ApiServer,
    delete::DeleteOptions,
    kinds::{Kind, LEASES, MYCUSTOMRESOURCES, NAMESPACES, PODS, PODSETS},
    object,
    status::Status,
};

const USER: &str = "user";

impl ApiServer {
    pub fn create_namespace(&self, name: &str) {
        self.act(|state| state.ensure_namespace(name));
    }

    /// Deletes a namespace: it terminates, with all that is in it.
    pub fn delete_namespace(&self, name: &str) {
        self.delete(&NAMESPACES, "", name, None);
    }

    /// Makes a PodSet (and its namespace, if need be): its UID.
    pub fn create_podset(&self, namespace: &str, name: &str, replicas: i64) -> String {
        self.create(&PODSETS, namespace, json!({ "metadata": { "name": name }, "spec": { "replicas": replicas } }))
    }

    /// Makes a MyCustomResource that looks for a pod called `friend`: its UID.
    pub fn create_mycustomresource(&self, namespace: &str, name: &str, friend: &str) -> String {
        let object = json!({ "metadata": { "name": name }, "spec": { "name": friend } });
        self.create(&MYCUSTOMRESOURCES, namespace, object)
    }

    /// Makes a pod that belongs to nobody: its UID.
    pub fn create_pod(&self, namespace: &str, name: &str, labels: Value) -> String {
        self.create(&PODS, namespace, strange_pod(name, labels))
    }

    /// Makes a pod that belongs to nobody, if it is let pass.
    pub fn try_to_create_pod(&self, namespace: &str, name: &str, labels: Value) -> bool {
        self.try_to_create(&PODS, namespace, strange_pod(name, labels)).is_ok()
    }

    /// Makes any object: its UID. Panics where the API server would refuse it.
    pub fn create(&self, kind: &'static Kind, namespace: &str, object: Value) -> String {
        match self.try_to_create(kind, namespace, object) {
            Ok(uid) => uid,
            Err(status) => panic!("the user's create is refused: {}", status.message),
        }
    }

    /// Makes any object, if the API server lets it pass: its UID.
    pub fn try_to_create(&self, kind: &'static Kind, namespace: &str, object: Value) -> Result<String, Status> {
        self.act(|state| {
            state.ensure_namespace(namespace);
            let created = state.create_object(kind, namespace, object, USER)?;
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

    /// Changes an object by a merge patch. Panics if there is none.
    pub fn patch(&self, kind: &'static Kind, namespace: &str, name: &str, patch: Value) {
        self.edit(kind, namespace, name, "", |object| json_patch::merge(object, &patch));
    }

    /// Deletes a PodSet; its pods follow.
    pub fn delete_podset(&self, namespace: &str, name: &str) {
        self.delete(&PODSETS, namespace, name, Some("Background"));
    }

    /// Deletes a PodSet and leaves its pods to nobody.
    pub fn orphan_podset(&self, namespace: &str, name: &str) {
        self.delete(&PODSETS, namespace, name, Some("Orphan"));
    }

    /// Deletes a PodSet once its pods are gone.
    pub fn delete_podset_in_foreground(&self, namespace: &str, name: &str) {
        self.delete(&PODSETS, namespace, name, Some("Foreground"));
    }

    pub fn delete_pod(&self, namespace: &str, name: &str) {
        self.delete(&PODS, namespace, name, None);
    }

    /// Deletes a pod without grace: it is gone at once.
    pub fn kill_pod(&self, namespace: &str, name: &str) {
        let options = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
        self.delete_with(&PODS, namespace, name, &options);
    }

    pub fn strip_label(&self, namespace: &str, pod: &str, label: &str) {
        self.patch(&PODS, namespace, pod, json!({ "metadata": { "labels": { label: null } } }));
    }

    /// Says in a pod's status that it is about to be evicted or deleted, and why.
    pub fn disrupt(&self, namespace: &str, pod: &str, reason: &str) {
        let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": reason });
        self.edit(&PODS, namespace, pod, "status", |pod| object::set_condition(pod, condition));
    }

    /// Takes all that the operator has written off the status of a PodSet.
    pub fn wipe_status(&self, namespace: &str, set: &str) {
        self.edit(&PODSETS, namespace, set, "status", |set| set["status"] = json!({}));
    }

    pub fn strip_owner(&self, namespace: &str, pod: &str) {
        self.patch(&PODS, namespace, pod, json!({ "metadata": { "ownerReferences": null } }));
    }

    pub fn delete_lease(&self, namespace: &str, name: &str) {
        self.delete(&LEASES, namespace, name, None);
    }

    /// Writes the spec of the Lease anew.
    pub fn overwrite_lease(&self, namespace: &str, name: &str, spec: Value) {
        self.edit(&LEASES, namespace, name, "", |lease| lease["spec"] = spec);
    }

    pub fn delete(&self, kind: &'static Kind, namespace: &str, name: &str, policy: Option<&str>) {
        let propagation = policy.map(str::to_owned);
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        self.delete_with(kind, namespace, name, &options);
    }

    fn delete_with(&self, kind: &'static Kind, namespace: &str, name: &str, options: &DeleteOptions) {
        self.act(|state| {
            let stored = state.expect(kind, namespace, name);
            if let Err(status) = state.delete_object(kind, &stored, options, USER) {
                panic!("the user's delete is refused: {}", status.message);
            }
        });
    }

    /// Changes an object, or its status: what can be written to this subresource.
    pub fn edit(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        change: impl FnOnce(&mut Value),
    ) {
        self.act(|state| {
            let stored = state.expect(kind, namespace, name);
            let mut new = (*stored).clone();
            change(&mut new);
            if let Err(status) = state.replace(kind, subresource, &stored, new, USER) {
                panic!("the user's edit is refused: {}", status.message);
            }
        });
    }
}

/// A pod without an owner; labels that are null are none.
fn strange_pod(name: &str, labels: Value) -> Value {
    let labels = if labels.is_null() { json!({}) } else { labels };
    json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "example.com/main" }] },
    })
}
