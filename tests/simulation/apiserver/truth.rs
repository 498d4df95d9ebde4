//! The checker of what replicas do besides making pods: they touch nobody else's objects, a delete hits no pod that was
//! made after it was sent and none that was not too many as far as its sender knew (`heard`), and what they say in statuses and
//! events is so. Reads; changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{
    heard::{Heard, is_as_ordered},
    kinds::{EVENTS, PODS, PODSETS},
    log::LoggedRequest,
    object,
    request::{ApiRequest, Verb},
    store::{Change, ChangeKind},
};

/// Who is not a replica.
const OTHERS: [&str; 5] = ["user", "kubelet", "scheduler", "garbage-collector", "namespace-controller"];

fn is_create(request: &ApiRequest) -> bool {
    *request.kind == PODS && request.verb == Verb::Create
}

/// What is known of one set.
#[derive(Default)]
struct Known {
    namespace: String,
    replicas: BTreeMap<i64, u64>,
    /// Whether one of its pods lacked the label of its revision.
    is_unlabelled: bool,
    /// All its templates.
    templates: BTreeSet<String>,
    /// The names of all pods that it ever had.
    pods: BTreeSet<String>,
    made: usize,
    /// Whether one of them finished.
    has_finished: bool,
    /// Those that were deleted while they had a node.
    terminated: BTreeSet<String>,
    /// How many pods its events say were made in place of others.
    said: usize,
    /// How many creates were sent for it, and of how many their sender learnt that they were done.
    tried: usize,
    learnt: usize,
}

/// The checker.
#[derive(Default)]
pub struct Truth {
    sets: BTreeMap<String, Known>,
    /// When each pod was made, and by whom, by its UID.
    made: BTreeMap<String, (Duration, String)>,
    /// What a delete took last from each name.
    hit: BTreeMap<(String, String), String>,
    /// What clients were sent.
    pub heard: Heard,
    /// How many creates were refused, or came back as something else than was ordered.
    refused: usize,
    /// How many deletes of pods were rejected.
    undeleted: usize,
    /// Whether something was held up where no request is seen: on the side of a replica.
    has_held_up: bool,
    violations: Vec<String>,
}

impl Truth {
    /// Takes in a change.
    pub fn observe(&mut self, change: &Change) {
        let is_by_replica = !OTHERS.contains(&&*change.by);
        if *change.kind == PODS {
            self.observe_pod(change, is_by_replica);
        } else if *change.kind == PODSETS {
            self.observe_set(change, is_by_replica);
        } else if *change.kind == EVENTS && is_by_replica {
            self.check_event(change);
        }
    }

    fn observe_pod(&mut self, change: &Change, is_by_replica: bool) {
        let (pod, uid) = (&change.object, object::uid(&change.object).to_owned());
        let name = object::name(pod).to_owned();
        let (_, maker) = self.made.entry(uid.clone()).or_insert_with(|| (change.at, change.by.clone()));
        if is_by_replica && maker == "user" {
            self.violations.push(format!("a stranger's pod was changed: {change}"));
        }
        if change.change == ChangeKind::Added && is_by_replica && !is_as_ordered(pod) {
            self.refused += 1;
        }
        let ends = change.change == ChangeKind::Deleted || object::is_terminating(pod);
        if is_by_replica && ends {
            self.hit.insert((object::namespace(pod).to_owned(), name.clone()), uid);
        }
        if let Some(owner) = object::controller_uid(pod) {
            let known = self.sets.entry(owner.to_owned()).or_default();
            // A claim from another namespace makes it no pod of the set.
            if !known.namespace.is_empty() && known.namespace != object::namespace(pod) {
                return;
            }
            if change.change == ChangeKind::Added {
                known.made += 1;
            }
            known.has_finished |= object::is_finished(pod);
            known.is_unlabelled |= pod["metadata"]["labels"]["controller-revision-hash"].is_null();
            if object::is_terminating(pod) && !pod["spec"]["nodeName"].is_null() {
                known.terminated.insert(name.clone());
            }
            known.pods.insert(name);
        }
    }

    fn observe_set(&mut self, change: &Change, is_by_replica: bool) {
        let (set, generation) = (&change.object, object::generation(&change.object));
        let before = change.before.as_deref();
        if change.change != ChangeKind::Deleted {
            let known = self.sets.entry(object::uid(set).to_owned()).or_default();
            known.namespace = object::namespace(set).to_owned();
            let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
            known.replicas.insert(generation, wanted);
            known.templates.insert(set["spec"]["template"].to_string());
        }
        if !is_by_replica {
            return;
        }
        let is_status_alone = before.is_some_and(|before| before["spec"] == set["spec"]);
        if change.change != ChangeKind::Modified || !is_status_alone {
            self.violations.push(format!("more than a status was changed: {change}"));
        } else if let Err(lie) = self.check_status(set, before.map_or(&Value::Null, |before| &before["status"])) {
            self.violations.push(format!("{lie}: {change}: {}", set["status"]));
        }
    }

