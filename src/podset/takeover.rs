//! The reads before the first write to a set in a term.
//!
//! The watches of a standby may have stalled while others led. So before the first write to a set in a term, all PodSets and pods of its
//! namespace are listed, including pods without the label: once per namespace and term, and again when a set begins to wait for
//! terminations. The first reconcile that needs the lists reads them. The others of the namespace are queued again when that read has
//! ended. This file only reads.
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
    lock, queue,
    runner::Next,
    text::in_full,
};

/// The first and the longest wait after a failed read.
const RETRY: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(8));

/// How many namespaces are read at a time, each by a worker of the controller.
const NAMESPACES_AT_ONCE: usize = 16;

/// If too many namespaces are being read, the set is reconciled again after this time.
const TURN_RETRY: SignedDuration = SignedDuration::from_millis(200);

/// Which namespaces were read in this term.
#[derive(Debug)]
pub struct TakeOver {
    reads: Mutex<HashMap<Arc<str>, Arc<Mutex<Read>>>>,
    slots: Semaphore,
}

/// A read of a namespace, which lists its sets and its pods.
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
        TakeOver { reads: Mutex::default(), slots: Semaphore::new(NAMESPACES_AT_ONCE) }
    }
}

impl TakeOver {
    /// Begins a term: every namespace must be read before the first write there.
    pub fn begin(&self) {
        lock(&self.reads).clear();
    }

    /// Whether the namespace of the set must be read before its next write.
    pub fn is_unread(&self, set: &Set) -> bool {
        !lock(&self.reads).get(&set.key.namespace).is_some_and(|read| lock(read).is_done)
    }

    /// The cache may have forgotten pods of this set that count now. Its namespace is read again before the next write there. A read in
    /// progress may be too old for that.
    pub fn require_reread(&self, set: &Set) {
        lock(&self.reads).remove(&set.key.namespace);
    }

    /// Reads the namespace of a set. The error says when to reconcile the set again, because the read failed, too many namespaces are being
    /// read, or another reconcile is reading this one and will queue the set. [`Next::Never`]: the process ends.
    pub async fn read(&self, context: &Context, set: &Set) -> Result<(), Next> {
        let (namespace, env) = (&set.key.namespace, &context.env);
        let shared = lock(&self.reads).entry(namespace.clone()).or_default().clone();
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
        let mut read = lock(&shared);
        std::mem::take(&mut read.waiting).into_iter().for_each(|key| context.queue.add(key, queue::READ));
        read.is_done = result.is_ok();
        read.is_begun = read.is_done;
        result.map_err(|error| Next::Retry(read.failed(context, namespace, &error)))
    }
}

impl Read {
    /// Logs a failure. Returns when to try again.
    fn failed(&mut self, context: &Context, namespace: &str, error: &ReadError) -> Timestamp {
        let (env, error) = (&context.env, in_full(error));
        let (wait, is_news) = self.failures.note(&error, RETRY);
        if is_news {
            warn!(namespace, error, "cannot list the PodSets and pods of a namespace; writes there are on hold");
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

    /// A read of the namespace of this set that has begun.
    fn begin_read(take_over: &TakeOver, set: &Set, is_done: bool) -> Arc<Mutex<Read>> {
        let read = Arc::new(Mutex::new(Read { is_begun: true, is_done, ..Read::default() }));
        lock(&take_over.reads).insert(set.key.namespace.clone(), read.clone());
        read
    }

    #[test]
    fn a_set_is_unread_until_its_namespace_is_read() {
        let (take_over, set) = (TakeOver::default(), testing::set(3));
        begin_read(&take_over, &Set { key: ObjectKey::new("another", "web"), ..testing::set(3) }, true);
        assert!(take_over.is_unread(&set));
        let read = begin_read(&take_over, &set, false);
        assert!(take_over.is_unread(&set));
        lock(&read).is_done = true;
        assert!(!take_over.is_unread(&set));
        take_over.begin();
        assert!(take_over.is_unread(&set), "another term");
    }

    #[test]
    fn a_namespace_is_read_again_if_pods_may_be_forgotten() {
        let (take_over, set) = (TakeOver::default(), testing::set(1));
        let read = begin_read(&take_over, &set, false);
        // The read in progress may be too old.
        take_over.require_reread(&set);
        lock(&read).is_done = true;
        assert!(take_over.is_unread(&set));
        begin_read(&take_over, &set, true);
        assert!(!take_over.is_unread(&set));
    }
}
