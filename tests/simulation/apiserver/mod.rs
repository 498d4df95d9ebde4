//! An API server in the process. [`ApiServer::client`] makes a [`kube::Client`] of it.
//!
//! It is faithful where an operator can tell the difference: resourceVersions and preconditions,
//! selectors, watches, deletion with grace, server-side apply of a status, admission, garbage
//! collection, a scheduler and kubelets; and it can misbehave on demand, as networks and busy
//! servers do. Everything runs on one thread and on tokio's clock, so that a paused clock and a seed
//! make every run repeat.
//!
//! | file | what it holds |
//! |---|---|
//! | `store` | objects, resourceVersions, history: the only place where anything changes |
//! | `kinds`, `schema` | the kinds and their CRDs |
//! | `service`, `request`, `carry` | from HTTP to a verb, through the faults, and back |
//! | `status` | error responses |
//! | `read`, `write`, `delete`, `admission` | the verbs and what may refuse them |
//! | `watch`, `window`, `feed` | streams of changes: what is queued, what a watch sees of it, what a client gets |
//! | `clock` | the time of the cluster |
//! | `ice` | freezes of a client: what it is kept from hearing, and its clock |
//! | `quorum` | a store without a quorum |
//! | `jobs`, `kubelet`, `gc` | the cluster's own controllers |
//! | `select`, `faults`, `log` | which requests, what goes wrong with them, what came of them |
//! | `observers` | what is checked at each change and each request |
//! | `users`, `surroundings`, `control`, `settings` | what tests do and set |
//! | `views` | what tests see |

mod admission;
mod carry;
mod clock;
mod control;
mod delete;
mod faults;
mod feed;
mod gc;
mod ice;
mod jobs;
mod kinds;
mod kubelet;
mod log;
mod observers;
mod quorum;
mod read;
mod request;
mod schema;
mod select;
mod service;
mod settings;
mod status;
mod store;
mod surroundings;
mod users;
mod views;
mod watch;
mod window;
mod write;

use std::sync::{Arc, Mutex, TryLockError};

use tokio::sync::watch::{Receiver, Sender};

pub use testkit::object;

pub use self::{
    control::{FaultRule, WatchControl},
    faults::Fault,
    ice::Ice,
    kinds::{LEASES, MYCUSTOMRESOURCES, NAMESPACES, PODS, PODSETS, REVISIONS},
    kubelet::PodScript,
    observers::{ONE_WRITER, is_as_ordered, is_made_of},
    request::Verb,
    select::Requests,
    service::{AnswerBody, Connection, Cut},
    status::Status,
    store::{ChangeKind, State},
};

/// An API server; clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// What all clones, clients and tasks share.
pub struct Shared {
    state: Mutex<State>,
    changes: Sender<u64>,
}

impl Shared {
    /// Acts on the state. All runs on one thread and no await is inside, so the lock is free but for
    /// a closure of a test's own that calls the server from inside the server.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        match self.state.try_lock() {
            Ok(mut state) => act(&mut state),
            // A panic of a test's own closure leaves the state as good as it was.
            Err(TryLockError::Poisoned(poisoned)) => act(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                panic!("a webhook, director or predicate must not call the server that calls it")
            }
        }
    }

    /// Wakes whoever waits for a change.
    pub fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl ApiServer {
    /// A cluster with the namespaces `default` and `kube-system` and no pods. All chance in it
    /// follows from `seed`. Needs a tokio runtime; time is that runtime's.
    pub fn new(seed: u64) -> Self {
        let shared = Arc::new(Shared { state: Mutex::new(State::new(seed)), changes: Sender::new(0) });
        let wake = shared.with(|state| state.jobs.wake());
        tokio::spawn(jobs::drive(Arc::downgrade(&shared), wake));
        Self { shared }
    }

    /// A client of its own for `instance`, whose name faults and log use.
    pub fn client(&self, instance: &str) -> kube::Client {
        let connection = self.connection(instance);
        kube::Client::new(tower::service_fn(move |request| connection.clone().send(request)), "default")
    }

    /// The connection beneath such a client, for an operator that puts layers of its own around it.
    pub fn connection(&self, instance: &str) -> Connection {
        Connection::new(self.clone(), instance)
    }

    /// Looks at the state, or sets what no waiting test looks at.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        self.shared.with(look)
    }

    /// Changes the state and wakes whoever waits for a change.
    pub fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = self.shared.with(act);
        self.shared.changed();
        result
    }

    fn changes(&self) -> Receiver<u64> {
        self.shared.changes.subscribe()
    }
}
