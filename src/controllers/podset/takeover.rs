//! What a term of leadership begins with: whatever was learnt before it may be old.
//!
//! A standby's watch may have stood still while others led. So a term begins with one consistent list of the PodSets, the
//! elders; and before the first write for one of them, the PodSets of its namespace and all pods in it are listed once,
//! also those that lost their label. A set that is not among the elders is younger than the term, known by its own first
//! event, and needs neither. It only reads.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    Context,
    observe::{Pod, PodWire, Set, SetWire},
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

/// The sets that are older than the term and were not read in it.
type Elders = BTreeMap<Uid, ObjectKey>;

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
            let identity = |set: SetWire| Some((Uid::from(set.metadata.uid.as_str()), set.metadata.key()));
            let (sets, _) = listwatch::list(&context.clients.read, &source, identity).await?;
            elders.extend(sets);
        }
        *self.lock() = elders;
        Ok(())
    }

    /// Whether the set must be read before anything is written for it.
    pub fn is_unread(&self, context: &Context, set: &Set) -> bool {
        (context.locks.is_unread)(&self.lock(), &set.uid)
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
        let client = &context.clients.read;
        let source = super::set_source(scope, &context.locks);
        let (sets, version) = listwatch::list(client, &source, |set: SetWire| Some(Set::from(set))).await?;
        context.sets_listed(scope, sets, version);

        let source = Source { labels: None, ..super::pod_source(scope, &context.locks) };
        let ours = |pod: PodWire| Some(Pod::from(pod)).filter(|pod| pod.owner.is_some() || pod.is_labelled);
        let (pods, version) = listwatch::list(client, &source, ours).await?;
        context.observed.lock().pods.verify(scope, pods, version, context.env.now());
        self.lock().retain(|_, key| scope.as_ref().is_some_and(|namespace| *namespace != key.namespace));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Elders> {
        self.elders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
