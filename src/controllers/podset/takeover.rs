//! What a term of leadership begins with: whatever was learnt before it may be old.
//!
//! A standby's watch may have stood still while others led. So a term begins with one consistent list of the PodSets, the
//! elders; and before the first write for one of them, the PodSets of its namespace and all pods in it are listed once,
//! also those that lost their label. A set that is not among the elders is younger than the term, known by its own first
//! event, and needs neither. It only reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Context,
    observe::{Pod, Set},
};
use crate::{
    client::ReadError,
    controllers::{ObjectKey, in_scope, meta::Uid},
    listwatch::{self, Scope, Source},
};

/// When more sets than this wait for their reads, everything is read at once.
const MANY: usize = 8;

/// What came of the wish to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadFirst {
    /// The set was read.
    Done,
    /// Another read is under way: it may bring what is wanted, and wakes those who wait when it ends.
    UnderWay,
}

/// Which sets still need a read in this term.
#[derive(Debug, Default)]
pub struct TakeOver {
    state: Mutex<State>,
    /// One read at a time.
    lane: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The sets that are older than the term and were not read in it.
    elders: BTreeMap<Uid, ObjectKey>,
    /// The sets that wait for a read.
    waiting: BTreeSet<ObjectKey>,
}

impl TakeOver {
    /// Begins a term: every set that exists now needs a read before its first write.
    ///
    /// # Errors
    ///
    /// When the sets cannot be listed.
    pub async fn begin(&self, context: &Context) -> Result<(), ReadError> {
        let mut elders = BTreeMap::new();
        for scope in &context.scopes {
            let source = super::set_source(scope, &context.locks);
            let (sets, version) = listwatch::list(&context.clients.read, &source, Some::<Set>).await?;
            elders.extend(sets.iter().map(|set| (set.uid.clone(), set.key.clone())));
            context.sets_listed(scope, sets, version);
        }
        *self.lock() = State { elders, waiting: BTreeSet::new() };
        Ok(())
    }

    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, context: &Context, set: &Set) -> bool {
        (context.locks.is_unread)(&self.lock().elders, &set.uid)
    }

    /// Reads the PodSets and all pods of the set's namespace, or, where many sets wait, of all.
    ///
    /// # Errors
    ///
    /// When they cannot be listed: nothing must be written for the set.
    pub async fn read(&self, context: &Context, set: &Set) -> Result<ReadFirst, ReadError> {
        self.lock().waiting.insert(set.key.clone());
        let Ok(_turn) = self.lane.try_lock() else {
            return Ok(ReadFirst::UnderWay);
        };
        let read = if self.lock().waiting.len() <= MANY {
            self.read_scope(context, &Some(set.key.namespace.clone())).await
        } else {
            self.read_all(context).await
        };
        let waiting = std::mem::take(&mut self.lock().waiting);
        for key in waiting.into_iter().filter(|key| *key != set.key) {
            context.queue.add(key, "read");
        }
        read.map(|()| ReadFirst::Done)
    }

    async fn read_all(&self, context: &Context) -> Result<(), ReadError> {
        for scope in &context.scopes {
            self.read_scope(context, scope).await?;
        }
        Ok(())
    }

    async fn read_scope(&self, context: &Context, scope: &Scope) -> Result<(), ReadError> {
        let client = &context.clients.read;
        let source = super::set_source(scope, &context.locks);
        let (sets, version) = listwatch::list(client, &source, Some::<Set>).await?;
        context.sets_listed(scope, sets, version);

        let source = Source { labels: None, ..super::pod_source(scope, &context.locks) };
        let ours = |pod: Pod| (pod.owner.is_some() || pod.is_labelled).then_some(pod);
        let (pods, version) = listwatch::list(client, &source, ours).await?;
        context.pods_listed(scope, pods, version);
        self.lock().elders.retain(|_, key| !in_scope(scope, key));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
