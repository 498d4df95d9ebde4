//! Lists and watches a collection for ever, and passes on [`Change`]s in the order of their resourceVersions. It only reads.
//!
//! kube's watcher hides bookmarks and the version of a list. Without them a cache cannot tell a replayed event from a new one, nor a
//! deleted pod from one that was created during the list. kube's watcher also limits a page by its number of objects, but large objects
//! need a limit in bytes.

mod events;
mod explain;
mod list;
pub mod synced;

use std::{pin::pin, time::Duration};

use futures::{Stream, StreamExt};
use jiff::SignedDuration;
use kube::{
    Resource,
    core::{Request, WatchEvent, params::WatchParams},
};
use tracing::{debug, info};

use crate::{
    client::{ReadError, Reader},
    failures::{Waits, doubled},
    log_once::{LogOnce, warn_once},
    meta,
    text::in_full,
};
pub use crate::{meta::Watched, object_key::Scope};
use events::events;
use explain::{explain, is_missing};
use leadership::env::Env;
pub use list::list;
use synced::{Listing, State};

/// How long the API server may take to begin a watch. It needs about 15 s when it queues requests (API priority and fairness).
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A watch counts as dead after this time without an event. Bookmarks come about once a minute. If watches fail for so long, a list is made.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(150);

/// A watch that has lived for this time works, even without an event, unless the one before was silent.
const STEADY: Duration = Duration::from_secs(5);

/// The time after which the API server ends a watch, in seconds. kube allows less than 295 s. It can be long because
/// [`SILENCE_TIMEOUT`] notices a dead watch earlier.
const WATCH_SECONDS: u32 = 290;

/// The first and the longest wait after a failure.
const BACKOFF: Waits = (SignedDuration::from_millis(500), SignedDuration::from_secs(15));

/// The longest wait for a resource that the API server does not serve yet.
const MISSING_RETRY: SignedDuration = SignedDuration::from_secs(1);

/// A change from a list or a watch.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// All objects as of `version`: a consistent list.
    Snapshot {
        /// The objects.
        items: Vec<T>,
        /// The resourceVersion of the list.
        version: u64,
    },
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted, or is no longer selected.
    Deleted(T),
    /// A bookmark: all changes up to this resourceVersion have been returned.
    Progress(u64),
}

/// A collection to watch.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in logs: `podsets.app.example.com`.
    pub what: &'static str,
    /// The path of its collection.
    pub path: String,
    /// Label selector, if only some are watched.
    pub labels: Option<String>,
    /// Whether to request the metadata of each object only, which saves memory.
    pub metadata_only: bool,
    /// Whether an event with this resourceVersion is older than the last one and is dropped.
    pub is_stale: fn(version: u64, heard: u64) -> bool,
}

impl Source {
    /// All objects of a kind in this scope. `what` is their name in logs.
    pub fn new<K: Resource<DynamicType = ()>>(what: &'static str, scope: &Scope) -> Self {
        let path = K::url_path(&(), scope.as_deref());
        Source { what, path, labels: None, metadata_only: false, is_stale }
    }
}

/// The resourceVersions in a watch only rise, so an event with a lower one is a replay.
pub fn is_stale(version: u64, heard: u64) -> bool {
    version < heard
}

/// Lists and watches for ever, passes every change to `sink`, and reports its state in `listing`.
pub async fn run<T>(reader: Reader, source: Source, env: Env, listing: Listing, mut sink: impl FnMut(Change<T>))
where
    T: Watched,
{
    let mut backoff = WatchBackoff::default();
    let (what, env, listing) = (source.what, &env, &listing);
    loop {
        let mut version = match list(&reader, &source, |_| true).await {
            Ok((items, version)) => {
                // A list alone does not end the failures: the API server may reject each watch after it.
                sink(Change::Snapshot { items, version });
                listing.set(State::Listed);
                version
            }
            Err(error) => {
                backoff.report(what, &error, listing);
                backoff.pause(&error, env).await;
                continue;
            }
        };
        // When a list or a watch last brought a newer version.
        let mut progressed = env.now();
        loop {
            let before = version;
            let end = watch(&reader, &source, &mut version, &mut sink, &mut backoff).await;
            backoff.is_silent = matches!(&end, Err(ReadError::Timeout(SILENCE_TIMEOUT)));
            if version > before {
                backoff.recovered(what);
                progressed = env.now();
            }
            let error = match end {
                Ok(()) if version > before => continue,
                end => end.err().unwrap_or(ReadError::Idle),
            };
            let is_gone = is_gone(&error);
            // A restarted API server answers like this at first, so the first time resets the backoff.
            if is_gone && !std::mem::replace(&mut backoff.is_gone, true) {
                backoff.wait = None;
            }
            // Some ends are normal if they happen once, such as a version that is too old, a silent connection that was cut, or a watch that
            // ended without an event.
            let is_failure = backoff.wait.is_some() || !(is_gone || is_disconnected(&error));
            if is_failure {
                backoff.report(what, &error, listing);
            } else {
                debug!(error = in_full(&error), "the watch of {what} ended");
            }
            backoff.pause(&error, env).await;
            // Watches stay silent, are rejected, or end at once. A list shows what they miss.
            let is_late = env.now().duration_since(progressed).unsigned_abs() >= SILENCE_TIMEOUT;
            if is_gone || (is_failure && is_late) {
                break;
            }
        }
    }
}

