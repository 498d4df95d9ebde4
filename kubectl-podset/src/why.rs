//! What `kubectl podset why` prints: why a set is not ready or not up to date, and what helps. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{ContainerStatus, Event, Pod, PodCondition, PodStatus},
};

use crate::{
    objects::{PodSet, Spec, Status, awaited, is_behind, name, revision},
    on_one_line,
};

/// How many events it shows.
const EVENTS_SHOWN: usize = 3;

/// The revision of a PodSet without a template. A test in the operator's `revision.rs` pins it.
const DEFAULT_REVISION: &str = "njg4qh94mc";

/// What helps while a pod does not terminate.
const WAIT: &str = "wait; if the node of the pod is lost for good, delete the Node object or taint it with \
                    node.kubernetes.io/out-of-service";

/// What the API server knows about a set.
pub struct Seen {
    pub set: PodSet,
    /// The pods of the set.
    pub pods: Vec<Pod>,
    /// The stored revisions of the set.
    pub revisions: Vec<ControllerRevision>,
    /// The events of the set and of those pods.
    pub events: Vec<Event>,
    pub now: Timestamp,
}

/// Why the set is not ready or not up to date: the verdict, then a line for each reason, then what helps.
pub fn why(seen: &Seen) -> String {
    let (set, none) = (&seen.set, Status::default());
    let status = set.status.as_ref().unwrap_or(&none);
    let mut text = on_one_line(&headline(seen, status));
    let mut reasons: Vec<String> = operator(seen, status).into_iter().collect();
    if let Some(at) = &set.metadata.deletion_timestamp {
        let finalizers = set.metadata.finalizers.as_deref().unwrap_or_default();
        let waits = if finalizers.is_empty() { "the garbage collector".to_owned() } else { finalizers.join(", ") };
        reasons.push(format!("its deletion began {} ago and waits for {waits}", since(at.0, seen.now)));
    }
    reasons.extend(outdated(&set.spec, status));
    reasons.extend(seen.pods.iter().filter_map(|pod| problem(pod, seen, status)));
    for reason in reasons.iter().map(|reason| on_one_line(reason)) {
        // What was said above is not repeated.
        let (what, details) = reason.split_once(": ").unwrap_or((&reason, "-"));
        text += &format!("\n- {}", if text.contains(details) { what } else { &reason });
    }
    let warnings = warnings(seen, status, &text);
    warnings.iter().for_each(|warning| text += &format!("\n- {warning}"));
    if let Some(advice) = advice(seen, status) {
        text += &format!("\nNext: {advice}");
    }
    text
}

/// Whether it is ready and up to date, with the message of the condition Ready.
fn headline(seen: &Seen, status: &Status) -> String {
    let Seen { set, now, .. } = seen;
    let name = name(&set.metadata);
    let Some(ready) = status.ready() else {
        return format!("{name} is not ready: it has no status");
    };
    let verdict = match ready.status == "True" {
        _ if is_behind(set, status) => "may not be ready".to_owned(),
        true if live(seen) != status.available_replicas => "may not be ready".to_owned(),
        true if status.updated_replicas >= set.spec.replicas => "is ready and up to date".to_owned(),
        true => "is ready, but not up to date".to_owned(),
        false => format!("has been unready for {}", since(ready.last_transition_time.0, *now)),
    };
    format!("{name} {verdict} ({}): {}", ready.reason, ready.message)
}

/// How many pods live.
fn live(Seen { pods, .. }: &Seen) -> usize {
    pods.iter().filter(|pod| !is_over(pod) && pod.metadata.deletion_timestamp.is_none()).count()
}

