//! Lists and watches a collection, and passes on [`Change`]s in the order of their resourceVersions. It only reads, and never ends by itself.
//!
//! kube's watcher hides the version of a list and the bookmarks. Without them a cache cannot tell a replayed event from a new one, nor a
//! deleted pod from one that was created during the list. It also counts the objects of a page, where large objects need a limit in bytes.

mod events;
mod explain;
mod list;
mod source;
pub mod synced;

use std::{pin::pin, time::Duration};

use futures::{Stream, StreamExt};
use jiff::SignedDuration;
use kube::core::{Request, WatchEvent, params::WatchParams};
use tracing::{debug, info};

use crate::client::{ReadError, Reader};
use events::events;
use explain::{explain, is_missing, reason};
use leadership::{
    env::Env,
    log_once::{LogOnce, warn_once},
};
pub use list::list;
pub use source::{Change, Scope, Source, Watched, is_stale, version};
use synced::Listing;

/// How long the API server may take to begin a watch. It does so at once, or after a quarter of a minute when requests queue for their turn.
const BEGINS: Duration = Duration::from_secs(30);

/// A watch counts as dead after this long without an event. Bookmarks come about once a minute.
const SILENCE: Duration = Duration::from_secs(150);

/// A watch that has lived for this long is well, even without an event.
const STEADY: Duration = Duration::from_secs(5);

/// The time after which the API server shall end a watch.
const WATCH_SECONDS: u32 = 290;

/// The first and the longest wait after a failure.
const BACKOFF: (SignedDuration, SignedDuration) = (SignedDuration::from_millis(500), SignedDuration::from_secs(15));

/// The longest wait for a resource that the API server does not serve yet.
const MISSING_RETRY: SignedDuration = SignedDuration::from_secs(1);

/// Why a watch ended.
enum End {
    /// In the ordinary way: continue where it stopped.
    Closed,
    /// The API server no longer knows the version or the resource: begin with a list.
    Gone(ReadError),
    /// It failed.
    Failed(ReadError),
}

/// Lists and watches for ever, passes every change to `sink`, and reports its state in `listing`.
pub async fn run<T>(reader: Reader, source: Source, env: Env, listing: Listing, mut sink: impl FnMut(Change<T>))
where
    T: Watched,
{
    let mut trouble = Trouble::new(&source, &env, &listing);
    loop {
        let mut version = match list(&reader, &source, |_| true).await {
            Ok((items, version)) => {
                // The failures end only with a watch: the API server may reject each one after a list.
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

/// Watches from `version` on until the watch ends, and moves `version` on. When the watch has lived for a while, the failures are over.
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

/// Requests a watch from `version` on.
async fn ask<T: Watched>(
    reader: &Reader,
    source: &Source,
    version: u64,
) -> Result<impl Stream<Item = kube::Result<WatchEvent<T>>> + Unpin + use<T>, ReadError> {
    let request = Request::new(source.path.as_str());
    let mut params = WatchParams { timeout: Some(WATCH_SECONDS), ..WatchParams::default() };
    params.label_selector = source.labels.map(str::to_owned);
    let from = version.to_string();
    let request =
        if source.metadata_only { request.watch_metadata(&params, &from) } else { request.watch(&params, &from) };
    let request = request.map_err(kube::Error::BuildRequest)?;
    match tokio::time::timeout(BEGINS, events(reader, request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ReadError::Timeout(BEGINS)),
    }
}

/// Passes on the events of a watch until it ends.
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

/// Whether the watch cannot continue where it stopped.
fn is_gone(error: &ReadError) -> bool {
    match error {
        ReadError::Api(kube::Error::Api(status)) if status.code == 410 || status.reason == "Expired" => true,
        // It was no event, or the resource is gone: a list shows the cause.
        ReadError::Api(kube::Error::SerdeError(_)) => true,
        error => is_missing(error),
    }
}

/// Whether the connection broke, or was never made.
fn is_cut(error: &ReadError) -> bool {
    matches!(error, ReadError::Api(kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_)))
}

/// Consecutive failures: the wait before the next try, and what was logged.
struct Trouble<'a> {
    what: &'static str,
    env: &'a Env,
    listing: &'a Listing,
    wait: SignedDuration,
    said: LogOnce,
    /// Whether a watch was gone since the last success.
    is_gone: bool,
}

impl<'a> Trouble<'a> {
    fn new(source: &Source, env: &'a Env, listing: &'a Listing) -> Self {
        Trouble { what: source.what, env, listing, wait: BACKOFF.0, said: LogOnce::default(), is_gone: false }
    }

    /// The failures are over.
    fn over(&mut self) {
        self.wait = BACKOFF.0;
        self.is_gone = false;
        if self.said.forget() {
            info!("the API server answers for {} again", self.what);
        }
    }

    /// Waits after a watch that is gone. An API server that comes back answers so at first, which is no repetition of the failures before.
    async fn begin_anew(&mut self, error: &ReadError) {
        if !std::mem::replace(&mut self.is_gone, true) {
            self.wait = BACKOFF.0;
        }
        self.wait_again(error).await;
    }

    /// Waits after an event that is ordinary if it happens once: a version grew too old, a silent connection was cut. Logs it if it follows
    /// another failure.
    async fn wait_again(&mut self, error: &ReadError) {
        if self.wait > BACKOFF.0 {
            return self.wait(error).await;
        }
        debug!("{}", explain(self.what, error));
        self.pause().await;
    }

    /// Waits after a watch that ended soon and without an event. Logs it if it follows another failure.
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

    /// Warns of each new failure once. Readiness shows `reason` only.
    fn say(&mut self, reason: String, sentence: &str) {
        self.listing.waits(reason);
        warn_once!(self.said.note(sentence), "{sentence}");
    }

    /// Logs the failure, and waits.
    async fn wait(&mut self, error: &ReadError) {
        self.say(reason(self.what, error), &explain(self.what, error));
        // After the CRDs are installed the operator should start soon.
        if is_missing(error) {
            self.wait = self.wait.min(MISSING_RETRY);
        }
        self.pause().await;
    }
}

#[cfg(test)]
mod tests;
