//! Settings of the cluster: latencies, limits, behaviour.

use std::{collections::BTreeSet, time::Duration};

#[derive(Clone, Debug)]
pub struct Settings {
    /// From the sending of a request to its execution.
    pub request_latency: Duration,
    /// From the execution of a request to the arrival of its answer.
    pub answer_latency: Duration,
    /// The maximum random part of a latency. With zero, the order of events is fixed.
    pub jitter: Duration,
    /// The delay of each step of the garbage collector or the namespace controller.
    pub collect_after: Duration,
    /// Whether `?timeout=` keeps a late request from being executed.
    pub honour_timeout: bool,
    /// The maximum number of items on a page of a list, even with a higher limit.
    pub page: usize,
    /// Resources without an installed CRD.
    pub unserved: BTreeSet<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request_latency: Duration::from_millis(1),
            answer_latency: Duration::from_millis(1),
            jitter: Duration::ZERO,
            collect_after: Duration::from_millis(50),
            honour_timeout: true,
            page: usize::MAX,
            unserved: BTreeSet::new(),
        }
    }
}
