//! The MyCustomResource controller: reports whether the friend of each resource exists.
//!
//! The cache ([`index`]) holds the resources and the names of all pods in the watched namespaces. Pods are watched once there is a
//! resource. [`status`] makes the content of a status, and [`operator_kit::pace`] decides when it is written.

mod index;
mod status;

use std::sync::{Arc, Mutex};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::{Span, info, info_span, warn};

use crate::api::{MyCustomResource, MyCustomResourceStatus};
use index::{Index, Resource};
use leadership::env::Env;
use operator_kit::{
    ObjectKey,
    client::Clients,
    listwatch::{
        self, Change, Scope, Source, Watched,
        synced::{Listing, State, Synced},
    },
    lock, meta,
    pace::Pace,
    queue::{self, Queue, Trigger},
    runner::{Controller, Next},
    statuses::{self, Applied},
    telemetry::{metrics::Metrics, spans},
};

/// The name of the controller in logs and metrics.
const NAME: &str = "mycustomresource";

/// What messages call the watch of pods.
const PODS: &str = "names of pods";

/// A pod, of which only the name is decoded.
#[derive(Debug, Deserialize)]
struct Named {
    metadata: NameMeta,
}

/// The watch returns all pods of the cluster, so nothing else of their metadata is decoded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameMeta {
    name: String,
    namespace: String,
    resource_version: String,
}

impl From<Named> for ObjectKey {
    fn from(pod: Named) -> Self {
        ObjectKey::new(pod.metadata.namespace, pod.metadata.name)
    }
}

impl Watched for Named {
    fn version(&self) -> u64 {
        meta::version(&self.metadata.resource_version)
    }
}

/// The controller of MyCustomResources.
pub struct MyCustomResourceController {
    env: Env,
    clients: Clients,
    scopes: Vec<Scope>,
    index: Mutex<Index>,
    /// Cancelled once there is a resource. That starts the watch of pods.
    needs_pods: CancellationToken,
    queue: Queue,
    synced: Synced,
}

impl MyCustomResourceController {
    /// A controller with empty caches.
    pub fn new(env: Env, clients: Clients, scopes: Vec<Scope>, metrics: &Metrics) -> Self {
        let (queue, synced) = (Queue::new(env.clone(), metrics.controller(NAME).queue), Synced::default());
        let index = Mutex::new(Index::new(&scopes));
        MyCustomResourceController { env, clients, scopes, index, needs_pods: CancellationToken::new(), queue, synced }
    }

    /// Applies a change of resources and queues the affected ones. `pods`: the state of the pod watch, which starts with the first resource.
    fn resource_changed(&self, scope: &Scope, change: Change<Resource>, pods: &Listing) {
        let to_reconcile = {
            let mut index = lock(&self.index);
            let to_reconcile = index.apply_resources(scope, change);
            if !index.is_empty() {
                self.needs_pods.cancel();
            } else if !self.needs_pods.is_cancelled() {
                // Without a resource there is no watch of pods: count it as synced.
                pods.set(State::Listed);
            }
            to_reconcile
        };
        for (key, trigger) in to_reconcile {
            self.queue.add(key, trigger);
        }
    }

    fn pod_changed(&self, scope: &Scope, change: Change<Named>) {
        let to_reconcile = lock(&self.index).apply_pods(scope, change);
        for key in to_reconcile {
            self.queue.add(key, queue::POD);
        }
    }

    async fn write(&self, resource: &Resource, new: &MyCustomResourceStatus) -> Next {
        let Resource { key, uid, version, generation, friend, .. } = resource;
        let applied = statuses::apply::<MyCustomResource, Resource>(&self.clients, key, uid, Some(*version), new).await;
        let (now, generation) = (self.env.now(), Some(*generation));
        match applied {
            Applied::Written(stored) => {
                lock(&self.index).pace(resource).into_iter().for_each(|pace| pace.written(generation, now));
                self.answered(resource, Some(stored));
                info!(resource = %key, friend = friend.as_deref(), "{}", if new.healthy { "friend found" } else { "friend missing" });
                Next::Resync
            }
            Applied::Outdated(found) => {
                self.answered(resource, found);
                Next::At(now + statuses::OUTDATED_RETRY)
            }
            Applied::Failed(error) => {
                let failed = lock(&self.index).pace(resource).map(|pace| pace.failed(generation, &error, now));
                let Some((wait, is_news)) = failed else { return Next::Never };
                statuses::log_failure(key, &error, is_news);
                Next::Retry(now + self.env.jittered(wait, 0.1))
            }
            Applied::NotLeading => Next::Resync,
        }
    }

    /// Applies the answer to a request for this resource; `None`: it is gone.
    fn answered(&self, resource: &Resource, found: Option<Resource>) {
        let to_reconcile = lock(&self.index).answered(resource, found);
        if let Some((key, trigger)) = to_reconcile {
            self.queue.add(key, trigger);
        }
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
            let resources = Source::new::<MyCustomResource>("mycustomresources.poc.test.domain", scope);
            let listing = self.synced.register(resources.what, scope);
            let (controller, watched) = (self.clone(), scope.clone());
            let pods = self.synced.register(PODS, scope);
            pods.set(State::NotStarted);
            let pod_listing = pods.clone();
            let sink = move |change| controller.resource_changed(&watched, change, &pods);
            watches.push(listwatch::run(reader.clone(), resources, env.clone(), listing, sink).boxed());

            let pods = Source { metadata_only: true, ..Source::new::<Pod>(PODS, scope) };
            let (controller, watched, needs_pods) = (self.clone(), scope.clone(), self.needs_pods.clone());
            let sink = move |change| controller.pod_changed(&watched, change);
            let watch = listwatch::run(reader.clone(), pods, env.clone(), pod_listing, sink);
            watches.push(needs_pods.cancelled_owned().then(|()| watch).boxed());
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
        lock(&self.index).keys()
    }

    async fn reconcile(&self, key: &ObjectKey, _: Trigger) -> Next {
        let Some((resource, is_found)) = lock(&self.index).view(key) else {
            return Next::Never;
        };
        spans::record("object.generation", resource.generation);
        if resource.friend.is_none() {
            warn!(resource = %resource.key, "the spec is invalid: set spec.name to the name of a pod");
            return Next::Resync;
        }
        let Some(is_found) = is_found else {
            // Each first list of a namespace queues the resource again.
            return Next::Resync;
        };
        let new = status::status(&resource, is_found, self.env.clock.wall());
        if !Span::current().is_none() {
            // The span has no duration, because the decision takes almost no time.
            drop(info_span!(target: spans::TARGET, "plan", plan.healthy = new.healthy));
        }
        if status::is_same(&resource.status, &new) {
            lock(&self.index).pace(&resource).into_iter().for_each(Pace::up_to_date);
            return Next::Resync;
        }
        let due =
            lock(&self.index).pace(&resource).and_then(|pace| pace.due(new.observed_generation, true, self.env.now()));
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
    fn pod_metadata_is_read() {
        // The PartialObjectMetadata of a pod, as Kubernetes 1.36 sends it.
        let pod: Named = serde_json::from_slice(include_bytes!("../../tests/data/pod.metadata.json")).unwrap();
        assert_eq!((pod.version(), &*ObjectKey::from(pod).name), (243, "web-pod12345"));
    }
}