    /// Whether a status can be true at all: it may be late, and never of its own making.
    fn check_status(&self, set: &Value, before: &Value) -> Result<(), &'static str> {
        let Some(known) = self.sets.get(object::uid(set)) else { return Err("the status of nobody") };
        let status = &set["status"];
        let names: Vec<&str> = status["podNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (ready, observed) = (status["readyReplicas"].as_u64(), status["observedGeneration"].as_i64());
        if status["availableReplicas"].as_u64() != u64::try_from(names.len()).ok() {
            return Err("availableReplicas is not the number of podNames");
        }
        if ready > status["availableReplicas"].as_u64() {
            return Err("more pods are ready than available");
        }
        if names.iter().any(|name| !known.pods.contains(*name)) {
            return Err("podNames has one that the set never had");
        }
        if observed < before["observedGeneration"].as_i64() || observed > Some(object::generation(set)) {
            return Err("observedGeneration went back, or ahead");
        }
        let wanted = observed.and_then(|observed| known.replicas.range(..=observed).next_back()).map(|(_, n)| *n);
        let is_ready = object::condition(set, "Ready").is_some_and(|held| held["status"] == "True");
        if object::condition(set, "ReplicaFailure").is_some_and(|held| held["reason"] == "FailedDelete") {
            // Surplus pods that cannot be deleted are counted beside those that are wanted.
            let wanted =
                observed.and_then(|observed| known.replicas.range(observed..).map(|(_, n)| *n).min()).or(wanted);
            return if is_ready && ready < wanted { Err("Ready, and too few pods are") } else { Ok(()) };
        }
        if is_ready && (ready != wanted || status["availableReplicas"].as_u64() != wanted) {
            return Err("Ready, and not all pods are");
        }
        Ok(())
    }

    fn check_event(&mut self, change: &Change) {
        let event = &change.object;
        let note = event["note"].as_str().unwrap_or_default();
        let known = self.sets.entry(event["regarding"]["uid"].as_str().unwrap_or_default().to_owned()).or_default();
        let numbers: Vec<usize> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
        let is_so = match (event["reason"].as_str().unwrap_or_default(), &numbers[..]) {
            ("ScaledUp", [from, to]) => from < to && to - from <= known.made,
            ("ScaledDown", [from, to]) => from > to,
            ("PodsReplaced", [n]) => {
                known.said += n;
                known.said <= known.made
            }
            ("FailedCreate", _) if note.starts_with("Pods may not have been created") => {
                known.tried > known.learnt || self.has_held_up
            }
            ("FailedCreate", _) => self.refused > 0,
            ("FailedDelete", _) => self.undeleted > 0,
            ("PodsFailing", _) => known.has_finished,
            ("RolloutStarted" | "RolloutPaused" | "RolloutStalled" | "RolloutComplete", _) => {
                known.templates.len() > 1 || known.is_unlabelled
            }
            ("WaitingForTermination", _) => known.terminated.iter().any(|pod| note.contains(pod)),
            _ => false,
        };
        if !is_so {
            self.violations.push(format!("an event that is not so: {note} ({change})"));
        }
    }

    /// What is known of the set for which a pod is to be created.
    fn known(&mut self, create: &ApiRequest) -> &mut Known {
        self.sets.entry(object::controller_uid(&create.body).unwrap_or_default().to_owned()).or_default()
    }

    /// A replica was kept from sending, or from hearing.
    pub fn held_up(&mut self) {
        self.has_held_up = true;
    }

    /// A request was sent.
    pub fn arrived(&mut self, request: &ApiRequest, at: Duration) {
        if is_create(request) {
            self.known(request).tried += 1;
        }
        if *request.kind == PODS
            && request.verb == Verb::Delete
            && let Err(why) = self.heard.delete(request, at)
        {
            let ApiRequest { instance, path, .. } = request;
            let seconds = at.as_secs_f64();
            self.violations
                .push(format!("{seconds:.3}s {instance} deletes {path}, and there were not too many: {why}"));
        }
    }

    /// A request was answered, and whoever sent it hears that.
    pub fn answered(&mut self, entry: &LoggedRequest, body: Option<&Value>, at: Duration) {
        if let Some(body) = body {
            self.heard.answer(entry, body, at);
        }
        if is_create(&entry.request) {
            let is_refused = entry.answered.is_some_and(|code| code >= 400);
            self.refused += usize::from(is_refused);
            self.known(&entry.request).learnt += usize::from(!is_refused);
        }
        let is_delete = *entry.request.kind == PODS && entry.request.verb == Verb::Delete;
        self.undeleted += usize::from(is_delete && entry.answered.is_some_and(|code| code >= 400));
    }

    /// A request was executed.
    pub fn executed(&mut self, entry: &LoggedRequest) {
        let request = &entry.request;
        if *request.kind != PODS {
            return;
        }
        match request.verb {
            Verb::Delete if entry.took_effect() => {
                let hit = self.hit.get(&(request.namespace.clone(), request.name.clone()));
                let made = hit.and_then(|uid| self.made.get(uid));
                if made.is_some_and(|(made, _)| *made > entry.at) {
                    self.violations
                        .push(format!("a delete hit a pod that was made after it was sent: {}", entry.line()));
                }
            }
            _ => {}
        }
    }

    /// All violations so far.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }
}
