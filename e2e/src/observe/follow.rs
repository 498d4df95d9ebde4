//! Lists and watches one kind of object in one namespace. A new watch starts where the last one ended, so that no event is lost.

use std::fmt::Debug;
use std::time::Duration;

use futures::TryStreamExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Error, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::types::version;

/// One step of a watch.
pub enum Step<K> {
    /// All objects, at the start and after a gap, and the resourceVersion of the list.
    Listed(Vec<K>, u64),
    Applied(K),
    /// An object was deleted. Its resourceVersion is that of the deletion.
    Deleted(K),
    /// No other event up to this resourceVersion.
    Nothing(u64),
}

/// Follows until the task is dropped. It never fails: a scenario that waits reports what it saw last.
pub async fn follow<K>(api: Api<K>, mut handle: impl FnMut(Step<K>))
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    loop {
        match api.list(&ListParams::default()).await {
            Ok(list) => {
                let from = list.metadata.resource_version.and_then(|v| v.parse().ok()).unwrap_or(0);
                handle(Step::Listed(list.items, from));
                let mut from = from;
                // Until the API server has forgotten where the last watch ended.
                while !matches!(watch_once(&api, &mut from, &mut handle).await, Err(Error::Api(status)) if status.code == 410)
                {
                    sleep(Duration::from_millis(100)).await;
                }
            }
            Err(_) => sleep(Duration::from_millis(500)).await,
        }
    }
}

async fn watch_once<K>(api: &Api<K>, from: &mut u64, handle: &mut impl FnMut(Step<K>)) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    let mut events = Box::pin(api.watch(&WatchParams::default(), &from.to_string()).await?);
    while let Some(event) = events.try_next().await? {
        let step = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Step::Applied(object),
            WatchEvent::Deleted(object) => Step::Deleted(object),
            WatchEvent::Bookmark(bookmark) => {
                Step::Nothing(bookmark.metadata.resource_version.parse().unwrap_or(*from))
            }
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        };
        *from = match &step {
            Step::Applied(object) | Step::Deleted(object) => version(object.meta()),
            Step::Nothing(version) | Step::Listed(_, version) => *version,
        };
        handle(step);
    }
    Ok(())
}
