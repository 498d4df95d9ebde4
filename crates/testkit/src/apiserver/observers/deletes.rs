//! A client deletes a pod only if the pods and sets that it received, however outdated, justify this. A delete removes
//! no pod that was created after it was sent.

use super::*;

/// The maximum time from the decision to the sending of a delete: other requests of the same pass come first, each of
/// up to 10 s, and the process can freeze in between.
const DECIDED_WITHIN: Duration = Duration::from_secs(60);

/// How long after its sending a delete may take effect.
const MAY_LAND: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Pod {
    seen: Value,
    /// The version of the last list without this pod.
    missing_from: u64,
    /// The key of its set.
    owner: Option<String>,
    /// The keys of all sets that it ever belonged to: a delete may be sent a little later than it was decided.
    owners: BTreeSet<String>,
    is_live: bool,
    /// Whether it finished, or a webhook changed it when it was created.
    may_be_deleted: bool,
}

impl Pod {
    /// The key of its set, if the pod is live.
    fn live_of(&self) -> Option<&String> {
        self.owner.as_ref().filter(|_| self.is_live)
    }

    fn learn(&mut self, pod: &Value, is_gone: bool) {
        self.seen = pod.clone();
        self.owner = owner(pod);
        self.owners.extend(self.owner.clone());
        self.is_live = !is_gone && object::is_live(pod);
        self.may_be_deleted |= object::is_finished(pod);
    }
}

/// What a client knew about a set from some time on.
#[derive(Clone)]
struct View {
    since: Duration,
    /// `u64::MAX` until the client received the set.
    wanted: u64,
    /// The live pods, and since when each is ready.
    live: BTreeMap<Arc<str>, Option<Duration>>,
    /// None while rollouts are paused or off.
    rollout: Option<Rollout>,
}

#[derive(Clone, PartialEq)]
struct Rollout {
    template: Arc<Value>,
    max_unavailable: u64,
    min_ready: Duration,
}

/// The value of [`View::rollout`].
fn rollout(set: &Value) -> Option<Rollout> {
    let spec = &set["spec"];
    let strategy = &spec["updateStrategy"];
    if strategy["type"] == "OnDelete" || strategy["rollingUpdate"]["paused"] == true {
        return None;
    }
    let min_ready = Duration::from_secs(spec["minReadySeconds"].as_u64().unwrap_or(0));
    let template = Arc::new(spec["template"].clone());
    Some(Rollout { template, max_unavailable: object::max_unavailable(set), min_ready })
}

/// Whether the pod can come from this template.
pub fn has_template(pod: &Value, template: &Value) -> bool {
    let holds = |whole: &Value, part: &Value| {
        part.as_object().into_iter().flatten().all(|(field, value)| whole[field] == *value)
    };
    let is_of_spec = match &template["spec"] {
        Value::Null => pod["spec"]["containers"][0]["name"] == "fancy-alpine",
        spec => holds(&pod["spec"], spec),
    };
    is_of_spec && ["labels", "annotations"].iter().all(|of| holds(&pod["metadata"][of], &template["metadata"][of]))
}

#[derive(Default)]
struct Client {
    pods: BTreeMap<Arc<str>, Pod>,
    /// The version of each set, by namespace and UID.
    sets: BTreeMap<String, u64>,
    /// What it knew about each set, newest last, by namespace and UID.
    views: BTreeMap<String, Vec<View>>,
    /// The deletes that were sent and not rejected, by the UID of the pod.
    deletes: BTreeMap<Arc<str>, Duration>,
}

#[derive(Default)]
pub struct Deletes {
    clients: BTreeMap<String, Client>,
    created: BTreeMap<String, Duration>,
    /// The UID of the last pod that a replica deleted, by namespace and name.
    hit: BTreeMap<(String, String), String>,
}

