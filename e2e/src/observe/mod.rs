//! Eyes on a scenario's namespace: one watch for each kind, straight from the API server and never through the proxy
//! that torments the operator, and waits for what they see.

pub mod bound;
#[cfg(test)]
mod fixtures;
pub mod follow;
mod objects;
pub mod view;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::types::{MyCustomResource, Pod, PodSet};
use bound::{Bound, Stream};
use follow::follow;
use objects::{Kind, take_in};
use view::{Seen, View};

/// The watches of one namespace; they end when it is dropped.
pub struct Observer {
    client: Client,
    namespace: String,
    state: Arc<State>,
    _watches: JoinSet<()>,
}

#[derive(Default)]
struct State {
    seen: Mutex<(View, Bound)>,
    changed: watch::Sender<()>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, (View, Bound)> {
        // A scenario that panicked while it looked has not changed anything.
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Observer {
    /// Begins to watch.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let state = Arc::new(State::default());
        let mut watches = JoinSet::new();
        watches.spawn(watch_kind::<PodSet>(client.clone(), namespace.to_owned(), state.clone()));
        watches.spawn(watch_kind::<Pod>(client.clone(), namespace.to_owned(), state.clone()));
        watches.spawn(watch_kind::<MyCustomResource>(client.clone(), namespace.to_owned(), state.clone()));
        watches.spawn(watch_kind::<Event>(client.clone(), namespace.to_owned(), state.clone()));
        watches.spawn(watch_kind::<Lease>(client.clone(), namespace.to_owned(), state.clone()));
        Self { client: client.clone(), namespace: namespace.to_owned(), state, _watches: watches }
    }

    /// Waits until `look` is satisfied, and fails with what it saw last after `limit`, or as soon as a set has too many
    /// pods: nothing that happens after that makes it right.
    pub async fn until<T>(&self, what: &str, limit: Duration, mut look: impl FnMut(&View) -> Seen<T>) -> Result<T> {
        let mut changes = self.state.changed.subscribe();
        let end = Instant::now() + limit;
        loop {
            changes.borrow_and_update();
            let last = {
                let (view, bound) = &*self.state.lock();
                fail_if_over(bound)?;
                match look(view) {
                    Ok(found) => return Ok(found),
                    Err(last) => last,
                }
            };
            let left = end.saturating_duration_since(Instant::now());
            if tokio::time::timeout(left, changes.changed()).await.is_err() {
                bail!("waited {} s for {what}; last seen: {last}", limit.as_secs());
            }
        }
    }

    /// Looks once, now.
    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.state.lock().0)
    }

    /// Waits until everything that has happened so far was seen, and fails if a set ever had too many pods. Answers
    /// how many events were judged.
    pub async fn bound_held(&self) -> Result<usize> {
        let (sets, sets_version) = self.list::<PodSet>().await?;
        let (pods, pods_version) = self.list::<Pod>().await?;
        self.until("the watches to catch up with a list", Duration::from_secs(60), |view| {
            view.sets.caught_up(&sets, sets_version)?;
            view.pods.caught_up(&pods, pods_version)
        })
        .await?;
        let (_, bound) = &mut *self.state.lock();
        bound.progress(Stream::Sets, sets_version);
        bound.progress(Stream::Pods, pods_version);
        fail_if_over(bound)?;
        Ok(bound.judged())
    }

    async fn list<K: Kind>(&self) -> Result<(Vec<K>, u64)> {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = api.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.as_deref().unwrap_or_default().parse()?;
        Ok((list.items, version))
    }
}

async fn watch_kind<K: Kind>(client: Client, namespace: String, state: Arc<State>) {
    follow::<K>(Api::namespaced(client, &namespace), |told| {
        let (view, bound) = &mut *state.lock();
        take_in(view, bound, told);
        state.changed.send_replace(());
    })
    .await;
}

fn fail_if_over(bound: &Bound) -> Result<()> {
    let violations = bound.violations();
    if let Some(first) = violations.first() {
        bail!("TOO MANY PODS: {first} (and after {} later events)", violations.len() - 1);
    }
    Ok(())
}
