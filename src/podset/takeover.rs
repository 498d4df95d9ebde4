//! The reads before the first write to a set in a term.
//!
//! The watches of a standby may have stalled while others led. So before the first write to a set in a term, all PodSets and pods of its
//! namespace are listed, including pods without the label: once per namespace and term, and again for a set that begins to wait for
//! terminations. The first reconcile that needs the lists makes them, and other sets of the namespace are queued when it has. This file only
//! reads.
//!
//! Of the objects in a list, only those that the caches do not know in this state are kept in memory.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex},
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;
use tracing::warn;

use super::{
    context::Context,
    observe::{Pod, Set},
};
use operator_kit::{
    ObjectKey,
    client::ReadError,
    failures::{Failures, Waits},
    listwatch::{self, Scope, Source},
    lock,
    meta::Uid,
    queue,
    runner::Next,
    text::in_full,
};

/// The first and the longest wait after a failed read.
const RETRY: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(8));

/// How many namespaces are read at a time, each by a worker of the controller.
const NAMESPACES_AT_ONCE: usize = 16;

/// If too many namespaces are being read, the set is reconciled again after this time.
const TURN_RETRY: SignedDuration = SignedDuration::from_millis(200);

/// Which namespaces and sets still need a read in this term.
#[derive(Debug)]
pub struct TakeOver {
    state: Mutex<State>,
    slots: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// The read of each namespace.
    namespaces: HashMap<Arc<str>, Shared>,
    /// The last read of each namespace for sets whose pods the cache may have forgotten since.
    last_rereads: HashMap<Arc<str>, Shared>,
    /// The same reads, by the sets that need them.
    rereads: HashMap<Uid, Shared>,
}

/// A read that several sets need.
type Shared = Arc<Mutex<Read>>;

/// The lists of the sets and pods of a namespace.
#[derive(Debug, Default)]
struct Read {
    is_begun: bool,
    is_done: bool,
    failures: Failures,
    /// When to try again after a failure.
    again: Option<Timestamp>,
    /// The sets that wait for its end.
    waiting: BTreeSet<ObjectKey>,
}

impl Default for TakeOver {
    fn default() -> Self {
        TakeOver { state: Mutex::default(), slots: Semaphore::new(NAMESPACES_AT_ONCE) }
    }
}

impl TakeOver {
    /// Begins a term: every set needs a read before its first write.
    pub fn begin(&self) {
        *lock(&self.state) = State::default();
    }

    /// Whether the namespace of the set must be read before its next write.
    pub fn is_unread(&self, set: &Set) -> bool {
        let state = lock(&self.state);
        let read = state.rereads.get(&set.uid).or_else(|| state.namespaces.get(&set.key.namespace));
        !read.is_some_and(|read| lock(read).is_done)
    }

    /// The cache may have forgotten pods of this set that count now. Its namespace is read again before its next write. A read in progress
    /// may be too old for that.
    pub fn require_reread(&self, set: &Set) {
        let mut state = lock(&self.state);
        let read = state.last_rereads.entry(set.key.namespace.clone()).or_default();
        if lock(read).is_begun {
            *read = Shared::default();
        }
        let read = read.clone();
        state.rereads.insert(set.uid.clone(), read);
    }

    /// Reads the namespace of a set. The error is when to try again: another reconcile is reading the namespace, and will queue the sets that
    /// wait for it; or too many namespaces are being read; or the read failed. [`Next::Never`]: the process ends.
    pub async fn read(&self, context: &Context, set: &Set) -> Result<(), Next> {
        let (namespace, env) = (&set.key.namespace, &context.env);
        let shared = {
            let mut state = lock(&self.state);
            let reread = state.rereads.get(&set.uid).cloned();
            reread.unwrap_or_else(|| state.namespaces.entry(namespace.clone()).or_default().clone())
        };
        let _slot = {
            let mut read = lock(&shared);
            if read.is_done {
                return Ok(());
            }
            if read.is_begun {
                read.waiting.insert(set.key.clone());
                return Err(Next::Resync);
            }
            if let Some(again) = read.again.filter(|again| env.now() < *again) {
                return Err(Next::At(again));
            }
            let slot = self.slots.try_acquire().map_err(|_| Next::At(env.now() + env.jittered(TURN_RETRY, 0.5)))?;
            read.is_begun = true;
            slot
        };
        let scope = Some(namespace.clone());
        // Listing a large namespace takes seconds. Stop at shutdown, because the next leader waits for this process.
        let Some(result) = context.stop.run_until_cancelled(read_scope(context, &scope)).await else {
            return Err(Next::Never);
        };
        let result = {
            let mut read = lock(&shared);
            std::mem::take(&mut read.waiting).into_iter().for_each(|key| context.queue.add(key, queue::READ));
            read.is_done = result.is_ok();
            read.is_begun = read.is_done;
            result.map_err(|error| Next::Retry(read.failed(context, namespace, &error)))
        };
        if result.is_ok() {
            // One read serves all sets of the namespace, except those that asked for a newer one in the meantime.
            let mut state = lock(&self.state);
            state.rereads.retain(|_, read| !Arc::ptr_eq(read, &shared));
            state.namespaces.insert(namespace.clone(), shared);
        }
        result
    }
}