/// What the operator has not done yet, and where to look for it.
fn operator(seen: &Seen, status: &Status) -> Option<String> {
    let Seen { set, now, .. } = seen;
    let look = match status.written_by.as_deref().and_then(|lease| lease.split_once('/')) {
        Some((namespace, lease)) => format!("kubectl get lease {lease} --namespace {namespace}"),
        None => "kubectl get lease podset-operator --namespace podset-operator-system".to_owned(),
    };
    let is_it = format!("check that the operator runs, leads and watches this namespace ({look})");
    let live = live(seen);
    if status.observed_generation == 0 {
        Some(format!("the operator has not looked at it yet: {is_it}"))
    } else if is_behind(set, status) && live > set.spec.replicas {
        Some(format!("{live} pods live, {} are wanted: the surplus pods are not deleted yet", set.spec.replicas))
    } else if is_behind(set, status) && awaited(set, status) > 0 {
        Some(format!("the last change is observed once its terminating pods have ended: {}", awaited(set, status)))
    } else if is_behind(set, status) {
        let changed = set.metadata.managed_fields.iter().flatten();
        let changed = changed.filter(|entry| entry.subresource.is_none()).filter_map(|entry| entry.time.as_ref()).max();
        let ago = changed.map(|time| format!(" of {} ago", since(time.0, *now))).unwrap_or_default();
        Some(format!("the operator has not acted on the last change{ago} yet: {is_it}"))
    } else if live != status.available_replicas && status.condition("Ready", "True").is_some() {
        let stale = format!("{live} pods live, but the status says {}", status.available_replicas);
        Some(format!("{stale}; if that is so for more than 5 seconds: {is_it}"))
    } else if status.update_revision.is_none() {
        Some("the operator that wrote the status does not know rolling updates: upgrade it".to_owned())
    } else {
        None
    }
}

/// Why pods still have a former template.
fn outdated(spec: &Spec, status: &Status) -> Option<String> {
    let Status { available_replicas, updated_replicas, update_revision, .. } = status;
    let old = available_replicas.saturating_sub(*updated_replicas);
    update_revision.as_ref().filter(|_| old > 0)?;
    let have = if old == 1 { "1 pod has" } else { &format!("{old} pods have") };
    let why = match spec.partition(status) {
        _ if spec.is_on_delete() => "with the strategy OnDelete they are not replaced".to_owned(),
        _ if spec.update_strategy.rolling_update.paused => "the rollout is paused".to_owned(),
        partition if old <= partition => format!("the partition keeps {partition}"),
        _ if status.condition("Stalled", "True").is_some() => "the rollout is stalled".to_owned(),
        _ => "they are replaced as new pods become available".to_owned(),
    };
    Some(format!("{have} a former template: {why}"))
}

/// What is the matter with a pod; `None`: nothing.
fn problem(pod: &Pod, Seen { set, now, .. }: &Seen, status: &Status) -> Option<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let node = node.map(|node| format!(" on {node}")).unwrap_or_default();
    let template = match (revision(pod), &status.update_revision) {
        (Some(revision), Some(update)) if revision == update => " (new template)",
        (_, Some(_)) if !is_behind(set, status) => " (former template)",
        _ => "",
    };
    let what = match &pod.metadata.deletion_timestamp {
        Some(_) if is_over(pod) => return None,
        // It is the end of the grace period.
        Some(end) if end.0 < *now => format!("should have terminated {} ago", since(end.0, *now)),
        Some(end) => format!("is terminating, for {} more at most", since(*now, end.0)),
        None => unready(pod, set.spec.min_ready_seconds, *now)?,
    };
    Some(format!("{}{template}{node} {what}", name(&pod.metadata)))
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// The condition of this type.
fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// The condition that says that no node was found for the pod. While the pod has scheduling gates, none is searched for.
fn unscheduled(status: &PodStatus) -> Option<&PodCondition> {
    let unscheduled = condition(status, "PodScheduled").filter(|scheduled| scheduled.status == "False")?;
    Some(unscheduled).filter(|unscheduled| unscheduled.reason.as_deref() != Some("SchedulingGated"))
}