/// Whether a pod looks as the operator requested it.
pub fn is_as_requested(pod: &Value) -> bool {
    object::controller_uid(pod).is_some()
        && pod["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "podset-operator"
        && object::name(pod).contains("-pod")
}

impl Client {
    fn change(&mut self, at: Duration, set: &str, change: impl FnOnce(&mut View)) {
        let views = self.views.entry(set.to_owned()).or_default();
        let nothing = || View { since: at, wanted: u64::MAX, live: BTreeMap::new(), rollout: None };
        let mut view = views.last().cloned().unwrap_or_else(nothing);
        view.since = at;
        change(&mut view);
        views.push(view);
    }

    fn learn(&mut self, at: Duration, object: &Value, is_gone: bool) {
        match object["kind"].as_str() {
            Some("PodSet") if !is_gone => self.learn_set(at, object),
            Some("Pod") => self.learn_pod_unless_outdated(at, object, is_gone),
            _ => {}
        }
    }

    fn learn_set(&mut self, at: Duration, set: &Value) {
        let key = key(object::namespace(set), object::uid(set));
        let known = self.sets.entry(key.clone()).or_default();
        if object::version(set) > *known {
            *known = object::version(set);
            let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
            let rollout = rollout(set);
            let is_known = |view: &View| view.wanted == wanted && view.rollout == rollout;
            if !self.views.get(&key).and_then(|views| views.last()).is_some_and(is_known) {
                self.change(at, &key, |view| (view.wanted, view.rollout) = (wanted, rollout));
            }
        }
    }

    /// Records a state of a pod from a watch or a list. Ignores a state that is older than a list without the pod.
    fn learn_pod_unless_outdated(&mut self, at: Duration, pod: &Value, is_gone: bool) {
        if self.pods.get(object::uid(pod)).is_none_or(|known| known.missing_from <= object::version(pod)) {
            self.learn_pod(at, pod, is_gone);
        }
    }

    fn learn_pod(&mut self, at: Duration, pod: &Value, is_gone: bool) {
        let uid: Arc<str> = object::uid(pod).into();
        let known = self.pods.entry(uid.clone()).or_default();
        let (version, known_version) = (object::version(pod), object::version(&known.seen));
        if version < known_version || is_gone && version == known_version {
            return;
        }
        let former = known.live_of().cloned();
        known.learn(pod, is_gone);
        let owner = known.live_of().cloned();
        if let Some(former) = former.filter(|former| owner.as_ref() != Some(former)) {
            self.change(at, &former, |view| _ = view.live.remove(&uid));
        }
        if let Some(owner) = owner {
            self.learn_live_pod(at, &owner, &uid, object::is_ready(pod));
        }
    }

    fn learn_live_pod(&mut self, at: Duration, set: &str, uid: &Arc<str>, is_ready: bool) {
        let is_known = |view: &View| view.live.get(uid).is_some_and(|since| since.is_some() == is_ready);
        if !self.views.get(set).and_then(|views| views.last()).is_some_and(is_known) {
            self.change(at, set, |view| _ = view.live.insert(uid.clone(), is_ready.then_some(at)));
        }
    }

    /// Records a list. A pod that is not in it is gone, or no longer selected.
    fn learn_list(&mut self, at: Duration, request: &ApiRequest, all: &[&Value], version: u64) {
        if *request.kind == PODSETS {
            return all.iter().for_each(|set| self.learn_set(at, set));
        }
        all.iter().for_each(|pod| self.learn_pod_unless_outdated(at, pod, false));
        let listed: BTreeSet<Arc<str>> = all.iter().map(|item| object::uid(item).into()).collect();
        let is_in = |pod: &Value| request.namespace.is_empty() || object::namespace(pod) == request.namespace;
        let is_missing = |uid: &Arc<str>, pod: &Pod| {
            pod.is_live && is_in(&pod.seen) && object::version(&pod.seen) <= version && !listed.contains(uid)
        };
        let missing: Vec<Arc<str>> =
            self.pods.iter().filter(|(uid, pod)| is_missing(uid, pod)).map(|(uid, _)| uid.clone()).collect();
        for uid in missing {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            (pod.is_live, pod.missing_from) = (false, version);
            if let Some(owner) = pod.owner.clone() {
                self.change(at, &owner, |view| _ = view.live.remove(&uid));
            }
        }
    }

    fn target(&self, delete: &ApiRequest) -> Option<Arc<str>> {
        let is_named = |pod: &Value| object::name(pod) == delete.name && object::namespace(pod) == delete.namespace;
        if let Some(uid) = delete.body["preconditions"]["uid"].as_str() {
            return Some(uid.into());
        }
        let named = self.pods.iter().filter(|(_, pod)| is_named(&pod.seen));
        named.max_by_key(|(_, pod)| object::version(&pod.seen)).map(|(uid, _)| uid.clone())
    }

    /// Whether this client has a reason to delete this pod. At some moment at which it may have decided so, it knew of
    /// more live pods than wanted, without those that it is deleting; or the pod had an old template, and was not
    /// available or enough other pods were ready.
    fn is_justified(&self, at: Duration, uid: &Arc<str>) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        if pod.may_be_deleted {
            return true;
        }
        // The views that were current within the time.
        let first = |views: &[View]| views.iter().rposition(|v| v.since + DECIDED_WITHIN < at).unwrap_or_default();
        let views = pod.owners.iter().filter_map(|owner| self.views.get(owner));
        let mut recent = views.flat_map(|views| &views[first(views)..]);
        recent.any(|view| {
            view.live.contains_key(uid)
                && (self.is_surplus(at, uid, view) || self.is_outdated(at, uid, &pod.seen, view))
        })
    }

    /// Whether more pods were live than wanted, without the others that this client is deleting.
    fn is_surplus(&self, at: Duration, uid: &Arc<str>, view: &View) -> bool {
        let remaining = view.live.keys().filter(|other| *other == uid || !self.is_deleting(at, other)).count();
        remaining as u64 > view.wanted
    }

    /// Whether the pod had an old template, and was not available or enough other pods were ready.
    fn is_outdated(&self, at: Duration, uid: &Arc<str>, pod: &Value, view: &View) -> bool {
        let Some(Rollout { template, max_unavailable, min_ready }) = &view.rollout else { return false };
        let is_unlabelled = pod["metadata"]["labels"]["controller-revision-hash"].is_null();
        if !is_unlabelled && has_template(pod, template) {
            return false;
        }
        let decided = view.since.max(at.saturating_sub(DECIDED_WITHIN));
        let ready_since = view.live.get(uid).copied().flatten();
        let ready = view.live.iter().filter(|(_, since)| since.is_some()).map(|(other, _)| other);
        let others = ready.filter(|other| *other != uid && !self.is_deleting(at, other)).count() as u64;
        ready_since.is_none_or(|since| decided < since + *min_ready) || others + max_unavailable >= view.wanted
    }

    /// Whether a delete of this pod may still take effect.
    fn is_deleting(&self, at: Duration, uid: &str) -> bool {
        self.deletes.get(uid).is_some_and(|sent| *sent + MAY_LAND >= at)
    }
}

