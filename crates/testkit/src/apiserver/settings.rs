//! Settings of the cluster: latencies, limits, quotas, webhooks and the lives of pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use super::status::Status;

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

/// A webhook: it may change or reject the pod that is being created.
pub type Webhook = Arc<dyn Fn(&mut Value) -> Result<(), Status> + Send + Sync>;

#[derive(Default)]
pub struct Admission {
    /// How many pods a ResourceQuota allows, by namespace, and the action that set it.
    pub quotas: BTreeMap<String, (usize, &'static str)>,
    /// The webhook for pods, and the action that set it.
    pub webhook: Option<(Webhook, &'static str)>,
    /// Live pods that clients cannot delete, by UID, each with the action that protects it.
    pub protected: BTreeMap<String, &'static str>,
}

/// The life of one pod. Each time counts from the step before; a step with `None` never happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodScript {
    /// From creation to binding.
    pub bound_after: Option<Duration>,
    /// From `Running` to ready.
    pub ready_after: Option<Duration>,
    /// From `Running` to the exit of the container, and whether it succeeds.
    pub ends_after: Option<(Duration, bool)>,
    /// From the deletionTimestamp to removal; with `None` the pod terminates forever.
    pub gone_after: Option<Duration>,
}

impl Default for PodScript {
    fn default() -> Self {
        Self {
            bound_after: Some(Duration::from_millis(20)),
            ready_after: Some(Duration::ZERO),
            ends_after: None,
            gone_after: Some(Duration::from_secs(1)),
        }
    }
}

impl PodScript {
    /// Stays Pending forever, without a node and without a condition.
    pub fn unschedulable() -> Self {
        Self { bound_after: None, ..Self::default() }
    }

    pub fn never_ready() -> Self {
        Self { ready_after: None, ..Self::default() }
    }

    pub fn fails_after(running: Duration) -> Self {
        Self { ends_after: Some((running, false)), ..Self::default() }
    }

    pub fn gone_after(terminating: Duration) -> Self {
        Self { gone_after: Some(terminating), ..Self::default() }
    }
}

pub type ChooseScript = Arc<dyn Fn(&Value) -> PodScript + Send + Sync>;

pub struct Kubelet {
    /// Chooses the script of each pod, at each of its steps.
    pub choose_script: ChooseScript,
    /// How many pods were bound so far. Binding is round robin.
    pub bound: u64,
}

impl Default for Kubelet {
    fn default() -> Self {
        Self { choose_script: Arc::new(|_| PodScript::default()), bound: 0 }
    }
}
