//! The reads before the first write to a set in a term.
//!
//! The watches of a standby may have stalled while others led. So before the first write to a set in a term, all PodSets and pods of its
//! namespace are listed, including pods without the label: once per namespace and term. The lists run in the background, a few at a time,
//! and no namespace waits for a slow or failing one. A set that is not in a list of all sets from this term is younger than the term, and
//! needs no read. This file only reads.
//!
//! Of the objects in a list, only those that the caches do not know in this state are kept in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use jiff::SignedDuration;
use tokio::sync::{Notify, Semaphore};
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
    text::in_full,
};

/// How many namespaces are read at a time. A slow read gives its slot to another one.
const NAMESPACES_AT_ONCE: usize = 4;

/// A read that takes longer than this gives up its slot, and continues.
const SLOW: Duration = Duration::from_secs(1);

/// The first and the longest wait after a failed read.
const RETRY: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(8));

/// Which sets still need a read in this term.
#[derive(Debug)]
pub struct TakeOver {
    state: Mutex<State>,
    /// Notified when a namespace is added to [`State::requested`].
    has_requests: Notify,
    /// A permit for each read in progress that is not slow.
    slots: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// The sets that are older than the term; `None` while they are not known.
    preexisting: Option<HashSet<Uid>>,
    /// The sets that need another read, by namespace.
    to_reread: BTreeMap<Arc<str>, HashSet<Uid>>,
    /// Those among them whose read has begun.
    being_read: BTreeMap<Arc<str>, HashSet<Uid>>,
    /// The namespaces whose sets and pods were listed in this term.
    read: BTreeSet<Arc<str>>,
    /// The sets that wait for the read of their namespace.
    waiting: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// The namespaces among them whose read has not begun.
    requested: Vec<Arc<str>>,
}

impl State {
    /// Whether the cache may have forgotten pods of this set since the last read of it.
    fn needs_reread(&self, set: &Set) -> bool {
        let holds = |sets: &BTreeMap<Arc<str>, HashSet<Uid>>| {
            sets.get(&set.key.namespace).is_some_and(|sets| sets.contains(&set.uid))
        };
        holds(&self.to_reread) || holds(&self.being_read)
    }

    fn is_read(&self, set: &Set) -> bool {
        self.read.contains(&set.key.namespace) && !self.needs_reread(set)
    }

    fn begin_read(&mut self, namespace: &Arc<str>) {
        let to_reread = self.to_reread.remove(namespace);
        self.being_read.extend(to_reread.map(|sets| (namespace.clone(), sets)));
    }

    /// The sets that waited for the read.
    fn end_read(&mut self, namespace: Arc<str>) -> Option<BTreeSet<ObjectKey>> {
        self.being_read.remove(&namespace);
        let waiting = self.waiting.remove(&namespace);
        self.read.insert(namespace);
        waiting
    }
}

impl Default for TakeOver {
    fn default() -> Self {
        TakeOver { state: Mutex::default(), has_requests: Notify::new(), slots: Semaphore::new(NAMESPACES_AT_ONCE) }
    }
}

impl TakeOver {
    /// Begins a term: every set needs a read before its first write.
    pub fn begin(&self) {
        *lock(&self.state) = State::default();
    }

    /// Whether the set must be read before its first write, according to this rule.
    pub fn is_unread(&self, set: &Set, rule: fn(may_be_older: bool, is_read: bool) -> bool) -> bool {
        let state = lock(&self.state);
        let may_be_older = state.preexisting.as_ref().is_none_or(|preexisting| preexisting.contains(&set.uid));
        rule(may_be_older || state.needs_reread(set), state.is_read(set))
    }

    /// The cache may have forgotten pods of this set that count now. It is read again before its next write.
    pub fn require_reread(&self, set: &Set) {
        lock(&self.state).to_reread.entry(set.key.namespace.clone()).or_default().insert(set.uid.clone());
    }