/// Why a pod is not available.
fn unready(pod: &Pod, min_ready: u32, now: Timestamp) -> Option<String> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let condition = |type_| condition(status, type_);
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    if is_over(pod) {
        let ended = containers().filter_map(|container| container.state.as_ref()?.terminated.as_ref());
        // The last container that failed; if none failed, the last that ended.
        let code = ended.max_by_key(|end| (end.exit_code != 0, end.finished_at.as_ref().map(|at| at.0)));
        let code = code.map(|ended| format!(" with exit code {}", ended.exit_code)).unwrap_or_default();
        let message = status.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        return Some(format!("has finished{code}{message}"));
    }
    if let Some(ready) = condition("Ready").filter(|ready| ready.status == "True") {
        let at = ready.last_transition_time.as_ref()?.0;
        let is_early = now.duration_since(at).as_secs() < i64::from(min_ready);
        return is_early.then(|| format!("has been ready for {}; spec.minReadySeconds is {min_ready}", since(at, now)));
    }
    if let Some(unscheduled) = unscheduled(status) {
        let message = unscheduled.message.as_deref().unwrap_or("no reason is given");
        return Some(format!("cannot be scheduled: {message}"));
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    let gates: Vec<&str> = gates.map(|gate| &*gate.name).collect();
    if !gates.is_empty() {
        return Some(format!("waits for its scheduling gates: {}", gates.join(", ")));
    }
    let waiting = containers().find_map(waiting);
    let gate = || Some(format!("is not ready: {}", condition("Ready")?.message.as_ref()?));
    Some(waiting.or_else(gate).unwrap_or_else(|| "has not started".to_owned()))
}

/// What a container waits for, and how it ended last.
fn waiting(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let ended = last.map(|ended| match ended.reason.as_deref() {
        None | Some("Error") => format!("exit code {}", ended.exit_code),
        Some(reason) => format!("{reason}, exit code {}", ended.exit_code),
    });
    let restarts = format!("{} restarts", container.restart_count);
    let history = ended.map(|ended| format!(" ({ended}, {restarts})")).unwrap_or_default();
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("waiting");
        let message = waiting.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        return Some(format!("is in {reason}{history}{message}"));
    }
    let is_unready = state.running.is_some() && !container.ready && container.started != Some(false);
    is_unready.then(|| format!("runs, but its container {} is not ready{history}", container.name))
}

/// The newest warnings since the condition Ready last changed, each once, except those that `told` already contains.
fn warnings(Seen { events, now, .. }: &Seen, status: &Status, told: &str) -> Vec<String> {
    let start = status.ready().map(|ready| ready.last_transition_time.0);
    let time = |event: &Event| {
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        series.max(last).max(event.event_time.as_ref().map(|time| time.0))
    };
    let mut warnings: Vec<&Event> = events.iter().filter(|event| time(event) >= start).collect();
    warnings.sort_by_key(|event| std::cmp::Reverse(time(event)));
    let mut shown = BTreeSet::new();
    warnings.retain(|event| {
        let message = event.message.as_deref().unwrap_or_default();
        // An event about several pods has words of its own in front.
        let details = message.split_once(": ").map_or(message, |(_, details)| details);
        !told.contains(&on_one_line(details)) && shown.insert((&event.reason, message))
    });
    let line = |event: &&Event| {
        let ago = time(event).map(|at| format!(" {} ago", since(at, *now))).unwrap_or_default();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        on_one_line(&format!("warning{ago}: {}: {}", text(&event.reason), text(&event.message)))
    };
    warnings.iter().take(EVENTS_SHOWN).map(line).collect()
}

/// The command that does this with the rollout of the set.
fn rollout(what: &str, set: &PodSet) -> String {
    let namespace = set.metadata.namespace.as_deref().unwrap_or("default");
    format!("kubectl podset rollout {what} {} --namespace {namespace}", name(&set.metadata))
}