/// Watches from `version` on until the watch ends, and updates `version`. When the watch has lived for [`STEADY`], the failures are over,
/// unless the watch before was silent.
async fn watch<T: Watched>(
    reader: &Reader,
    source: &Source,
    version: &mut u64,
    sink: &mut impl FnMut(Change<T>),
    backoff: &mut WatchBackoff,
) -> Result<(), ReadError> {
    let mut params = WatchParams { timeout: Some(WATCH_SECONDS), ..WatchParams::default() };
    params.label_selector = source.labels.clone();
    let (request, from) = (Request::new(source.path.as_str()), version.to_string());
    let request =
        if source.metadata_only { request.watch_metadata(&params, &from) } else { request.watch(&params, &from) };
    let request = request.map_err(kube::Error::BuildRequest)?;
    let Ok(events) = tokio::time::timeout(BEGIN_TIMEOUT, events(reader, request)).await else {
        return Err(ReadError::Timeout(BEGIN_TIMEOUT));
    };
    let mut following = pin!(follow(events?, source, version, sink));
    if let Ok(end) = tokio::time::timeout(STEADY, following.as_mut()).await {
        return end;
    }
    if !backoff.is_silent {
        backoff.recovered(source.what);
    }
    following.await
}

/// Passes on the events of a watch until it ends.
async fn follow<T: Watched>(
    mut events: impl Stream<Item = kube::Result<WatchEvent<T>>> + Unpin,
    source: &Source,
    version: &mut u64,
    sink: &mut impl FnMut(Change<T>),
) -> Result<(), ReadError> {
    loop {
        let event = match tokio::time::timeout(SILENCE_TIMEOUT, events.next()).await {
            Err(_) => return Err(ReadError::Timeout(SILENCE_TIMEOUT)),
            Ok(None) => return Ok(()),
            Ok(Some(event)) => event?,
        };
        let (object, change) = match event {
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            WatchEvent::Bookmark(bookmark) => {
                let event_version = meta::version(&bookmark.metadata.resource_version);
                *version = event_version.max(*version);
                sink(Change::Progress(event_version));
                continue;
            }
            WatchEvent::Deleted(object) => (object, Change::Deleted as fn(T) -> Change<T>),
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, Change::Applied as _),
        };
        let event_version = object.version();
        if (source.is_stale)(event_version, *version) {
            debug!(resource = source.what, version = event_version, "dropped a replayed event");
            continue;
        }
        *version = event_version.max(*version);
        sink(change(object));
    }
}

/// Whether the watch cannot continue where it stopped, and a list has to begin.
fn is_gone(error: &ReadError) -> bool {
    match error {
        ReadError::Api(kube::Error::Api(status)) if status.code == 410 || status.reason == "Expired" => true,
        // The line was not an event, or the resource is gone: a list shows the cause.
        ReadError::Api(kube::Error::SerdeError(_)) => true,
        error => is_missing(error),
    }
}

/// Whether the connection ended, broke, or could not be made.
fn is_disconnected(error: &ReadError) -> bool {
    use kube::Error::{HyperError, ReadEvents, Service};
    matches!(error, ReadError::Idle | ReadError::Api(Service(_) | HyperError(_) | ReadEvents(_)))
}

/// Consecutive failures: the last wait, if any, and what was logged.
#[derive(Default)]
struct WatchBackoff {
    wait: Option<SignedDuration>,
    logged: LogOnce,
    /// Whether, since the last success, a watch has failed in a way that needs a new list.
    is_gone: bool,
    /// Whether the last watch was silent.
    is_silent: bool,
}

impl WatchBackoff {
    /// The failures are over.
    fn recovered(&mut self, what: &str) {
        (self.wait, self.is_gone) = (None, false);
        if self.logged.forget() {
            info!("can list and watch {what} again");
        }
    }

    /// Logs each new failure once as a warning.
    fn report(&mut self, what: &str, error: &ReadError, listing: &Listing) {
        let (failure, cause) = (explain(what, error), in_full(error));
        listing.set(State::Failed(format!("{failure}; see the log")));
        warn_once!(self.logged.note(&cause), error = cause, "{failure}; trying again");
    }

    /// Waits, twice as long as last time.
    async fn pause(&mut self, error: &ReadError, env: &Env) {
        // Once the CRDs are installed, the operator should start soon.
        let longest = if is_missing(error) { MISSING_RETRY } else { BACKOFF.1 };
        let wait = *self.wait.insert(doubled(self.wait, (BACKOFF.0, longest)));
        env.sleep_until(env.now() + env.jittered(wait, 0.5)).await;
    }
}

#[cfg(test)]
mod tests;
