//! What users do and what tests look at, in sentences: `server.scale("default", "web", 3)`. Users
//! act at once and past every fault, as somebody whose own connection is sound.

use std::{panic::Location, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    ApiServer,
    admission::Quota,
    delete::DeleteOptions,
    faults::Requests,
    kinds::{EVENTS, Kind, MYCUSTOMRESOURCES, NAMESPACES, PODS, PODSETS},
    kubelet::PodScript,
    object,
    status::Status,
    store::State,
    write::merge,
};

const USER: &str = "user";

/// How many lines of log and history a timed-out wait shows.
const SHOWN: usize = 25;

/// Users.
impl ApiServer {
    /// Makes a namespace, unless it is there.
    pub fn create_namespace(&self, name: &str) {
        self.act(|state| state.ensure_namespace(name));
    }

    /// Deletes a namespace: it terminates, with all that is in it.
    pub fn delete_namespace(&self, name: &str) {
        self.delete(&NAMESPACES, "", name, None);
    }

    /// Makes a PodSet (and its namespace, if need be): its UID.
    pub fn create_podset(&self, namespace: &str, name: &str, replicas: i64) -> String {
        self.create(
            &PODSETS,
            namespace,
            json!({
                "metadata": { "name": name },
                "spec": { "replicas": replicas },
            }),
        )
    }

    /// Makes a MyCustomResource that looks for a pod called `friend`: its UID.
    pub fn create_mycustomresource(&self, namespace: &str, name: &str, friend: &str) -> String {
        self.create(
            &MYCUSTOMRESOURCES,
            namespace,
            json!({
                "metadata": { "name": name },
                "spec": { "name": friend },
            }),
        )
    }

    /// Makes a pod that belongs to nobody: its UID.
    pub fn create_pod(&self, namespace: &str, name: &str, labels: Value) -> String {
        self.create(
            &PODS,
            namespace,
            json!({
                "metadata": { "name": name, "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "example.com/main" }] },
            }),
        )
    }

    /// Makes any object: its UID. Panics where the API server would refuse it.
    pub fn create(&self, kind: &'static Kind, namespace: &str, mut object: Value) -> String {
        self.act(|state| {
            state.ensure_namespace(namespace);
            match state.create_object(kind, namespace, &mut object, USER) {
                Ok(created) => object::uid(&created).to_owned(),
                Err(status) => panic!("the user's create is refused: {}", status.message),
            }
        })
    }

    /// Sets the replicas of a PodSet.
    pub fn scale(&self, namespace: &str, name: &str, replicas: i64) {
        self.patch(&PODSETS, namespace, name, json!({ "spec": { "replicas": replicas } }));
    }

    /// Changes an object by a merge patch. Panics if there is none.
    pub fn patch(&self, kind: &'static Kind, namespace: &str, name: &str, patch: Value) {
        self.edit(kind, namespace, name, |object| merge(object, &patch));
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

    /// Deletes a pod, with its grace.
    pub fn delete_pod(&self, namespace: &str, name: &str) {
        self.delete(&PODS, namespace, name, None);
    }

    /// Deletes a pod without grace: it is gone at once.
    pub fn kill_pod(&self, namespace: &str, name: &str) {
        let options = DeleteOptions {
            grace_period: Some(0),
            ..DeleteOptions::default()
        };
        self.delete_with(&PODS, namespace, name, &options);
    }

    /// Takes a label off a pod.
    pub fn strip_label(&self, namespace: &str, pod: &str, label: &str) {
        self.patch(
            &PODS,
            namespace,
            pod,
            json!({ "metadata": { "labels": { label: null } } }),
        );
    }

    /// Takes the owner references off a pod.
    pub fn strip_owner(&self, namespace: &str, pod: &str) {
        self.patch(
            &PODS,
            namespace,
            pod,
            json!({ "metadata": { "ownerReferences": null } }),
        );
    }

    fn delete(&self, kind: &'static Kind, namespace: &str, name: &str, policy: Option<&str>) {
        let propagation = policy.map(str::to_owned);
        let options = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        self.delete_with(kind, namespace, name, &options);
    }

    fn delete_with(&self, kind: &'static Kind, namespace: &str, name: &str, options: &DeleteOptions) {
        self.act(|state| {
            let stored = expect(state, kind, namespace, name);
            if let Err(status) = state.delete_object(kind, &stored, options, USER) {
                panic!("the user's delete is refused: {}", status.message);
            }
        });
    }

    fn edit(&self, kind: &'static Kind, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        self.act(|state| {
            let stored = expect(state, kind, namespace, name);
            let mut new = (*stored).clone();
            change(&mut new);
            if let Err(status) = state.replace(kind, "", &stored, new, USER) {
                panic!("the user's edit is refused: {}", status.message);
            }
        });
    }
}

/// Nodes, quotas and webhooks.
impl ApiServer {
    /// Chooses the life of every pod, from its next step on.
    pub fn pods_live(&self, script: PodScript) {
        self.direct_pods(move |_| script.clone());
    }

    /// Chooses the life of each pod by looking at it.
    pub fn direct_pods(&self, director: impl Fn(&Value) -> PodScript + Send + Sync + 'static) {
        self.with(|state| state.kubelet.director = Arc::new(director));
    }

    /// Ends a pod without success.
    pub fn fail_pod(&self, namespace: &str, name: &str) {
        self.finish(namespace, name, false);
    }

    /// Ends a pod with success.
    pub fn succeed_pod(&self, namespace: &str, name: &str) {
        self.finish(namespace, name, true);
    }

