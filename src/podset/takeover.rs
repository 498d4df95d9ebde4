//! The reads before the first write to a set in a term.
//!
//! The watches of a standby may have stalled while others led. So all PodSets and pods of the namespace are listed first, including pods
//! without the label: once per namespace and term, and again when a set begins to wait for terminations. The reconcile of the first set that
//! needs the read does it, and the others that need it are queued when it ends. Other sets do not wait. Of the objects in a list, only those
//! that the caches do not know in this state are kept in memory.

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

/// The first and the longest wait after a failed read of a namespace or a set.
pub const READ_RETRY: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(8));

/// How many namespaces are read at a time.
const NAMESPACES_AT_ONCE: usize = 16;

/// If too many namespaces are being read, the set is reconciled again after this time.
const TURN_RETRY: SignedDuration = SignedDuration::from_millis(200);

/// Which namespaces were read in this term.
#[derive(Debug)]
pub struct TakeOver {
    reads: Mutex<HashMap<Arc<str>, Reads>>,
    slots: Semaphore,
}

/// The reads of a namespace, one after the other, with numbers from 1. Each lists its sets and its pods.
#[derive(Debug, Default)]
struct Reads {
    /// The number of the last read that began.
    begun: u64,
    /// The number of the last read that succeeded.
    done: u64,
    /// While a read is running, the sets that wait for its end.
    running: Option<BTreeSet<ObjectKey>>,
    failures: Failures,
    /// When to try again after a failure.
    again: Option<Timestamp>,
}

impl Default for TakeOver {
    fn default() -> Self {
        TakeOver { reads: Mutex::default(), slots: Semaphore::new(NAMESPACES_AT_ONCE) }
    }
}

impl TakeOver {
    /// Begins a term: every namespace must be read before the first write there.
    pub fn begin(&self) {
        // The numbers of reads go on, because `SetState::read_after` refers to them.
        lock(&self.reads).values_mut().for_each(|reads| *reads = Reads { begun: reads.begun, ..Reads::default() });
    }

    /// Whether the namespace of the set must be read before its next write. `after`: only a read with a higher number counts.
    pub fn is_unread(&self, set: &Set, after: u64) -> bool {
        lock(&self.reads).get(&set.key.namespace).is_none_or(|reads| reads.done <= after)
    }

    /// The number of the last read of its namespace that began. It may be too old for a set that counts pods which the cache may have
    /// forgotten.
    pub fn last_begun(&self, set: &Set) -> u64 {
        lock(&self.reads).get(&set.key.namespace).map_or(0, |reads| reads.begun)
    }

    /// Reads the namespace of a set. The error says when to reconcile the set again, because the read failed, too many namespaces are being
    /// read, or another reconcile is reading this one and will queue the set. [`Next::Never`]: the process ends.
    pub async fn read(&self, context: &Context, set: &Set, after: u64) -> Result<(), Next> {
        let (namespace, env) = (&set.key.namespace, &context.env);
        let _slot = {
            let mut all = lock(&self.reads);
            let reads = all.entry(namespace.clone()).or_default();
            if reads.done > after {
                return Ok(());
            }
            if let Some(waiting) = &mut reads.running {
                waiting.insert(set.key.clone());
                return Err(Next::Resync);
            }
            if let Some(again) = reads.again.filter(|again| env.now() < *again) {
                return Err(Next::At(again));
            }
            let slot = self.slots.try_acquire().map_err(|_| Next::At(env.now() + env.jittered(TURN_RETRY, 0.5)))?;
            (reads.running, reads.begun) = (Some(BTreeSet::new()), reads.begun + 1);
            slot
        };
        let scope = Some(namespace.clone());
        // Listing a large namespace takes seconds. Stop at shutdown, because the next leader waits for this process.
        let Some(result) = context.stop.run_until_cancelled(read_scope(context, &scope)).await else {
            return Err(Next::Never);
        };
        let mut all = lock(&self.reads);
        let reads = all.entry(namespace.clone()).or_default();
        reads.running.take().into_iter().flatten().for_each(|key| context.queue.add(key, queue::READ));
        if let Err(error) = result {
            let error = in_full(&error);
            let (wait, is_news) = reads.failures.note(&error, READ_RETRY);
            if is_news {
                warn!(
                    namespace = &**namespace,
                    error, "cannot list the PodSets and pods of a namespace; writes there may be on hold"
                );
            }
            let again = env.now() + env.jittered(wait, 0.1);
            reads.again = Some(again);
            return Err(Next::Retry(again));
        }
        *reads = Reads { begun: reads.begun, done: reads.begun, ..Reads::default() };
        Ok(())
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
    context.change_sets(|cache| cache.apply_list(scope, sets, &uids, version));
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

    /// Lets a read of the namespace of this set begin or end.
    fn change(take_over: &TakeOver, set: &Set, begun: u64, done: u64) {
        lock(&take_over.reads).insert(set.key.namespace.clone(), Reads { begun, done, ..Reads::default() });
    }

    #[test]
    fn a_set_is_unread_until_its_namespace_is_read() {
        let (take_over, set) = (TakeOver::default(), testing::set(3));
        change(&take_over, &Set { key: ObjectKey::new("another", "web"), ..testing::set(3) }, 1, 1);
        assert!(take_over.is_unread(&set, 0));
        change(&take_over, &set, 1, 0);
        assert!(take_over.is_unread(&set, 0));
        change(&take_over, &set, 1, 1);
        assert!(!take_over.is_unread(&set, 0));
        take_over.begin();
        assert!(take_over.is_unread(&set, 0), "another term");
    }

    #[test]
    fn a_set_whose_pods_may_be_forgotten_needs_a_read_that_begins_later() {
        let (take_over, set) = (TakeOver::default(), testing::set(1));
        change(&take_over, &set, 2, 1);
        let after = take_over.last_begun(&set);
        assert!(take_over.is_unread(&set, after));
        change(&take_over, &set, 2, 2);
        assert!(take_over.is_unread(&set, after), "the read in progress may be too old");
        assert!(!take_over.is_unread(&set, 0), "other sets do not wait");
        change(&take_over, &set, 3, 3);
        assert!(!take_over.is_unread(&set, after));
    }
}
