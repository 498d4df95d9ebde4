//! Watches a scenario's namespace, one watch for each kind, straight from the API server.

pub mod follow;
mod objects;
pub mod view;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use testkit::watches::{Stream, WatchedBound};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::types::{Pod, PodSet};
use follow::follow;
use objects::Objects;
use view::{Seen, View};

/// The watches of one namespace. They end when this is dropped.
pub struct Observer {
    client: Client,
    namespace: String,
    state: Arc<State>,
    watches: JoinSet<()>,
}

#[derive(Default)]
struct State {
    seen: Mutex<(View, WatchedBound)>,
    changed: watch::Sender<()>,
}

impl Observer {
    pub fn start(client: &Client, namespace: &str) -> Self {
        let (client, namespace) = (client.clone(), namespace.to_owned());
        let mut observer = Self { client, namespace, state: Arc::default(), watches: JoinSet::new() };
        observer.watch(|view| &mut view.sets, Some(Stream::Sets));
        observer.watch(|view| &mut view.pods, Some(Stream::Pods));
        observer.watch(|view| &mut view.all_events, None);
        observer.watch(|view| &mut view.leases, None);
        observer
    }

    fn watch<K>(&mut self, objects: fn(&mut View) -> &mut Objects<K>, stream: Option<Stream>)
    where
        K: Clone + Debug + DeserializeOwned + Send + Serialize + Sync + 'static,
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let state = self.state.clone();
        let api = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        self.watches.spawn(follow(api, move |step| {
            let (view, bound) = &mut *state.seen.lock();
            objects(view).take_in(step, bound, stream);
            state.changed.send_replace(());
        }));
    }

    /// Waits until `look` is satisfied. Fails with what it saw last after `limit`, or as soon as a set has too many pods.
    pub async fn until<T>(&self, what: &str, limit: Duration, mut look: impl FnMut(&View) -> Seen<T>) -> Result<T> {
        let mut changes = self.state.changed.subscribe();
        let end = Instant::now() + limit;
        loop {
            changes.borrow_and_update();
            let last = {
                let (view, bound) = &*self.state.seen.lock();
                fail_if_over(bound)?;
                match look(view) {
                    Ok(found) => return Ok(found),
                    Err(last) => last,
                }
            };
            if timeout(end.saturating_duration_since(Instant::now()), changes.changed()).await.is_err() {
                bail!("waited {} s for {what}; last seen: {last}", limit.as_secs());
            }
        }
    }

    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.state.seen.lock().0)
    }

    /// Waits until the watches match a list. Fails if a set ever had too many pods. Returns how many events it checked.
    pub async fn bound_held(&self) -> Result<usize> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let sets =
                Api::<PodSet>::namespaced(self.client.clone(), &self.namespace).list(&ListParams::default()).await?;
            let pods =
                Api::<Pod>::namespaced(self.client.clone(), &self.namespace).list(&ListParams::default()).await?;
            {
                let (view, bound) = &mut *self.state.seen.lock();
                fail_if_over(bound)?;
                if view.sets.are(&sets.items) && view.pods.are(&pods.items) {
                    bound.progress(Stream::Sets, sets.metadata.resource_version.unwrap_or_default().parse()?);
                    bound.progress(Stream::Pods, pods.metadata.resource_version.unwrap_or_default().parse()?);
                    fail_if_over(bound)?;
                    return Ok(bound.checked());
                }
            }
            ensure!(Instant::now() < end, "the watches do not catch up with lists");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

fn fail_if_over(bound: &WatchedBound) -> Result<()> {
    match bound.violations() {
        [] => Ok(()),
        [first, others @ ..] => bail!("TOO MANY PODS: {first} (and after {} later events)", others.len()),
    }
}
