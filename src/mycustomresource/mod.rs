//! The MyCustomResource controller: says whether the friend of each resource exists.
//!
//! It holds the names of all pods in the watched namespaces, not the pods, and an index from a friend's name to the
//! resources that look for it ([`index`]); it never lists to answer. While nobody looks for a friend it does not watch pods at
//! all. What a status says is decided in [`status`], and when it is written in [`pace`]: pure.

mod index;
mod pace;
mod status;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use tokio::sync::watch;
use tracing::{debug, info, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use operator_kit::{ObjectKey, queue::{self, Queue, Trigger}, requests, runner::{Controller, Next}, statuses::{self, Applied}};
use crate::api::{MyCustomResource, MyCustomResourceStatus};
use operator_kit::{client::Clients, listwatch::{self, Change, Scope, Source, Watched, is_stale, synced::{Listing, Synced}}, telemetry::{metrics::Metrics, spans}};
use index::{Index, Resource};
use leadership::env::Env;

/// The controller's name.
const NAME: &str = "mycustomresource";

/// What is watched besides the resources, in a word for people.
const PODS: &str = "names of pods";

/// A pod of which only the name is read.
#[derive(Debug, Deserialize)]
#[serde(from = "NameWire")]
struct Named {
    key: ObjectKey,
    version: u64,
}

#[derive(Deserialize)]
struct NameWire {
    metadata: NameMeta,
}

/// All pods of a cluster come by here: of their metadata no more is decoded than is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameMeta {
    name: String,
    namespace: String,
    resource_version: String,
}

impl From<NameWire> for Named {
    fn from(NameWire { metadata }: NameWire) -> Self {
        let NameMeta { name, namespace, resource_version } = metadata;
        Named { key: ObjectKey::new(namespace, name), version: listwatch::version(&resource_version) }
    }
}

impl Watched for Named {
    fn version(&self) -> u64 {
        self.version
    }
}

/// The controller.
pub struct MyCustomResourceController {
    env: Env,
    clients: Clients,
    scopes: Vec<Scope>,
    index: Mutex<Index>,
    /// Whether anybody ever looked for a friend: from then on pods are watched.
    is_asked: watch::Sender<bool>,
    queue: Queue,
    synced: Synced,
}

impl MyCustomResourceController {
    /// A controller that has seen nothing yet.
    pub fn new(env: Env, clients: Clients, scopes: Vec<Scope>, metrics: &Metrics) -> Self {
        let (queue, synced) = (Queue::new(env.clone(), metrics.queue(NAME)), Synced::new(scopes.len() * 2));
        let index = Mutex::new(Index::new(&scopes));
        MyCustomResourceController { env, clients, scopes, index, is_asked: watch::Sender::new(false), queue, synced }
    }

    /// `pods` is the watch of pods that may have to begin now.
    fn resource_changed(&self, scope: &Scope, change: Change<Resource>, pods: &Listing) {
        let woken = {
            let mut index = self.index();
            let woken = index.apply_resources(scope, change);
            if !index.is_empty() {
                self.is_asked.send_if_modified(|is_asked| !std::mem::replace(is_asked, true));
            } else if !*self.is_asked.borrow() {
                // All is known that anybody asks for.
                pods.listed();
            }
            woken
        };
        for (key, trigger) in woken {
            self.queue.add(key, trigger);
        }
    }

    fn pod_changed(&self, scope: &Scope, change: Change<Named>) {
        let woken = self.index().apply_pods(scope, change.map(|pod| pod.key));
        for key in woken {
            self.queue.add(key, queue::POD);
        }
    }

    async fn write(&self, resource: &Resource, new: &MyCustomResourceStatus) -> Next {
        let Resource { key, uid, version, .. } = resource;
        self.index().writing.begin(uid, new.clone());
        let applied = statuses::apply::<MyCustomResource, Resource>(&self.clients, key, uid, Some(*version), new).await;
        let next = self.written(resource, new, applied);
        self.index().writing.end(uid);
        next
    }

