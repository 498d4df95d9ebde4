//! Each event must match what has happened to the set.

use super::*;

/// What happened to one set so far.
#[derive(Default)]
struct Known {
    is_unlabelled: bool,
    templates: BTreeSet<String>,
    created: usize,
    has_finished: bool,
    /// The names of the pods that were terminating on a node.
    terminated: BTreeSet<String>,
    /// How many pods were replaced according to its events.
    replaced: usize,
    /// How many creates were sent for it, and how many of them their client knows to have succeeded.
    sent: usize,
    confirmed: usize,
}

#[derive(Default)]
pub struct Events {
    sets: BTreeMap<String, Known>,
    /// The namespaces in which a create was rejected, or returned a pod that admission had changed.
    failed_creates: BTreeSet<String>,
    /// The namespaces in which a delete of a pod was rejected, or hit by a fault.
    failed_deletes: BTreeSet<String>,
    /// Whether a request or a response was delayed on the side of a replica.
    has_delay: bool,
}

impl Observer for Events {
    fn changed(&mut self, change: &Change) -> Checked {
        if *change.kind == PODS {
            self.pod(change);
        } else if *change.kind == PODSETS && change.event != EventType::Deleted {
            let set = &change.object;
            let known = self.sets.entry(key(object::namespace(set), object::uid(set))).or_default();
            known.templates.insert(set["spec"]["template"].to_string());
        } else if *change.kind == EVENTS && is_by_replica(change) {
            return self.check(change);
        }
        Ok(())
    }

    fn arrived(&mut self, request: &ApiRequest, _: Duration) -> Checked {
        if is_of_pod(request, Verb::Create) {
            self.known(request).sent += 1;
        }
        Ok(())
    }
}

impl Events {
    /// A client receives the response to a request.
    pub fn answered(&mut self, entry: &LoggedRequest) {
        let (request, is_rejected) = (&entry.request, entry.answered.is_some_and(|code| code >= 400));
        if is_of_pod(request, Verb::Create) {
            self.failed_creates.extend(is_rejected.then(|| request.namespace.clone()));
            self.known(request).confirmed += usize::from(!is_rejected);
        } else if is_of_pod(request, Verb::Delete) {
            self.failed_deletes.extend(is_rejected.then(|| request.namespace.clone()));
        }
    }

    /// A fault hits a request.
    pub fn hit(&mut self, request: &ApiRequest) {
        if is_of_pod(request, Verb::Delete) {
            self.failed_deletes.insert(request.namespace.clone());
        }
    }

    pub fn delayed(&mut self) {
        self.has_delay = true;
    }

    fn pod(&mut self, change: &Change) {
        let pod = &change.object;
        let is_new = change.event == EventType::Added;
        let has_failed = is_new && is_by_replica(change) && !is_as_requested(pod);
        self.failed_creates.extend(has_failed.then(|| object::namespace(pod).to_owned()));
        let Some(owner) = owner(pod) else { return };
        let known = self.sets.entry(owner).or_default();
        known.created += usize::from(is_new);
        known.has_finished |= object::is_finished(pod);
        known.is_unlabelled |= pod["metadata"]["labels"]["controller-revision-hash"].is_null();
        if object::is_terminating(pod) && !pod["spec"]["nodeName"].is_null() {
            known.terminated.insert(object::name(pod).to_owned());
        }
    }

    fn check(&mut self, change: &Change) -> Checked {
        let event = &change.object;
        let namespace = object::namespace(event);
        let note = event["note"].as_str().unwrap_or_default();
        let uid = event["regarding"]["uid"].as_str().unwrap_or_default();
        let known = self.sets.entry(key(namespace, uid)).or_default();
        let numbers: Vec<usize> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
        let is_possible = match (event["reason"].as_str().unwrap_or_default(), &numbers[..]) {
            ("ScaledUp", [from, to]) => from < to && to - from <= known.created,
            ("ScaledDown", [from, to]) => from > to && *from <= known.created,
            ("PodsReplaced", [n]) => {
                known.replaced += n;
                known.replaced <= known.created
            }
            ("FailedCreate", _) if note.starts_with("Creating pods failed or got no answer") => {
                known.sent > known.confirmed || self.has_delay
            }
            ("FailedCreate", _) => self.failed_creates.contains(namespace),
            ("FailedDelete", _) => self.failed_deletes.contains(namespace) || self.has_delay,
            ("PodsFailing", _) => known.has_finished,
            ("RolloutStarted" | "RolloutPaused" | "RolloutStalled" | "RolloutComplete", _) => {
                known.templates.len() > 1 || known.is_unlabelled
            }
            ("WaitingForTermination", _) => known.terminated.iter().any(|pod| note.contains(pod)),
            _ => false,
        };
        if is_possible { Ok(()) } else { Err(format!("an event is wrong: {note} ({change})")) }
    }

    /// The set for which a create requests a pod.
    fn known(&mut self, create: &ApiRequest) -> &mut Known {
        let owner = object::controller_uid(&create.body).unwrap_or_default();
        self.sets.entry(key(&create.namespace, owner)).or_default()
    }
}
