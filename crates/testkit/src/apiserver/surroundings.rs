//! Sets the environment of the operator's pods: their scripts, quotas and webhooks.

use std::sync::Arc;

use serde_json::Value;

use super::{ApiServer, kinds::PODS, object, settings::PodScript, status::Status, store::State};

impl ApiServer {
    /// Sets the script of all pods, from their next step on.
    pub fn set_pod_script(&self, script: PodScript) {
        self.choose_pod_scripts(move |_| script.clone());
    }

    pub fn choose_pod_scripts(&self, choose_script: impl Fn(&Value) -> PodScript + Send + Sync + 'static) {
        self.with(|state| state.kubelet.choose_script = Arc::new(choose_script));
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