    /// Requests the read of a set, which is then queued again. Returns `false` if it has been read in the meantime.
    pub fn request_read(&self, set: &Set) -> bool {
        let mut state = lock(&self.state);
        if state.is_read(set) {
            return false;
        }
        let namespace = &set.key.namespace;
        if !state.waiting.contains_key(namespace) {
            state.requested.push(namespace.clone());
            self.has_requests.notify_one();
        }
        state.waiting.entry(namespace.clone()).or_default().insert(set.key.clone());
        true
    }

    /// Reads the namespaces that sets wait for. It never ends.
    pub async fn catch_up(&self, context: &Context) {
        tokio::join!(self.list_preexisting(context), self.read_namespaces(context));
    }

    /// Lists all sets, to learn which of them are older than the term.
    async fn list_preexisting(&self, context: &Context) {
        let mut preexisting = HashSet::new();
        for scope in &context.scopes {
            preexisting.extend(retry_until_read(context, scope, || list_sets(context, scope)).await);
        }
        let waiting: Vec<ObjectKey> = {
            let mut state = lock(&self.state);
            state.preexisting = Some(preexisting);
            state.waiting.values().flatten().cloned().collect()
        };
        // Some of them may be younger than the term, and need not wait.
        waiting.into_iter().for_each(|set| context.queue.add(set, queue::READ));
    }

    async fn read_namespaces(&self, context: &Context) {
        let mut reads = FuturesUnordered::new();
        loop {
            let requested = std::mem::take(&mut lock(&self.state).requested);
            reads.extend(requested.into_iter().map(|namespace| self.read(context, namespace)));
            tokio::select! {
                biased;
                () = self.has_requests.notified() => {}
                Some(()) = reads.next() => {}
            }
        }
    }

    async fn read(&self, context: &Context, namespace: Arc<str>) {
        let scope = Some(namespace.clone());
        lock(&self.state).begin_read(&namespace);
        retry_until_read(context, &scope, || self.with_slot(read_scope(context, &scope))).await;
        let waiting = lock(&self.state).end_read(namespace);
        waiting.into_iter().flatten().for_each(|set| context.queue.add(set, queue::READ));
    }

    /// Reads as soon as a slot is free.
    async fn with_slot<T>(&self, read: impl Future<Output = T>) -> T {
        let slot = self.slots.acquire().await;
        let mut read = pin!(read);
        if let Ok(read) = tokio::time::timeout(SLOW, read.as_mut()).await {
            return read;
        }
        drop(slot);
        read.await
    }
}

