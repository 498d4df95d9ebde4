//! The scheduler and the kubelets. They run each stored pod by a script that the test chooses.

use super::*;

const NODES: u64 = 3;

/// From binding to `Running`.
const STARTS_IN: Duration = Duration::from_millis(500);

const SCHEDULER: &str = "scheduler";
const KUBELET: &str = "kubelet";

impl State {
    /// Queues the next job for a new or a terminating pod after a change.
    pub(super) fn queue_pod_jobs(&mut self, change: &Change) {
        if *change.kind != PODS || change.event == EventType::Deleted {
            return;
        }
        let pod = &change.object;
        let script = (self.settings.choose_script)(pod);
        let was_terminating = change.before.as_ref().is_some_and(|before| object::is_terminating(before));
        let is_ending = object::is_terminating(pod) && !was_terminating && !pod["spec"]["nodeName"].is_null();
        let (delay, job): (_, fn(&mut State, &str)) = match change.event {
            EventType::Added => (script.bound_after, State::bind),
            _ => (script.gone_after.filter(|_| is_ending), State::remove_pod),
        };
        if let Some(delay) = delay {
            self.after(delay, object::uid(pod), job);
        }
    }

    /// The scheduler binds the pod to a node.
    fn bind(&mut self, uid: &str) {
        let now = self.clock.rfc3339();
        let node = format!("node-{}", self.bound % NODES);
        // The API server rejects the binding of a pod that is being deleted.
        if self.by_uid(uid).is_some_and(|pod| object::is_terminating(pod)) {
            return;
        }
        let bound = self.change_pod(uid, SCHEDULER, |pod| {
            pod["spec"]["nodeName"] = node.into();
            object::set_condition(pod, pod_condition("PodScheduled", "True", &now));
        });
        if bound.is_some() {
            self.bound += 1;
            self.after(STARTS_IN, uid, State::run_pod);
        }
    }

    /// The kubelet reports `Running`, and ready at once if the script has no delay.
    fn run_pod(&mut self, uid: &str) {
        let now = self.clock.rfc3339();
        let Some(pod) = self.by_uid(uid).cloned() else { return };
        let script = (self.settings.choose_script)(&pod);
        let ready = script.ready_after == Some(Duration::ZERO) && !object::has_broken_image(&pod);
        let running = self.change_pod(uid, KUBELET, |pod| {
            pod["status"]["phase"] = "Running".into();
            pod["status"]["startTime"] = now.as_str().into();
            report(pod, ready, &json!({ "running": { "startedAt": now } }), &now);
        });
        if running.is_none() {
            return;
        }
        if let Some(delay) = script.ready_after.filter(|_| !ready) {
            self.after(delay, uid, |state, uid| state.set_ready(uid, true));
        }
        if let Some((delay, success)) = script.ends_after {
            self.after(delay, uid, move |state, uid| state.finish_pod(uid, success));
        }
    }

    /// The kubelet reports a running pod as ready or not. A broken pod is never ready.
    pub(super) fn set_ready(&mut self, uid: &str, ready: bool) {
        let now = self.clock.rfc3339();
        let ready = ready && !self.by_uid(uid).is_some_and(|pod| object::has_broken_image(pod));
        self.change_pod(uid, KUBELET, |pod| {
            if object::phase(pod) == "Running" {
                let state = pod["status"]["containerStatuses"][0]["state"].clone();
                report(pod, ready, &state, &now);
            }
        });
    }

    /// The container exits, and the pod finishes.
    pub(super) fn finish_pod(&mut self, uid: &str, success: bool) {
        let now = self.clock.rfc3339();
        let (phase, exit_code, reason) = if success { ("Succeeded", 0, "Completed") } else { ("Failed", 1, "Error") };
        self.change_pod(uid, KUBELET, |pod| {
            let started = pod["status"]["startTime"].clone();
            let state = json!({ "terminated": {
                "exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now,
            }});
            pod["status"]["phase"] = phase.into();
            report(pod, false, &state, &now);
        });
    }

    /// The kubelet removes a terminating pod: a delete with grace period 0, like a real kubelet.
    fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.by_uid(uid).cloned().filter(|pod| object::is_terminating(pod)) else { return };
        let options = json!({ "gracePeriodSeconds": 0 });
        self.delete_object(&pod, &options, KUBELET).expect("a delete without preconditions is never rejected");
    }

    /// Changes a stored pod. Returns none if it is gone or has finished.
    fn change_pod(&mut self, uid: &str, by: &str, change: impl FnOnce(&mut Value)) -> Option<Arc<Value>> {
        let stored = self.by_uid(uid).cloned()?;
        if object::is_finished(&stored) {
            return None;
        }
        let mut pod = (*stored).clone();
        change(&mut pod);
        Some(self.put(pod, by))
    }
}

fn pod_condition(kind: &str, status: &str, now: &str) -> Value {
    json!({ "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now })
}

/// Reports the state of the containers, and whether the pod is ready.
fn report(pod: &mut Value, ready: bool, state: &Value, now: &str) {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let statuses = containers.map(|container| {
        let (name, image) = (&container["name"], &container["image"]);
        json!({ "name": name, "image": image, "ready": ready, "restartCount": 0, "state": state })
    });
    pod["status"]["containerStatuses"] = statuses.collect();
    let status = if ready { "True" } else { "False" };
    if object::condition(pod, "Ready").is_none_or(|condition| condition["status"] != status) {
        object::set_condition(pod, pod_condition("Ready", status, now));
    }
}