    /// Takes in what became of a status.
    fn written(&self, resource: &Resource, new: &MyCustomResourceStatus, applied: Applied<Resource>) -> Next {
        let key = &resource.key;
        match applied {
            Applied::Written(stored) => {
                self.index().note_success(resource, self.env.now());
                self.answered(resource, Some(*stored));
                let friend = resource.friend.as_deref().unwrap_or_default();
                info!(resource = %key, friend, "{}", if new.healthy { "friend found" } else { "friend missing" });
                Next::Resync
            }
            Applied::Outdated(found) => {
                self.answered(resource, found.map(|found| *found));
                Next::At(self.env.now() + statuses::OUTDATED_RETRY)
            }
            Applied::Failed(error) => {
                let (wait, is_news) = self.index().note_failure(resource, &error, self.env.now());
                if is_news {
                    warn!(resource = %key, error, "the status may not have been written, trying again");
                } else {
                    debug!(resource = %key, error, "the status may not have been written again");
                }
                spans::failed(&error);
                Next::Retry(self.env.now() + self.env.jittered(wait, 0.1))
            }
            Applied::NotSent => Next::Resync,
        }
    }

    /// Takes in what a request for this resource was answered with; `None`: it is gone.
    fn answered(&self, resource: &Resource, found: Option<Resource>) {
        let woken = self.index().answered(resource, found);
        if let Some((key, trigger)) = woken {
            self.queue.add(key, trigger);
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for MyCustomResourceController {
    fn name(&self) -> &'static str {
        NAME
    }

    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let mut watches = Vec::new();
        for scope in &self.scopes {
            let (reader, env) = (&self.clients.read, &self.env);
            let path = requests::collection::<MyCustomResource>(scope);
            let what = "mycustomresources.poc.test.domain";
            let resources = Source { what, path, labels: None, metadata_only: false, is_stale };
            let (controller, of, listing) = (self.clone(), scope.clone(), self.synced.watch(what, scope));
            let pods = self.synced.watch(PODS, scope);
            pods.is_held_up();
            let pod_listing = pods.clone();
            let sink = move |change| controller.resource_changed(&of, change, &pods);
            watches.push(listwatch::run(reader.clone(), resources, env.clone(), listing, sink).boxed());

            let path = requests::collection::<Pod>(scope);
            let pods = Source { what: PODS, path, labels: None, metadata_only: true, is_stale };
            let (controller, of, mut is_asked) = (self.clone(), scope.clone(), self.is_asked.subscribe());
            let sink = move |change| controller.pod_changed(&of, change);
            let watch = listwatch::run(reader.clone(), pods, env.clone(), pod_listing, sink);
            watches.push(
                async move {
                    // It cannot fail: what asks lives as long as the watch.
                    let _ = is_asked.wait_for(|is_asked| *is_asked).await;
                    watch.await;
                }
                .boxed(),
            );
        }
        watches
    }

    fn synced(&self) -> &Synced {
        &self.synced
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.index().keys()
    }

    async fn reconcile(&self, key: &ObjectKey, _: Trigger) -> Next {
        let Some((resource, is_found)) = self.index().view(key) else {
            return Next::Never;
        };
        spans::note("object.generation", resource.generation);
        if resource.friend.is_none() {
            warn!(%resource.key, "the spec cannot be read: give spec.name the name of a pod");
            return Next::Resync;
        }
        let Some(is_found) = is_found else {
            // The first list of the pods wakes it.
            return Next::Resync;
        };
        let plan = spans::plan();
        let new = status::status(&resource, is_found, self.env.clock.wall());
        plan.set_attribute("plan.healthy", new.healthy);
        drop(plan);
        if status::is_same(&resource.status, &new) {
            return Next::Resync;
        }
        let due = self.index().next_write(&resource).filter(|due| self.env.now() < *due);
        match due {
            Some(due) => Next::At(due),
            None => self.write(&resource, &new).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_the_name_is_read() {
        // The metadata of a pod, as Kubernetes 1.36 sends it alone.
        let pod: Named = serde_json::from_slice(include_bytes!("../../tests/data/pod.metadata.json")).unwrap();
        assert_eq!((&*pod.key.name, pod.version), ("web-pod12345", 243));
    }
}