    fn finish(&self, namespace: &str, name: &str, success: bool) {
        self.act(|state| {
            let uid = object::uid(&expect(state, &PODS, namespace, name)).to_owned();
            state.finish_pod(&uid, success);
        });
    }

    /// Makes a running pod ready or unready.
    pub fn set_ready(&self, namespace: &str, name: &str, ready: bool) {
        self.act(|state| {
            let uid = object::uid(&expect(state, &PODS, namespace, name)).to_owned();
            state.set_ready(&uid, ready);
        });
    }

    /// Allows at most this many pods in a namespace.
    pub fn set_quota(&self, namespace: &str, name: &str, pods: usize) {
        let quota = Quota {
            name: name.to_owned(),
            pods,
        };
        self.with(|state| state.admission.quotas.insert(namespace.to_owned(), quota));
    }

    /// Lifts the quota of a namespace.
    pub fn lift_quota(&self, namespace: &str) {
        self.with(|state| state.admission.quotas.remove(namespace));
    }

    /// Puts a webhook in the way of every pod that is created.
    pub fn set_webhook(&self, webhook: impl Fn(&mut Value) -> Result<(), Status> + Send + Sync + 'static) {
        self.with(|state| state.admission.webhook = Some(Arc::new(webhook)));
    }

    /// Takes the webhook away.
    pub fn lift_webhook(&self) {
        self.with(|state| state.admission.webhook = None);
    }
}

/// What is there.
impl ApiServer {
    /// An object, null if there is none.
    pub fn get(&self, kind: &'static Kind, namespace: &str, name: &str) -> Value {
        self.with(|state| state.get(kind, namespace, name).map_or(Value::Null, |o| (**o).clone()))
    }

    /// All objects of a kind, in a namespace or (if empty) everywhere.
    pub fn all(&self, kind: &'static Kind, namespace: &str) -> Vec<Value> {
        self.with(|state| state.of_kind(kind, namespace).map(|o| (**o).clone()).collect())
    }

    /// A PodSet, null if there is none.
    pub fn podset(&self, namespace: &str, name: &str) -> Value {
        self.get(&PODSETS, namespace, name)
    }

    /// A pod, null if there is none.
    pub fn pod(&self, namespace: &str, name: &str) -> Value {
        self.get(&PODS, namespace, name)
    }

    /// The pods that belong to a PodSet by its present UID, in any state.
    pub fn pods(&self, namespace: &str, podset: &str) -> Vec<Value> {
        let set = self.podset(namespace, podset);
        let mut pods = self.all(&PODS, namespace);
        pods.retain(|pod| object::controller_uid(pod) == Some(object::uid(&set)));
        pods
    }

    /// Names of the live pods of a PodSet.
    pub fn live_pods(&self, namespace: &str, podset: &str) -> Vec<String> {
        let pods = self.pods(namespace, podset);
        pods.iter()
            .filter(|p| object::is_live(p))
            .map(|p| object::name(p).to_owned())
            .collect()
    }

    /// Names of the live pods of a PodSet that are ready.
    pub fn ready_pods(&self, namespace: &str, podset: &str) -> Vec<String> {
        let pods = self.pods(namespace, podset);
        let ready = |p: &&Value| object::is_live(p) && object::is_ready(p);
        pods.iter().filter(ready).map(|p| object::name(p).to_owned()).collect()
    }

    /// The events of `events.k8s.io` in a namespace, by reason; all for an empty reason.
    pub fn events(&self, namespace: &str, reason: &str) -> Vec<Value> {
        let mut events = self.all(&EVENTS, namespace);
        events.retain(|event| reason.is_empty() || event["reason"] == reason);
        events
    }

    /// Waits, on virtual time, until something holds; panics with the last requests and changes if
    /// it does not in time.
    #[track_caller]
    pub fn wait_until<'a>(
        &'a self,
        mut holds: impl FnMut(&Self) -> bool + 'a,
        timeout: Duration,
    ) -> impl Future<Output = ()> + 'a {
        let caller = Location::caller();
        async move {
            let end = Instant::now() + timeout;
            let mut changes = self.changes();
            loop {
                changes.mark_unchanged();
                if holds(self) {
                    return;
                }
                assert!(Instant::now() < end, "{}", self.timed_out(caller, timeout));
                // Not everything that a test waits for is a change of the store.
                let next_look = end.min(Instant::now() + Duration::from_millis(100));
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep_until(next_look) => {}
                }
            }
        }
    }

    fn timed_out(&self, caller: &Location<'_>, timeout: Duration) -> String {
        let requests = self.requests(&Requests::all());
        let skip = requests.len().saturating_sub(SHOWN);
        let requests: Vec<String> = requests[skip..].iter().map(|r| r.line()).collect();
        let changes = self.changes_where(|_| true);
        let skip = changes.len().saturating_sub(SHOWN);
        let changes: Vec<String> = changes[skip..].iter().map(ToString::to_string).collect();
        format!(
            "waited for {timeout:?} at {caller} in vain.\nlast requests:\n{}\nlast changes:\n{}",
            requests.join("\n"),
            changes.join("\n"),
        )
    }
}

fn expect(state: &State, kind: &'static Kind, namespace: &str, name: &str) -> Arc<Value> {
    let stored = state.get(kind, namespace, name).cloned();
    stored.unwrap_or_else(|| panic!("there is no {} {namespace}/{name}", kind.kind))
}
