//! What every controller shares: how it runs, what wakes it, when it may work.
//!
//! A further controller is one folder that implements [`Controller`] and one line in [`crate::manager`].

pub mod meta;
pub mod mycustomresource;
pub mod podset;
pub mod queue;
pub mod requests;
pub mod statuses;
pub mod synced;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    client::ReadError,
    env::Env,
    leader::{Leadership, Term},
    listwatch::Scope,
};
use queue::{Queue, Trigger};

/// How often an object is looked at although nothing happened, from the cache alone.
const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// How long the reconciles under way may take to end when the process shall end.
const DRAIN: Duration = Duration::from_secs(20);

/// The wait after a term could not be begun.
const TERM_RETRY: Duration = Duration::from_secs(1);

/// Namespace and name of an object.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether an object of this name lies in the scope.
pub fn in_scope(scope: &Scope, key: &ObjectKey) -> bool {
    scope.as_ref().is_none_or(|namespace| *namespace == key.namespace)
}

/// What a controller brings; [`run`] does the rest.
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The watches that feed its caches. Each runs for as long as the process.
    fn watches(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>>;

    /// Becomes true once every cache holds a first complete list.
    fn synced(&self) -> watch::Receiver<bool>;

    /// The queue in which its watches put what shall be reconciled.
    fn queue(&self) -> &Queue;

    /// The objects that are known.
    fn keys(&self) -> Vec<ObjectKey>;

    /// A term of leadership begins: whatever was learnt without leading may have to be learnt again.
    fn begin_term(&self, term: Term) -> impl Future<Output = Result<(), ReadError>> + Send;

    /// Brings one object closer to its spec.
    fn reconcile(&self, key: &ObjectKey, trigger: Trigger) -> impl Future<Output = Next> + Send;
}

/// When to look at an object again although nothing happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Not before long: the object is at rest.
    Resync,
    /// At this time.
    At(Timestamp),
    /// Never: the object is gone.
    Never,
}

/// Runs a controller until `stop`: its watches always, its reconciles while this process leads. Returns when no
/// reconcile is under way any more.
///
/// # Panics
///
/// When a watch or a reconcile panics: half a controller must not go on.
pub async fn run<C: Controller>(
    controller: Arc<C>,
    env: Env,
    leadership: Leadership,
    at_once: usize,
    stop: CancellationToken,
) {
    let mut watches: JoinSet<()> = controller.clone().watches().into_iter().collect();
    let worker = Worker { controller, env, leadership, at_once, stop };
    tokio::select! {
        () = worker.run() => {}
        () = first_panic(&mut watches) => {}
    }
}

/// Waits for a task that never ends, unless it panics.
async fn first_panic(tasks: &mut JoinSet<()>) {
    while let Some(end) = tasks.join_next().await {
        pass_on_panic(end);
    }
    std::future::pending().await
}

fn pass_on_panic(end: Result<(), JoinError>) {
    if let Some(panic) = end.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

/// What takes keys from the queue and reconciles them.
struct Worker<C> {
    controller: Arc<C>,
    env: Env,
    leadership: Leadership,
    at_once: usize,
    stop: CancellationToken,
}

impl<C: Controller> Worker<C> {
    async fn run(&self) {
        let name = self.controller.name();
        let mut synced = self.controller.synced();
        let is_synced = tokio::select! {
            synced = synced.wait_for(|synced| *synced) => synced.is_ok(),
            () = self.stop.cancelled() => false,
        };
        if !is_synced {
            return;
        }
        info!(controller = name, objects = self.controller.keys().len(), "the caches are synced");
        loop {
            let mut leadership = self.leadership.clone();
            tokio::select! {
                term = leadership.begun() => self.serve(term).await,
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Works for one term, and ends what it began.
    async fn serve(&self, term: Term) {
        let mut leadership = self.leadership.clone();
        let mut running = JoinSet::new();
        tokio::select! {
            () = self.take_office(term) => self.work(term, &mut running).await,
            () = leadership.ended(term.number) => {}
            () = self.stop.cancelled() => {}
        }
        // What is under way when a term ends without the process goes on to its end: every write of it is refused, and what
        // it learnt is kept.
        let overtime = async {
            self.stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            () = drain(&mut running) => return,
            () = overtime => {}
        }
        warn!(controller = self.controller.name(), left = running.len(), "gave up waiting for reconciles to end");
    }

    async fn take_office(&self, term: Term) {
        while let Err(error) = self.controller.begin_term(term).await {
            let error = crate::client::in_full(&error);
            warn!(controller = self.controller.name(), error, "cannot begin the term, trying again");
            tokio::time::sleep(TERM_RETRY).await;
        }
        for key in self.controller.keys() {
            self.controller.queue().add(key, "term");
        }
    }

    async fn work(&self, term: Term, running: &mut JoinSet<()>) {
        let mut leadership = self.leadership.clone();
        loop {
            let has_room = running.len() < self.at_once;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = leadership.ended(term.number) => return,
                Some(end) = running.join_next() => pass_on_panic(end),
                (key, trigger) = self.controller.queue().next(), if has_room => {
                    running.spawn(reconcile(self.controller.clone(), self.env.clone(), key, trigger));
                }
            }
        }
    }
}

async fn reconcile<C: Controller>(controller: Arc<C>, env: Env, key: ObjectKey, trigger: Trigger) {
    debug!(controller = controller.name(), object = %key, trigger, "reconciling");
    let next = controller.reconcile(&key, trigger).await;
    let resync = env.now() + env.jittered(RESYNC, 0.2);
    let wake = match next {
        Next::Resync => Some(resync),
        Next::At(when) => Some(when.min(resync)),
        Next::Never => None,
    };
    controller.queue().done(&key, wake);
}

async fn drain(running: &mut JoinSet<()>) {
    while let Some(end) = running.join_next().await {
        pass_on_panic(end);
    }
}
