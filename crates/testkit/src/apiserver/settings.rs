//! Settings of the cluster: latencies, limits, quotas, webhooks and the lives of pods. Tests set them.

use std::collections::BTreeSet;

use super::*;

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
    /// Chooses the script of each pod, at each of its steps.
    pub choose_script: ChooseScript,
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
            choose_script: Arc::new(|_| PodScript::default()),
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

impl ApiServer {
    /// Sets the script of all pods, from their next step on.
    pub fn set_pod_script(&self, script: PodScript) {
        self.choose_pod_scripts(move |_| script.clone());
    }

    pub fn choose_pod_scripts(&self, choose_script: impl Fn(&Value) -> PodScript + Send + Sync + 'static) {
        self.with(|state| state.settings.choose_script = Arc::new(choose_script));
    }

    pub fn fail_pod(&self, namespace: &str, name: &str) {
        self.with_pod(namespace, name, |state, uid| state.finish_pod(uid, false));
    }

    pub fn succeed_pod(&self, namespace: &str, name: &str) {
        self.with_pod(namespace, name, |state, uid| state.finish_pod(uid, true));
    }

    fn with_pod(&self, namespace: &str, name: &str, act: impl FnOnce(&mut State, &str)) {
        self.with(|state| {
            let pod = state.expect(&PODS, namespace, name);
            act(state, object::uid(&pod));
        });
    }

    /// Makes a failed pod run again, which no real kubelet should do.
    pub fn run_again(&self, namespace: &str, name: &str) {
        self.with(|state| {
            let mut pod = (*state.expect(&PODS, namespace, name)).clone();
            pod["status"]["phase"] = "Running".into();
            state.put(pod.clone(), "kubelet");
            state.set_ready(object::uid(&pod), true);
        });
    }

    pub fn set_ready(&self, namespace: &str, name: &str, ready: bool) {
        self.with_pod(namespace, name, |state, uid| state.set_ready(uid, ready));
    }

    pub fn set_quota(&self, namespace: &str, pods: usize) {
        self.with(|state| state.admission.quotas.insert(namespace.to_owned(), (pods, state.coverage.place_fault())));
    }

    pub fn lift_quota(&self, namespace: &str) {
        self.with(|state| {
            state.coverage.place_fault();
            state.admission.quotas.remove(namespace);
        });
    }

    pub fn set_webhook(&self, webhook: impl Fn(&mut Value) -> Result<(), Status> + Send + Sync + 'static) {
        self.with(|state| state.admission.webhook = Some((Arc::new(webhook), state.coverage.place_fault())));
    }

    pub fn change_new_pods(&self, change: impl Fn(&mut Value) + Send + Sync + 'static) {
        self.set_webhook(move |pod| {
            change(pod);
            Ok(())
        });
    }

    /// Rejects each delete of a pod while the pod is live.
    pub fn protect_pod(&self, namespace: &str, name: &str) {
        self.with(|state| {
            let (pod, action) = (state.expect(&PODS, namespace, name), state.coverage.place_fault());
            state.admission.protected.insert(object::uid(&pod).to_owned(), action);
        });
    }

    pub fn lift_webhook(&self) {
        self.with(|state| state.admission.webhook = None);
    }
}