impl Observer for Deletes {
    fn changed(&mut self, change: &Change) -> Checked {
        if *change.kind != PODS {
            return Ok(());
        }
        let (pod, uid) = (&change.object, object::uid(&change.object).to_owned());
        self.created.entry(uid.clone()).or_insert(change.at);
        let ends = change.event == EventType::Deleted || object::is_terminating(pod);
        if ends && is_by_replica(change) {
            self.hit.insert((object::namespace(pod).to_owned(), object::name(pod).to_owned()), uid);
        }
        Ok(())
    }

    fn arrived(&mut self, request: &ApiRequest, at: Duration) -> Checked {
        if !is_of_pod(request, Verb::Delete) {
            return Ok(());
        }
        let (ApiRequest { instance, path, .. }, seconds) = (request, at.as_secs_f64());
        let unjustified = |why| format!("{seconds:.3}s {instance} deletes {path} without a reason: {why}");
        self.delete(request, at).map_err(unjustified)
    }

    fn executed(&mut self, entry: &LoggedRequest, _: u64) -> Checked {
        let request = &entry.request;
        if !is_of_pod(request, Verb::Delete) || !entry.took_effect() {
            return Ok(());
        }
        let hit = self.hit.get(&(request.namespace.clone(), request.name.clone()));
        if hit.and_then(|uid| self.created.get(uid)).is_some_and(|created| *created > entry.at) {
            return Err(format!("a delete removed a pod that was created after it was sent: {}", entry.line()));
        }
        Ok(())
    }
}

impl Deletes {
    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.entry(name.to_owned()).or_default()
    }

    pub fn received(&mut self, client: &str, object: &Value, is_gone: bool, at: Duration) {
        self.client(client).learn(at, object, is_gone);
    }

    pub fn answered(&mut self, entry: &LoggedRequest, body: &Value, former: &[Arc<Value>], at: Duration) {
        let request = &entry.request;
        let (code, client) = (entry.answered.unwrap_or_default(), self.client(&request.instance));
        let is_failed_webhook = body["message"].as_str().is_some_and(|words| words.contains("failed calling webhook"));
        let is_rejection = (400..500).contains(&code) && !matches!(code, 408 | 429);
        if request.verb == Verb::Delete
            && (is_rejection || is_failed_webhook)
            && let Some(uid) = client.target(request)
        {
            client.deletes.remove(&uid);
        }
        let is_relevant = *request.kind == PODS || *request.kind == PODSETS;
        if code >= 300 || !is_relevant {
            return;
        }
        if request.verb == Verb::Create {
            // The response may be metadata alone: a new pod is pending.
            client.learn_pod(at, body, false);
            if let Some(pod) = client.pods.get_mut(object::uid(body)) {
                pod.may_be_deleted |= !is_as_requested(body);
            }
            return;
        }
        if request.metadata_only() {
            return;
        }
        if request.verb == Verb::List {
            // Clients use only complete lists.
            if object::meta(body, "continue").is_empty() {
                let last = body["items"].as_array().into_iter().flatten();
                let all: Vec<_> = former.iter().map(|object| &**object).chain(last).collect();
                client.learn_list(at, request, &all, object::version(body));
            }
        } else if *request.kind == PODS {
            // A read also returns a pod that a list does not select.
            client.learn_pod(at, body, false);
        } else {
            client.learn_set(at, body);
        }
    }

    /// Records a delete of a pod. Returns an error if the client has no reason for it.
    fn delete(&mut self, request: &ApiRequest, at: Duration) -> Checked {
        let client = self.client(&request.instance);
        let Some(uid) = client.target(request) else { return Err("the client does not know the pod".to_owned()) };
        let is_justified = client.is_justified(at, &uid);
        client.deletes.insert(uid.clone(), at);
        if is_justified {
            return Ok(());
        }
        let owner = client.pods.get(&uid).and_then(|pod| pod.owner.as_ref());
        let view = owner.and_then(|owner| client.views.get(owner)?.last());
        let known = view.filter(|view| view.wanted < u64::MAX);
        let known = known.map(|view| format!("{} live of {} wanted", view.live.len(), view.wanted));
        Err(format!("the client knows {}", known.unwrap_or_else(|| "no set of the pod".to_owned())))
    }
}
