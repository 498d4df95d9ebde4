//! Hooks for metrics, traces and liveness checks.

use std::time::Duration;

use crate::{Change, OperationError};

/// What an election reports. By default, each method does nothing. They run on the election's task, so they must not block.
///
/// ```
/// use leadership::Hooks;
///
/// struct Gauge(std::sync::atomic::AtomicBool);
///
/// impl Hooks for Gauge {
///     fn leads(&self, leads: bool) {
///         self.0.store(leads, std::sync::atomic::Ordering::Relaxed);
///     }
/// }
///
/// let mut candidate = leadership::Candidate::new("default", "my-operator", "replica-1");
/// candidate.hooks = std::sync::Arc::new(Gauge(Default::default()));
/// ```
pub trait Hooks: Send + Sync + 'static {
    /// A heartbeat for a liveness check. It comes at least every 5 s, plus half of the renew deadline while an operation on the Lease runs.
    fn turned(&self) {}

    /// This process leads from now on (`true`), or no longer (`false`).
    fn leads(&self, leads: bool) {
        let _ = leads;
    }

    /// A read of the Lease, and the write if it was due, ended after `took`. An error does not end a term before its deadline.
    fn operated(&self, change: Change, took: Duration, result: Result<(), &OperationError>) {
        let _ = (change, took, result);
    }
}

/// No hooks.
impl Hooks for () {}
