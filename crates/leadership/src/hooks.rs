//! Hooks for metrics and liveness checks.

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
}

/// No hooks.
impl Hooks for () {}
