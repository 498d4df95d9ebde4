//! What a term of leadership begins with: whatever was learnt before it may be old.
//!
//! A standby's watch may have stood still while others led. So a term begins with one consistent list of the PodSets, and
//! before the first write for a set that is on it, all pods of its namespace are listed once, also those that lost their
//! label. A set that is not on the list is younger than the term and needs neither. It only reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    Context,
    observe::{Effects, Pod, PodWire, Set, SetWire},
};
use crate::{
    client::ReadError,
    controllers::{
        ObjectKey,
        listwatch::{self, Scope, Source},
        meta::Uid,
    },
};

/// When more sets than this wait for their reads, one list of everything serves them all.
const MANY: usize = 8;

/// Which sets still need a read in this term.
#[derive(Debug, Default)]
pub struct TakeOver {
    elders: Mutex<Elders>,
    /// One read at a time: the next in line may find that it was read with the former.
    lane: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Elders {
    unread: BTreeSet<Uid>,
    namespaces: BTreeMap<Uid, ObjectKey>,
}

impl TakeOver {
    /// Begins a term: every set that exists now needs a read before its first write.
    ///
    /// # Errors
    ///
    /// When the sets cannot be listed.
    pub async fn begin(&self, context: &Context) -> Result<(), ReadError> {
        let mut elders = Elders::default();
        for scope in &context.scopes {
            let source = super::set_source(scope, &context.locks);
            let (sets, version) =
                listwatch::list(&context.clients.read, &source, |set: SetWire| Some(Set::from(set))).await?;
            for set in &sets {
                elders.unread.insert(set.uid.clone());
                elders.namespaces.insert(set.uid.clone(), set.key.clone());
            }
            let mut effects = Effects::default();
            let mut caches = context.observed.lock();
            caches.sets.snapshot(scope, sets, version, &mut effects);
            caches.settle(&effects, context.env.now());
        }
        *self.lock() = elders;
        Ok(())
    }

    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, context: &Context, set: &Set) -> bool {
        (context.locks.is_unread)(&self.lock().unread, &set.uid)
    }

    /// Reads all pods of the set's namespace, or, where many sets wait, of all.
    ///
    /// # Errors
    ///
    /// When the pods cannot be listed: nothing must be written for the set.
    pub async fn read(&self, context: &Context, set: &Set) -> Result<(), ReadError> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = async {
            let _turn = self.lane.lock().await;
            if !self.is_unread(context, set) {
                return Ok(());
            }
            if self.waiting.load(Ordering::Relaxed) <= MANY {
                return self.read_scope(context, &Some(set.key.namespace.clone())).await;
            }
            for scope in &context.scopes {
                self.read_scope(context, scope).await?;
            }
            Ok(())
        }
        .await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    async fn read_scope(&self, context: &Context, scope: &Scope) -> Result<(), ReadError> {
        let source = Source {
            labels: None,
            ..super::pod_source(scope, &context.locks)
        };
        let ours = |pod: PodWire| Some(Pod::from(pod)).filter(|pod| pod.owner.is_some() || pod.is_labelled);
        let (pods, version) = listwatch::list(&context.clients.read, &source, ours).await?;
        context
            .observed
            .lock()
            .pods
            .verify(scope, pods, version, context.env.now());
        let mut elders = self.lock();
        let Elders { unread, namespaces } = &mut *elders;
        unread.retain(|uid| {
            let key = namespaces.get(uid);
            key.is_some_and(|key| scope.as_ref().is_some_and(|namespace| *namespace != key.namespace))
        });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Elders> {
        self.elders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
