//! A list-watch that tells what a cache needs to be right: the resourceVersion of every list, event and bookmark.
//!
//! kube's own watcher hides the version of a list and the bookmarks, without which a cache cannot tell a replayed event
//! from a new one, nor a pod that is gone from one that was created while the list was being made (`promise.rs`).
//! In: a path to watch. Out: [`Change`]s, in the order of their versions. It only reads, and it never ends by itself.

mod events;
mod explain;
mod list;
pub mod synced;

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use jiff::SignedDuration;
use kube::core::{Request, WatchEvent, params::WatchParams};
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

use crate::client::{ReadError, Reader};
use events::events;
use explain::{explain, is_missing, reason};
use leadership::{env::Env, log_once::LogOnce};
pub use list::list;
use synced::Listing;

/// How long the API server may take to begin to answer a watch: it does so at once, but where it is so busy that requests wait for
/// their turn, a quarter of a minute at most.
const BEGINS: Duration = Duration::from_secs(30);

/// A watch that says nothing for so long, not even a bookmark (about one a minute), is taken for dead.
const SILENCE: Duration = Duration::from_secs(150);

/// A watch that has lived for so long is well, even if nothing happened that it could tell.
const STEADY: Duration = Duration::from_secs(5);

/// How long the API server is asked to serve a watch.
const WATCH_SECONDS: u32 = 290;

/// The first and the longest wait after a failure.
const BACKOFF: (SignedDuration, SignedDuration) = (SignedDuration::from_millis(500), SignedDuration::from_secs(15));

/// The longest wait for a resource that the API server does not serve yet.
const MISSING_RETRY: SignedDuration = SignedDuration::from_secs(1);

/// A namespace to watch; `None` is all of them.
pub type Scope = Option<Arc<str>>;

/// What a watch says.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// Everything there is, as of `version`: a consistent list.
    Snapshot {
        /// The objects.
        items: Vec<T>,
        /// The resourceVersion of the list.
        version: u64,
    },
    /// An object is there, or changed.
    Applied(T),
    /// An object is gone, or no longer selected.
    Deleted(T),
    /// Nothing happened up to this resourceVersion.
    Progress(u64),
}

impl<T> Change<T> {
    /// The same change of something else.
    pub fn map<U>(self, to: impl Fn(T) -> U) -> Change<U> {
        match self {
            Change::Snapshot { items, version } => {
                Change::Snapshot { items: items.into_iter().map(to).collect(), version }
            }
            Change::Applied(object) => Change::Applied(to(object)),
            Change::Deleted(object) => Change::Deleted(to(object)),
            Change::Progress(version) => Change::Progress(version),
        }
    }
}

/// What is watched.
#[derive(Clone, Debug)]
pub struct Source {
    /// What is watched, in a word for people: `podsets.app.example.com`.
    pub what: &'static str,
    /// The path of its collection.
    pub path: String,
    /// Label selector, if only some are watched.
    pub labels: Option<&'static str>,
    /// Field selector, if only some are watched.
    pub fields: Option<String>,
    /// Whether only the objects' metadata is asked for.
    pub metadata_only: bool,
    /// Whether an event of this resourceVersion is older than what was heard already; such an event is dropped.
    pub is_stale: fn(version: u64, heard: u64) -> bool,
}

/// The resourceVersions of a watch only rise: what comes with a lower one is a replay.
pub fn is_stale(version: u64, heard: u64) -> bool {
    version < heard
}

/// Why a watch ended.
enum End {
    /// In the ordinary way: go on where it stopped.
    Closed,
    /// The API server no longer knows the version, or what is watched: begin with a list.
    Gone(ReadError),
    /// It failed.
    Failed(ReadError),
}

