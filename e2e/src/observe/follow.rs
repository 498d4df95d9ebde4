//! Follows one kind of object in one namespace: a consistent list, then watches from the resourceVersion where the last
//! one ended, so that no event is lost when a watch ends. Says what happened to whoever asked, in order.

use std::fmt::Debug;
use std::time::Duration;

use futures::TryStreamExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Error, Resource};
use serde::de::DeserializeOwned;

use crate::types::version;

/// What a follower tells.
pub enum Told<K> {
    /// All objects there are, as of a resourceVersion: at the start, and where the API server forgot where we were.
    Listed(Vec<K>, u64),
    Applied(K),
    /// An object is gone; its resourceVersion is that of its end.
    Deleted(K),
    /// Nothing else happened up to this resourceVersion.
    Nothing(u64),
}

/// Follows until the task is dropped; never fails, for a scenario that waits says what it has last seen.
pub async fn follow<K>(api: Api<K>, mut tell: impl FnMut(Told<K>))
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    loop {
        match api.list(&ListParams::default()).await {
            Ok(list) => {
                let from = list.metadata.resource_version.and_then(|v| v.parse().ok()).unwrap_or(0);
                tell(Told::Listed(list.items, from));
                watch_from(&api, from, &mut tell).await;
            }
            // The reason shows in the message of the scenario's wait: nothing was seen.
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Watches until the API server no longer knows the place where the last watch ended.
async fn watch_from<K>(api: &Api<K>, mut from: u64, tell: &mut impl FnMut(Told<K>))
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    loop {
        match watch_once(api, &mut from, tell).await {
            Ok(()) => {}
            Err(Error::Api(status)) if status.code == 410 => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn watch_once<K>(api: &Api<K>, from: &mut u64, tell: &mut impl FnMut(Told<K>)) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    let mut events = Box::pin(api.watch(&WatchParams::default(), &from.to_string()).await?);
    while let Some(event) = events.try_next().await? {
        let told = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Told::Applied(object),
            WatchEvent::Deleted(object) => Told::Deleted(object),
            WatchEvent::Bookmark(bookmark) => {
                Told::Nothing(bookmark.metadata.resource_version.parse().unwrap_or(*from))
            }
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        };
        *from = match &told {
            Told::Applied(object) | Told::Deleted(object) => version(object.meta()),
            Told::Nothing(version) | Told::Listed(_, version) => *version,
        };
        tell(told);
    }
    Ok(())
}
