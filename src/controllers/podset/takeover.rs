//! What a term of leadership begins with: whatever was learnt before it may be old.
//!
//! A standby's watch may have stood still while others led. So before the first write for a set in a term, the PodSets of
//! its namespace and all pods in it are listed once, also those that lost their label. Beside that work all PodSets are
//! listed, once in the term: a set that is not among them is younger than the term, known by its own first event, and
//! needs neither. It only reads.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Context,
    observe::{Pod, Set},
};
use crate::{
    client::ReadError,
    controllers::{ObjectKey, meta::Uid},
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
    known: Known,
    /// The sets that wait for a read.
    waiting: BTreeSet<ObjectKey>,
}

impl State {
    /// The sets that waited and wait no more, and the one whose turn it is to read for those that still do.
    fn read_by_now(&mut self) -> BTreeSet<ObjectKey> {
        let waiting = std::mem::take(&mut self.waiting);
        let (mut woken, waiting): (BTreeSet<_>, BTreeSet<_>) =
            waiting.into_iter().partition(|key| self.known.is_read(key));
        woken.extend(waiting.first().cloned());
        self.waiting = waiting;
        woken
    }
}

/// What was read in this term.
#[derive(Debug, Default)]
pub struct Known {
    /// The sets that are older than the term; `None` until all were listed: any may be.
    elders: Option<HashSet<Uid>>,
    /// The scopes whose sets and pods were listed.
    read: BTreeSet<Scope>,
}

impl Known {
    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, set: &Set) -> bool {
        let may_be_older = self.elders.as_ref().is_none_or(|elders| elders.contains(&set.uid));
        may_be_older && !self.is_read(&set.key)
    }

    /// Whether the namespace of this set was read.
    fn is_read(&self, set: &ObjectKey) -> bool {
        self.read.contains(&None) || self.read.contains(&Some(set.namespace.clone()))
    }
}

impl TakeOver {
    /// Begins a term: every set needs a read before its first write.
    pub fn begin(&self) {
        *self.lock() = State::default();
    }

    /// Learns which sets are older than the term; the others need no read.
    ///
    /// # Errors
    ///
    /// When the sets cannot be listed.
    pub async fn catch_up(&self, context: &Context) -> Result<(), ReadError> {
        let mut elders = HashSet::new();
        for scope in &context.scopes {
            elders.extend(list_sets(context, scope).await?);
        }
        self.lock().known.elders = Some(elders);
        Ok(())
    }

    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, context: &Context, set: &Set) -> bool {
        (context.locks.is_unread)(&self.lock().known, set)
    }

    /// Reads the PodSets and all pods of the set's namespace, or, where many sets wait, of all.
    ///
    /// # Errors
    ///
    /// When they cannot be listed: nothing must be written for the set.
    pub async fn read(&self, context: &Context, set: &Set) -> Result<ReadFirst, ReadError> {
        let are_many = {
            let mut state = self.lock();
            state.waiting.insert(set.key.clone());
            state.waiting.len() > MANY
        };
        let Ok(turn) = self.lane.try_lock() else {
            return Ok(ReadFirst::UnderWay);
        };
        if are_many {
            self.read_all(context).await?;
        } else {
            self.read_scope(context, &Some(set.key.namespace.clone())).await?;
        }
        drop(turn);
        for key in self.lock().read_by_now().into_iter().filter(|key| *key != set.key) {
            context.queue.add(key, "read");
        }
        Ok(ReadFirst::Done)
    }

    async fn read_all(&self, context: &Context) -> Result<(), ReadError> {
        for scope in &context.scopes {
            self.read_scope(context, scope).await?;
        }
        Ok(())
    }

    async fn read_scope(&self, context: &Context, scope: &Scope) -> Result<(), ReadError> {
        list_sets(context, scope).await?;
        let source = Source { labels: None, ..super::pod_source(scope, &context.locks) };
        let ours = |pod: &Pod| pod.owner.is_some() || pod.is_labelled;
        let (pods, version) = listwatch::list(&context.clients.read, &source, ours).await?;
        context.pods_listed(scope, pods, version);
        self.lock().known.read.insert(scope.clone());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes in a consistent list of the sets of a scope. Returns their UIDs.
async fn list_sets(context: &Context, scope: &Scope) -> Result<Vec<Uid>, ReadError> {
    let source = super::set_source(scope, &context.locks);
    let (sets, version) = listwatch::list(&context.clients.read, &source, |_: &Set| true).await?;
    let uids = sets.iter().map(|set| set.uid.clone()).collect();
    context.sets_listed(scope, sets, version);
    Ok(uids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::testing;

    #[test]
    fn any_set_may_be_older_than_the_term_until_all_were_listed() {
        let set = testing::set(3);
        let mut known = Known::default();
        assert!(known.is_unread(&set));
        known.elders = Some(HashSet::from([set.uid.clone()]));
        assert!(known.is_unread(&set));
        known.elders = Some(HashSet::from(["another".into()]));
        assert!(!known.is_unread(&set), "it is younger");
    }

    #[test]
    fn a_set_was_read_when_its_namespace_was_or_all_were() {
        let set = testing::set(3);
        for (scope, is_unread) in
            [(Some("another".into()), true), (Some(set.key.namespace.clone()), false), (None, false)]
        {
            let known = Known { elders: None, read: BTreeSet::from([scope]) };
            assert_eq!(known.is_unread(&set), is_unread, "{known:?}");
        }
    }
}