/// How to go back to the template that all pods had last; empty if it is not stored. It names the revision, because `undo` without one may
/// choose another broken template.
fn undo(Seen { set, revisions, .. }: &Seen, status: &Status) -> String {
    // Without another revision that all pods had, the first template never worked.
    let former = status.current_revision.as_ref().filter(|current| Some(*current) != status.update_revision.as_ref());
    let stored_as = former.map(|former| format!("{}-{former}", name(&set.metadata)));
    let stored = revisions.iter().find(|stored| stored.metadata.name == stored_as);
    match (former.map(String::as_str), stored) {
        // The default pod has no ControllerRevision, so `undo` cannot restore it.
        (Some(DEFAULT_REVISION), _) => ", or remove it to go back to the default pod".to_owned(),
        (Some(_), Some(stored)) => {
            let is_paused = set.spec.update_strategy.rolling_update.paused;
            let resume = if is_paused { rollout("resume", set) + " && " } else { String::new() };
            let undo = rollout("undo", set);
            format!(", or go back to the former one: {resume}{undo} --to-revision={}", stored.revision)
        }
        _ => String::new(),
    }
}

/// What the user can do about it.
fn advice(seen: &Seen, status: &Status) -> Option<String> {
    let Seen { set, pods, now, .. } = seen;
    let undo = undo(seen, status);
    let (reason, message) = status.ready().map(|ready| (&*ready.reason, &*ready.message)).unwrap_or_default();
    let is_behind = is_behind(set, status);
    let is_late = reason == "ProgressDeadlineExceeded";
    let is_overdue =
        |pod: &Pod| !is_over(pod) && pod.metadata.deletion_timestamp.as_ref().is_some_and(|end| end.0 < *now);
    let is_without_node =
        |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && pod.status.as_ref().and_then(unscheduled).is_some();
    let rejected = status.condition("ReplicaFailure", "True").map(|failure| failure.reason.as_str());
    Some(match (reason, rejected) {
        _ if set.metadata.deletion_timestamp.is_some() => return None,
        ("InvalidTemplate" | "PodsFailing", _) if !is_behind => format!("fix spec.template{undo}"),
        // A scale-down is observed only once the surplus pods are deleted.
        (_, Some(rejected)) if !is_behind || (rejected == "FailedDelete" && live(seen) > set.spec.replicas) => {
            let (what, why, seconds) = match rejected {
                "FailedCreate" => ("no pods can be created", "a quota, a webhook or a policy", 30),
                _ => ("pods cannot be deleted", "a webhook, a policy or no response", 90),
            };
            format!(
                "the message says why {what}, for example {why}; the operator tries again within about {seconds} seconds"
            )
        }
        ("WaitingForTermination", _) => WAIT.to_owned(),
        _ if is_behind => return None,
        _ if is_late && awaited(set, status) > 0 && pods.iter().any(is_overdue) => WAIT.to_owned(),
        _ if pods.iter().any(is_without_node) => {
            let undo = if is_late { &undo } else { "" };
            format!("add nodes, or change what spec.template requests or selects{undo}")
        }
        _ if is_late && message.contains("the rollout is on hold: ") => {
            "fix the cause of the hold, which the message above names".to_owned()
        }
        _ if is_late => format!("fix spec.template{undo}"),
        _ if status.updated_replicas >= status.available_replicas => return None,
        // The new template may be what is broken.
        _ if status.condition("Ready", "True").is_none() => return None,
        _ if set.spec.is_on_delete() => "delete the pods with a former template, one by one".to_owned(),
        _ if set.spec.update_strategy.rolling_update.paused => rollout("resume", set),
        ("PartitionReached", _) => {
            "to update the other pods, lower spec.updateStrategy.rollingUpdate.partition".to_owned()
        }
        _ => return None,
    })
}

/// The time between, as kubectl shows an age.
fn since(from: Timestamp, to: Timestamp) -> String {
    match to.duration_since(from).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests;
