//! The simulated API server, in the process of the test. [`ApiServer::client`] returns a [`kube::Client`] for it.
//!
//! It matches kube-apiserver in everything that the operator can observe: resourceVersions and preconditions, selectors, watches,
//! graceful deletion, server-side apply of a status, admission, garbage collection, a scheduler and kubelets. On demand it injects
//! the faults of networks and busy servers. Everything runs on one thread and on tokio's clock. If that is paused, a seed
//! determines the run.
//!
//! Tests control the server through `users`, `control` and `settings`, and read it through `views`.

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
mod list;
mod observers;
mod request;
mod select;
mod service;
mod settings;
mod status;
mod store;
mod users;
mod views;
mod watch;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, TryLockError},
    time::Duration,
};

use serde_json::{Value, json};

pub use crate::object;

use self::{
    carry::{Answer, Pending, Quorum},
    faults::{Rule, WatchMode, WatchScope},
    kinds::{EVENTS, Kind},
    list::presented,
    request::{ApiRequest, LoggedRequest},
    settings::Settings,
    store::Change,
    watch::{Delivery, ModeInForce, Opened, Watcher},
    write::Stored,
};
pub use self::{
    control::{FaultRule, WatchControl},
    faults::{Cut, Fault},
    ice::Ice,
    kinds::{LEASES, MYCUSTOMRESOURCES, NAMESPACES, PODS, PODSETS, REVISIONS},
    observers::{ONE_WRITER, has_template, is_as_requested},
    request::Verb,
    select::Requests,
    service::{AnswerBody, Connection},
    settings::PodScript,
    status::Status,
    store::{EventType, State},
    users::{LABEL, pod},
};

/// An API server; clones are the same server. When the first one is dropped, a violation that the test has not read fails the test.
pub struct ApiServer {
    state: Arc<Mutex<State>>,
    is_first: bool,
}

impl Clone for ApiServer {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), is_first: false }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if !self.is_first || std::thread::panicking() {
            return;
        }
        if let Some(violation) = self.with(|state| state.observers.violations.get(state.observers.expected).cloned()) {
            panic!("{violation}\n{}", self.recently());
        }
    }
}

impl ApiServer {
    /// A cluster with the namespaces `default` and `kube-system` and no pods. `seed` determines all randomness.
    ///
    /// Call it on a current-thread tokio runtime. The server uses the clock of that runtime and stops with it.
    pub fn new(seed: u64) -> Self {
        let server = Self { state: Arc::new(Mutex::new(State::new(seed))), is_first: true };
        tokio::spawn(jobs::drive(server.clone()));
        server
    }

    /// A client called `instance`. Faults and the log refer to it by this name.
    pub fn client(&self, instance: &str) -> kube::Client {
        let connection = self.connection(instance);
        kube::Client::new(tower::service_fn(move |request| connection.clone().send(request)), "default")
    }

    /// Reads or changes the state. Everything runs on one thread and `act` does not await, so the lock is free, unless
    /// a closure of a test calls the server from inside the server.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        match self.state.try_lock() {
            Ok(mut state) => act(&mut state),
            // The closure of a test panicked, which leaves the state usable.
            Err(TryLockError::Poisoned(poisoned)) => act(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                panic!("a webhook, a choice of scripts or a predicate must not call the server that calls it")
            }
        }
    }
}
