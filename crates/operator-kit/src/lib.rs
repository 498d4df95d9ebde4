//! Shared parts of the operator's controllers: everything between the API server and `reconcile`.
//!
//! **What it is for.** A controller implements [`Controller`] with its watches, its cache and `reconcile`. The kit runs it: it feeds the
//! queue, calls `reconcile` only while this process leads, and exposes probes, metrics, logs and traces.
//!
//! **What it may do.** It talks to the API server: reads at any time, writes only through [`client::Writer`], which asks [`leadership`]
//! before each request. Only TokenReviews and SubjectAccessReviews need no leadership. It knows no custom resource.
//!
//! **Where to start.** [`runner`] shows the life of a controller. `examples/tally.rs` of the operator is a small one.
//!
//! | module | contents |
//! |---|---|
//! | [`runner`], [`queue`], [`fair`] | run a controller, order its reconciles, and share places fairly between namespaces |
//! | [`listwatch`], [`meta`], [`object_key`], [`interner`] | lists and watches, and what caches need: metadata, keys, shared texts |
//! | [`client`], [`requests`] | the clients for reads and for writes, and the requests |
//! | [`statuses`], [`failures`], [`token_bucket`], [`pace`] | status by server-side apply, backoff, pacing |
//! | [`health`], [`server`] | probes, metrics and the log level over HTTP |
//! | [`telemetry`] | logs, traces and metrics |
//! | [`budget`], [`text`], [`log_once`], [`lock()`] | memory for large answers, texts of errors, repeated failures in the log, mutexes |

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod budget;
pub mod client;
pub mod failures;
pub mod fair;
pub mod health;
pub mod interner;
pub mod listwatch;
pub mod log_once;
pub mod meta;
pub mod object_key;
pub mod pace;
pub mod queue;
pub mod requests;
pub mod runner;
pub mod server;
pub mod statuses;
pub mod telemetry;
pub mod text;
pub mod token_bucket;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use object_key::{ObjectKey, in_scope};
pub use runner::{Context, Controller, Next, run};

/// The operator that this kit is built for: the field manager of its requests.
pub const OPERATOR: &str = "podset-operator";

/// Locks a mutex, even if another thread panicked while holding it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process runs in a pod.
pub fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

#[cfg(test)]
mod testing;