impl Read {
    /// Logs a failure. Returns when to try again.
    fn failed(&mut self, context: &Context, namespace: &str, error: &ReadError) -> Timestamp {
        let (env, error) = (&context.env, in_full(error));
        let (wait, is_news) = self.failures.note(&error, RETRY);
        if is_news {
            warn!(namespace, error, "cannot list PodSets and pods as a new leader; writes may be on hold");
        }
        *self.again.insert(env.now() + env.jittered(wait, 0.1))
    }
}

/// Updates the caches with consistent lists of the sets and of all pods of a scope.
async fn read_scope(context: &Context, scope: &Scope) -> Result<(), ReadError> {
    let mut uids = HashSet::new();
    let is_unknown = |set: &Set| {
        uids.insert(set.uid.clone());
        !lock(&context.observed).sets.knows(set)
    };
    let (sets, version) = listwatch::list(&context.clients.read, &context.set_source(scope), is_unknown).await?;
    context.change_sets(|cache, effects| cache.apply_list(scope, sets, &uids, version, effects));
    let source = Source { labels: context.rules.take_over_selector.map(str::to_owned), ..context.pod_source(scope) };
    let mut known = HashSet::new();
    let is_unknown = |pod: &Pod| {
        let is_known = lock(&context.observed).pods.knows(pod);
        if is_known {
            known.insert(pod.uid.clone());
        }
        !is_known && (pod.owner.is_some() || pod.is_labelled)
    };
    let (pods, version) = listwatch::list(&context.clients.read, &source, is_unknown).await?;
    context.change_pods(None, |caches| caches.pods.apply_list(scope, pods, known, version, context.env.now()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    fn done() -> Shared {
        Arc::new(Mutex::new(Read { is_begun: true, is_done: true, ..Read::default() }))
    }

    #[test]
    fn a_set_is_unread_until_its_namespace_is_read() {
        let set = testing::set(3);
        let (own, other) = (set.key.namespace.clone(), Arc::from("another"));
        for (read, expected) in [(None, true), (Some(other), true), (Some(own), false)] {
            let take_over = TakeOver::default();
            lock(&take_over.state).namespaces.extend(read.map(|namespace| (namespace, done())));
            assert_eq!(take_over.is_unread(&set), expected, "{take_over:?}");
        }
    }

    #[test]
    fn a_set_whose_pods_may_be_forgotten_is_reread_alone() {
        let (take_over, set) = (TakeOver::default(), testing::set(1));
        let other = Set { uid: "another".into(), ..testing::set(1) };
        let is_unread = |set| take_over.is_unread(set);
        lock(&take_over.state).namespaces.insert(set.key.namespace.clone(), done());
        assert!(!is_unread(&set));
        take_over.require_reread(&set);
        assert!(is_unread(&set) && !is_unread(&other));
        let reread = || lock(&take_over.state).rereads[&set.uid].clone();
        let first = reread();
        take_over.require_reread(&set);
        assert!(Arc::ptr_eq(&first, &reread()), "one read is enough for both");
        lock(&first).is_begun = true;
        // The read in progress may be too old.
        take_over.require_reread(&set);
        lock(&first).is_done = true;
        assert!(is_unread(&set));
        *lock(&reread()) = Read { is_begun: true, is_done: true, ..Read::default() };
        assert!(!is_unread(&set));
        take_over.begin();
        assert!(is_unread(&set) && is_unread(&other), "another term");
    }
}
