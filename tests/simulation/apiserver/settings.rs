//! What a test may set at any time about the cluster: latencies, limits, habits. Values only.

use std::{collections::BTreeSet, time::Duration};

/// Settings that a test may change at any time.
#[derive(Clone, Debug)]
pub struct Settings {
    /// From the sending of a request to its execution.
    pub request_latency: Duration,
    /// From the execution of a request to the arrival of its answer.
    pub answer_latency: Duration,
    /// From a change to its arrival on a watch.
    pub watch_latency: Duration,
    /// The most that chance adds to each of the three; zero keeps the order of things plain.
    pub jitter: Duration,
    /// How long the garbage collector takes to notice that an owner is gone.
    pub collect_after: Duration,
    /// How often an idle watch gets a bookmark.
    pub bookmark_every: Duration,
    /// Whether `?timeout=` keeps a late request from being executed.
    pub honour_timeout: bool,
    /// The largest `spec.replicas` that the PodSet CRD lets pass.
    pub max_replicas: i64,
    /// How old a read with `resourceVersion=0` may be, and then is.
    pub cache_age: Duration,
    /// How many items a page of a list has at most, whatever its limit.
    pub page: usize,
    /// Resources (qualified) whose CRD is not installed.
    pub unserved: BTreeSet<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request_latency: Duration::from_millis(1),
            answer_latency: Duration::from_millis(1),
            watch_latency: Duration::from_millis(2),
            jitter: Duration::ZERO,
            collect_after: Duration::from_millis(50),
            bookmark_every: Duration::from_secs(60),
            honour_timeout: true,
            max_replicas: 10,
            cache_age: Duration::ZERO,
            page: usize::MAX,
            unserved: BTreeSet::new(),
        }
    }
}