/// Lists and watches for ever, hands every change to `sink`, and says in `listing` how it fares.
pub async fn run<T>(reader: Reader, source: Source, env: Env, listing: Listing, mut sink: impl FnMut(Change<T>))
where
    T: Watched,
{
    let mut trouble = Trouble::new(&source, &env, &listing);
    loop {
        let mut version = match list(&reader, &source, |_| true).await {
            Ok((items, version)) => {
                // Only a watch shows that all is well again: each could be refused after a list that was not.
                sink(Change::Snapshot { items, version });
                listing.listed();
                version
            }
            Err(error) => {
                trouble.wait(&error).await;
                continue;
            }
        };
        loop {
            let before = version;
            let end = watch(&reader, &source, &mut version, &mut sink, &mut trouble).await;
            if version > before {
                trouble.over();
            }
            match end {
                End::Closed if version > before => {}
                End::Closed => trouble.closed().await,
                End::Gone(error) => {
                    trouble.begin_anew(&error).await;
                    break;
                }
                End::Failed(error) if is_cut(&error) => trouble.wait_again(&error).await,
                End::Failed(error) => trouble.wait(&error).await,
            }
        }
    }
}

/// Watches from `version` on until the watch ends, and keeps `version` at what was last heard. Once the watch has lived for a
/// while, the trouble is over.
async fn watch<T>(
    reader: &Reader,
    source: &Source,
    version: &mut u64,
    sink: &mut impl FnMut(Change<T>),
    trouble: &mut Trouble<'_>,
) -> End
where
    T: Watched,
{
    let events = match ask(reader, source, *version).await {
        Ok(events) => events,
        Err(error) => return ended_by(error),
    };
    let mut following = pin!(follow(events, source, version, sink));
    if let Ok(end) = tokio::time::timeout(STEADY, following.as_mut()).await {
        return end;
    }
    trouble.over();
    following.await
}

/// Asks for a watch from `version` on.
async fn ask<T: Watched>(
    reader: &Reader,
    source: &Source,
    version: u64,
) -> Result<impl Stream<Item = kube::Result<WatchEvent<T>>> + Unpin + use<T>, ReadError> {
    let request = Request::new(source.path.as_str());
    let mut params = WatchParams { timeout: Some(WATCH_SECONDS), ..WatchParams::default() };
    params.label_selector = source.labels.map(str::to_owned);
    params.field_selector.clone_from(&source.fields);
    let from = version.to_string();
    let request =
        if source.metadata_only { request.watch_metadata(&params, &from) } else { request.watch(&params, &from) };
    let request = request.map_err(kube::Error::BuildRequest)?;
    match tokio::time::timeout(BEGINS, events(reader, request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ReadError::Timeout(BEGINS)),
    }
}

/// Hands on what a watch says until it ends.
async fn follow<T>(
    mut events: impl Stream<Item = kube::Result<WatchEvent<T>>> + Unpin,
    source: &Source,
    version: &mut u64,
    sink: &mut impl FnMut(Change<T>),
) -> End
where
    T: Watched,
{
    loop {
        let event = match tokio::time::timeout(SILENCE, events.next()).await {
            Err(_) => return End::Failed(ReadError::Timeout(SILENCE)),
            Ok(None) => return End::Closed,
            Ok(Some(Err(error))) => return ended_by(error.into()),
            Ok(Some(Ok(event))) => event,
        };
        let (change, heard) = match event {
            WatchEvent::Error(status) => return ended_by(kube::Error::Api(status).into()),
            WatchEvent::Bookmark(bookmark) => {
                let heard = self::version(&bookmark.metadata.resource_version);
                *version = heard.max(*version);
                sink(Change::Progress(heard));
                continue;
            }
            WatchEvent::Deleted(object) => {
                let heard = object.version();
                (Change::Deleted(object), heard)
            }
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let heard = object.version();
                (Change::Applied(object), heard)
            }
        };
        if (source.is_stale)(heard, *version) {
            debug!(resource = source.what, version = heard, "dropped a replayed event");
            continue;
        }
        *version = heard.max(*version);
        sink(change);
    }
}