/// Repeats a read, later each time, until it succeeds.
async fn retry_until_read<T, F>(context: &Context, scope: &Scope, read: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, ReadError>>,
{
    let (env, mut failures) = (&context.env, Failures::default());
    loop {
        let error = match read().await {
            Ok(read) => return read,
            Err(error) => in_full(&error),
        };
        let (wait, is_news) = failures.note(&error, RETRY);
        if is_news {
            let namespace = scope.as_deref().unwrap_or("all");
            warn!(namespace, error, "cannot list PodSets and pods as a new leader; writes may be on hold");
        }
        env.sleep_until(env.now() + env.jittered(wait, 0.1)).await;
    }
}

/// Updates the caches with consistent lists of the sets and of all pods of a scope.
async fn read_scope(context: &Context, scope: &Scope) -> Result<(), ReadError> {
    list_sets(context, scope).await?;
    let source = Source { labels: context.rules.taken_over, ..context.pod_source(scope) };
    let mut known = HashSet::new();
    let is_news = |pod: &Pod| {
        let is_known = context.observed.lock().pods.knows(pod);
        known.extend(is_known.then(|| pod.uid.clone()));
        !is_known && (pod.owner.is_some() || pod.is_labelled)
    };
    let (pods, version) = listwatch::list(&context.clients.read, &source, is_news).await?;
    context.pods_listed(scope, pods, known, version);
    Ok(())
}

/// Updates the cache with a consistent list of the sets of a scope. Returns their UIDs.
async fn list_sets(context: &Context, scope: &Scope) -> Result<HashSet<Uid>, ReadError> {
    let mut uids = HashSet::new();
    let is_news = |set: &Set| {
        uids.insert(set.uid.clone());
        !context.observed.lock().sets.knows(set)
    };
    let (sets, version) = listwatch::list(&context.clients.read, &context.set_source(scope), is_news).await?;
    context.sets_listed(scope, sets, &uids, version);
    Ok(uids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::{promise::Rules, testing};
    use futures::FutureExt;

    #[test]
    fn a_set_is_unread_until_it_is_read_or_known_to_be_newer_than_the_term() {
        let set = testing::set(3);
        let (own, other) = (set.key.namespace.clone(), Arc::from("another"));
        let uids = |uid: &Uid| Some(HashSet::from([uid.clone()]));
        for (preexisting, read, expected) in [
            (None, None, true),
            (None, Some(other), true),
            (None, Some(own.clone()), false),
            (uids(&set.uid), None, true),
            (uids(&set.uid), Some(own), false),
            (uids(&"another".into()), None, false),
        ] {
            let take_over = TakeOver::default();
            *lock(&take_over.state) = State { preexisting, read: read.into_iter().collect(), ..State::default() };
            assert_eq!(take_over.is_unread(&set, Rules::default().is_unread), expected, "{take_over:?}");
        }
    }

    #[test]
    fn a_namespace_is_requested_once_and_not_after_it_was_read() {
        let take_over = TakeOver::default();
        let keys = [ObjectKey::new("a", "web"), ObjectKey::new("a", "db"), ObjectKey::new("b", "web")];
        let sets = keys.map(|key| Set { key, ..testing::set(1) });
        for set in sets.iter().chain(&sets) {
            assert!(take_over.request_read(set));
        }
        assert_eq!(lock(&take_over.state).requested, ["a".into(), "b".into()]);
        assert_eq!(lock(&take_over.state).waiting.values().map(BTreeSet::len).collect::<Vec<_>>(), [2, 1]);
        lock(&take_over.state).read.insert("a".into());
        assert!(!take_over.request_read(&sets[0]));
        take_over.begin();
        assert!(take_over.request_read(&sets[0]), "another term");
    }

    #[test]
    fn a_set_whose_pods_may_be_forgotten_is_reread_alone() {
        let (take_over, set) = (TakeOver::default(), testing::set(1));
        let other = Set { uid: "another".into(), ..testing::set(1) };
        let namespace = &set.key.namespace;
        let is_unread = |set| take_over.is_unread(set, Rules::default().is_unread);
        lock(&take_over.state).end_read(namespace.clone());
        assert!(!is_unread(&set));
        take_over.require_reread(&set);
        assert!(is_unread(&set) && take_over.request_read(&set));
        assert!(!is_unread(&other) && !take_over.request_read(&other));
        lock(&take_over.state).begin_read(namespace);
        assert!(is_unread(&set));
        // The read in progress may be too old.
        take_over.require_reread(&set);
        lock(&take_over.state).end_read(namespace.clone());
        assert!(is_unread(&set) && take_over.request_read(&set));
        lock(&take_over.state).begin_read(namespace);
        lock(&take_over.state).end_read(namespace.clone());
        assert!(!is_unread(&set) && !take_over.request_read(&set));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_read_makes_room_for_others() {
        let take_over = TakeOver::default();
        let began = tokio::time::Instant::now();
        let mut reads: FuturesUnordered<_> = (0..10)
            .map(|number| {
                let read = take_over.with_slot(async move {
                    let seconds = if number < 9 { 30 } else { 0 };
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    (number, began.elapsed().as_secs())
                });
                read.boxed_local()
            })
            .collect();
        assert_eq!(reads.next().await, Some((9, 2)), "two batches of four begin before it");
        assert_eq!(reads.count().await, 9);
    }
}