fn ended_by(error: ReadError) -> End {
    if is_gone(&error) { End::Gone(error) } else { End::Failed(error) }
}

/// Whether to go on where the watch stopped makes no sense.
fn is_gone(error: &ReadError) -> bool {
    match error {
        ReadError::Api(kube::Error::Api(status)) if status.code == 410 || status.reason == "Expired" => true,
        // What came is no event, or the resource itself is gone: a list tells what is the matter.
        ReadError::Api(kube::Error::SerdeError(_)) => true,
        error => is_missing(error),
    }
}

/// Whether the connection broke, or was never made.
fn is_cut(error: &ReadError) -> bool {
    matches!(error, ReadError::Api(kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_)))
}

/// An object that is listed and watched.
pub trait Watched: DeserializeOwned {
    /// The resourceVersion, as a number: they compare from Kubernetes 1.35 on, within one resource.
    fn version(&self) -> u64;
}

/// A resourceVersion as a number; 0 for one that is none.
pub fn version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Failures in a row: how long to wait, and what was said about it already.
struct Trouble<'a> {
    what: &'static str,
    env: &'a Env,
    listing: &'a Listing,
    wait: SignedDuration,
    said: LogOnce,
    /// Whether a watch was gone since all was well.
    is_gone: bool,
}

impl<'a> Trouble<'a> {
    fn new(source: &Source, env: &'a Env, listing: &'a Listing) -> Self {
        Trouble { what: source.what, env, listing, wait: BACKOFF.0, said: LogOnce::default(), is_gone: false }
    }

    /// All is well again.
    fn over(&mut self) {
        self.wait = BACKOFF.0;
        self.is_gone = false;
        if self.said.forget() {
            info!("the API server answers for {} again", self.what);
        }
    }

    /// Waits after a watch that is gone. After an API server was away this is how it begins to answer: the first time is no
    /// repetition of what was before.
    async fn begin_anew(&mut self, error: &ReadError) {
        if !std::mem::replace(&mut self.is_gone, true) {
            self.wait = BACKOFF.0;
        }
        self.wait_again(error).await;
    }

    /// Waits after what is ordinary if it happens once: a version grew too old, a silent connection was cut. Says what is
    /// wrong if all was not well since the last time.
    async fn wait_again(&mut self, error: &ReadError) {
        if self.wait > BACKOFF.0 {
            return self.wait(error).await;
        }
        debug!("{}", explain(self.what, error));
        self.pause().await;
    }

    /// Waits after a watch that ended soon and without a word. Says so if it is not the first in a row.
    async fn closed(&mut self) {
        if self.wait > BACKOFF.0 {
            let what = self.what;
            let sentence = format!(
                "the watch of {what} ends as soon as it is quiet, trying again: perhaps a proxy before the API server cuts it"
            );
            self.say(sentence.clone(), &sentence);
        }
        self.pause().await;
    }

    /// Waits, twice as long as the last time.
    async fn pause(&mut self) {
        let wait = self.env.jittered(self.wait, 0.5);
        self.wait = self.wait.saturating_mul(2).min(BACKOFF.1);
        self.env.sleep_until(self.env.now() + wait).await;
    }

    /// Logs what is wrong, once for each new sentence. Readiness shows `reason` only.
    fn say(&mut self, reason: String, sentence: &str) {
        self.listing.waits(reason);
        if self.said.note(sentence) {
            warn!("{sentence}");
        } else {
            debug!("{sentence}");
        }
    }

    /// Says what is wrong, and waits.
    async fn wait(&mut self, error: &ReadError) {
        self.say(reason(self.what, error), &explain(self.what, error));
        // Whoever installs CRDs does not want to wait for what follows.
        if is_missing(error) {
            self.wait = self.wait.min(MISSING_RETRY);
        }
        self.pause().await;
    }
}

#[cfg(test)]
mod tests;
