//! The cache of pods: what is, as far as anybody can know. No I/O, no decision.
//!
//! In: what the watch says ([`Pods::apply`]), what our own writes were answered ([`Pods::created`],
//! [`Pods::delete_answered`], [`Pods::looked_up`]) and what a consistent list of all pods says ([`Pods::verify`]). Entries
//! are keyed by UID and guarded by resourceVersion, so that nothing old undoes anything newer.

mod arrival;
mod loss;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;

use self::arrival::Arrival;
use super::{
    Owner,
    high_water::HighWater,
    named::Named,
    pod::{Pod, Seen},
    taken_names::TakenNames,
};
use crate::{
    controllers::{ObjectKey, interner::Interner, meta::Uid, podset::promise::Rules},
    listwatch::{Change, Scope},
};

/// How soon a set must hear of a change of its pods.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum News {
    /// The status may say something else.
    CanWait,
    /// A pod is there that was not. Unless it is one too many, that can wait as well.
    Appeared,
    /// A pod that was live or ready is so no more, or may not be, and may have to be replaced. Or the last one has become ready: that
    /// is what people wait for.
    Urgent,
}

/// The pods that carry our label, and those of our sets that lost it.
#[derive(Debug)]
pub struct Pods {
    rules: Rules,
    by_uid: HashMap<Uid, Seen>,
    by_owner: HashMap<Owner, BTreeSet<Uid>>,
    by_name: HashSet<Named>,
    /// Namespaces, owners, nodes and reasons to wait of all of them.
    texts: Interner,
    /// Pods that a read showed to be gone, as they were last known, until the watch says so: what it still brings of them is old.
    gone: HashMap<Uid, Arc<Pod>>,
    /// As of when all pods were listed beside the watch: one that is not known since, and whose state is not younger, is gone.
    verified: HighWater,
    /// Names that no new pod may take yet.
    names: TakenNames,
    /// How far each watch has come.
    high_water: HighWater,
    /// Owners for which something changed that matters, since they were last taken.
    touched: BTreeMap<Owner, News>,
    /// Whether a term of this process has begun: until then nobody looks up the pods that the watch lost sight of.
    has_led: bool,
    /// Those pods, each with the time, in its order.
    lost: VecDeque<(Timestamp, Uid)>,
}

impl Pods {
    /// An empty cache.
    pub fn new(rules: Rules) -> Self {
        Pods {
            rules,
            by_uid: HashMap::new(),
            by_owner: HashMap::new(),
            by_name: HashSet::new(),
            texts: Interner::default(),
            gone: HashMap::new(),
            verified: HighWater::default(),
            names: TakenNames::default(),
            high_water: HighWater::default(),
            touched: BTreeMap::new(),
            has_led: false,
            lost: VecDeque::new(),
        }
    }

    /// A term of this process begins. From now on only a read tells that a pod is gone of which the watch lost sight.
    pub fn begin_term(&mut self) {
        self.has_led = true;
        self.lost.clear();
    }

    /// Takes in what the watch of `scope` says. `is_set` says whether an owner is a known PodSet.
    pub fn apply(&mut self, scope: &Scope, change: Change<Pod>, is_set: &dyn Fn(&Owner) -> bool, now: Timestamp) {
        let version = match change {
            Change::Snapshot { items, version } => {
                self.snapshot(scope, items, version, is_set, now);
                version
            }
            Change::Applied(pod) => {
                let version = pod.version;
                self.upsert(pod, true, now);
                version
            }
            Change::Deleted(pod) => {
                let is_over = |known: &Arc<Pod>| !(self.rules.is_stale)(pod.version, known.version);
                if self.gone.get(&pod.uid).is_some_and(is_over) {
                    self.gone.remove(&pod.uid);
                }
                self.lose(&pod, is_set, now);
                pod.version
            }
            Change::Progress(version) => version,
        };
        self.high_water.note(scope, version);
    }

    /// The owners for which something changed that matters, since this was last asked.
    pub fn take_touched(&mut self) -> BTreeMap<Owner, News> {
        std::mem::take(&mut self.touched)
    }

    fn touch(&mut self, pod: &Pod, news: News) {
        if let Some(owner) = self.owner(pod) {
            let known = self.touched.entry(owner).or_insert(news);
            *known = news.max(*known);
        }
    }

    /// The PodSet that the pod names as its owner.
    fn owner(&self, pod: &Pod) -> Option<Owner> {
        pod.owner.as_ref().map(|uid| self.rules.owner(&pod.key.namespace, uid))
    }

    /// Takes in a state of a pod, unless a newer one is known, or its end was seen already.
    fn upsert(&mut self, pod: Pod, is_from_watch: bool, now: Timestamp) {
        let pod = self.shared(pod);
        match self.classify(&pod, is_from_watch) {
            Arrival::Stale => {}
            Arrival::Over => self.names.pod_ended(pod.key.clone(), now),
            Arrival::Update => self.update(pod, is_from_watch, now),
            Arrival::New { is_missing, replaces } => {
                if let Some(former) = replaces {
                    self.remove(&former, now);
                }
                self.names.stranger_gone(&pod.key);
                self.by_name.insert(Named(pod.clone()));
                self.own(&pod);
                self.touch(&pod, News::Appeared);
                self.by_uid.insert(pod.uid.clone(), Seen { is_missing, ..Seen::new(pod, now) });
            }
        }
    }

    /// Takes in a newer state of a known pod.
    fn update(&mut self, pod: Arc<Pod>, is_from_watch: bool, now: Timestamp) {
        let Some(seen) = self.by_uid.get_mut(&pod.uid) else { return };
        let former = seen.pod.clone();
        let (was_live, was_ready) = (seen.is_live(), seen.is_ready());
        let may_go_now = seen.delete_rejected && pod.version > former.version;
        seen.delete_rejected &= !may_go_now;
        let is_same = former.is_same(&pod) && !seen.is_missing && !may_go_now;
        seen.update(pod.clone(), now);
        self.by_name.replace(Named(pod.clone()));
        let is_lost = (was_live && !seen.is_live()) || (was_ready && !seen.is_ready());
        let has_become_ready = !was_ready && seen.is_ready();
        if is_from_watch {
            seen.unconfirmed_since = None;
            seen.is_missing = false;
        }
        if former.owner != pod.owner {
            self.disown(&former);
            self.own(&pod);
            self.touch(&former, News::Urgent);
            self.touch(&pod, News::Appeared);
        }
        if !is_same {
            let is_urgent = is_lost || may_go_now || (has_become_ready && self.are_all_ready(&pod));
            self.touch(&pod, if is_urgent { News::Urgent } else { News::CanWait });
        }
    }

    /// The pod, with the texts that it has in common with others, and with its former states.
    fn shared(&mut self, mut pod: Pod) -> Arc<Pod> {
        if let Some(Seen { pod: former, .. }) = self.by_uid.get(&pod.uid) {
            pod.uid = former.uid.clone();
            if pod.key.name == former.key.name {
                pod.key.name = former.key.name.clone();
            }
        }
        let Pod { key, owner, node, waits_for, .. } = &mut pod;
        let texts = [Some(&mut key.namespace), owner.as_mut(), node.as_mut(), waits_for.as_mut()];
        for text in texts.into_iter().flatten() {
            self.texts.share(text);
        }
        Arc::new(pod)
    }

    /// Whether all live pods of this pod's set are ready.
    fn are_all_ready(&self, pod: &Pod) -> bool {
        self.owner(pod).is_none_or(|owner| self.owned(&owner).filter(|seen| seen.is_live()).all(Seen::is_ready))
    }

    fn own(&mut self, pod: &Pod) {
        if let Some(owner) = self.owner(pod) {
            self.by_owner.entry(owner).or_default().insert(pod.uid.clone());
        }
    }

    fn disown(&mut self, pod: &Pod) {
        let Some(owner) = self.owner(pod) else { return };
        if let Some(pods) = self.by_owner.get_mut(&owner) {
            pods.remove(&pod.uid);
            if pods.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// A create of ours was answered with this pod. It is the pod's first state, of which the answer may tell less than the watch.
    pub fn created(&mut self, pod: Pod, now: Timestamp) {
        if self.by_uid.contains_key(&pod.uid) {
            return;
        }
        let uid = pod.uid.clone();
        self.upsert(pod, false, now);
        if let Some(seen) = self.by_uid.get_mut(&uid) {
            seen.unconfirmed_since = Some(now.into());
        }
    }

    /// A delete of ours was answered, perhaps with the pod's last state.
    pub fn delete_answered(&mut self, uid: &Uid, last: Option<Pod>, now: Timestamp) {
        if let Some(pod) = last.filter(|pod| pod.uid == *uid && self.by_uid.contains_key(uid)) {
            self.upsert(pod, false, now);
        }
        if let Some(seen) = self.by_uid.get_mut(uid) {
            seen.delete_answered.get_or_insert(now.into());
        }
    }

    /// A read of the pod of this name found this, or nothing. `sought` is the pod that was looked for, as it was known when the
    /// read was sent, if a known one was.
    pub fn looked_up(&mut self, key: &ObjectKey, sought: Option<&Seen>, found: Option<Pod>, now: Timestamp) {
        if let Some(sought) = sought.filter(|sought| found.as_ref().is_none_or(|pod| pod.uid != sought.pod.uid)) {
            self.gone(&sought.pod.uid, now);
        }
        match found {
            Some(pod) if pod.owner.is_some() || pod.is_labelled => {
                let uid = pod.uid.clone();
                let is_watched = pod.is_labelled && pod.version <= self.high_water.at(&pod.key);
                // If the watch lost sight of it after the read was sent, the read says nothing of that.
                let is_current = |seen: &Seen| !(self.rules.is_stale)(pod.version, seen.pod.version);
                let was_missing = sought.is_some_and(|sought| sought.is_missing && sought.pod.uid == uid);
                let is_found = was_missing && self.by_uid.get(&uid).is_some_and(is_current);
                self.upsert(pod, false, now);
                if let Some(seen) = self.by_uid.get_mut(&uid) {
                    seen.is_missing &= !is_found;
                    seen.unconfirmed_since = (!is_watched).then(|| now.into());
                    // What is not being deleted by now never was, whatever was answered.
                    seen.delete_answered = seen.delete_answered.filter(|_| seen.pod.is_terminating).map(|_| now.into());
                }
            }
            Some(pod) => {
                // Perhaps one that was ours: it has lost its owner as well as the label.
                self.remove(&pod.uid, now);
                self.names.stranger_met(key.clone(), now);
            }
            None => {
                self.names.stranger_gone(key);
            }
        }
    }

    /// A delete of ours was rejected.
    pub fn delete_rejected(&mut self, uid: &Uid) {
        if let Some(seen) = self.by_uid.get_mut(uid) {
            seen.delete_rejected = true;
        }
    }

    /// A patch of ours was answered with this pod.
    pub fn patched(&mut self, pod: Pod, now: Timestamp) {
        self.upsert(pod, false, now);
    }

    /// What is known of this pod may be wrong: only a read can tell.
    pub fn doubt(&mut self, uid: &Uid) {
        if let Some(seen) = self.by_uid.get_mut(uid) {
            seen.is_missing = true;
        }
    }

    /// A create under this name was refused because the name was taken, and then it was free: whoever asks again asks
    /// for the same.
    pub fn may_be_reused(&mut self, key: &ObjectKey) {
        self.names.may_be_reused(key);
    }

    /// Takes in a consistent list of all pods of `scope`, made without a label selector: it shows pods of our sets that
    /// no watch shows.
    pub fn verify(&mut self, scope: &Scope, items: Vec<Pod>, version: u64, now: Timestamp) {
        for pod in self.absent(scope, &items, version) {
            self.remove(&pod.uid, now);
        }
        for pod in items {
            let is_watched = pod.is_labelled && pod.version <= self.high_water.at(&pod.key);
            let uid = pod.uid.clone();
            self.upsert(pod, false, now);
            if !is_watched && let Some(seen) = self.by_uid.get_mut(&uid) {
                seen.unconfirmed_since.get_or_insert(now.into());
            }
        }
        self.verified.note(scope, version);
    }

    /// The pods of this set, by name.
    pub fn of(&self, owner: &Owner) -> Vec<Seen> {
        let mut pods: Vec<Seen> = self.owned(owner).cloned().collect();
        pods.sort_by(|a, b| a.pod.key.name.cmp(&b.pod.key.name));
        pods
    }

    /// The pods of this set, in no order that means anything.
    pub fn owned(&self, owner: &Owner) -> impl Iterator<Item = &Seen> {
        self.by_owner.get(owner).into_iter().flatten().filter_map(|uid| self.by_uid.get(uid))
    }

    /// How many pods of this set are known, live or not.
    pub fn number(&self, owner: &Owner) -> usize {
        self.by_owner.get(owner).map_or(0, BTreeSet::len)
    }

    /// Whether a pod of this name is known, whoever owns it.
    pub fn is_known(&self, key: &ObjectKey, now: Timestamp) -> bool {
        let is_fresh = |met| now.duration_since(met) < self.rules.quarantine;
        self.by_name.contains(key) || self.names.stranger_met_at(key).is_some_and(is_fresh)
    }

    /// Whether a pod of this name ended so lately that the name must rest.
    pub fn is_resting(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.names.ended_at(key).is_some_and(|ended| now.duration_since(ended) < self.rules.quarantine)
    }

    /// This set is gone: what only it could look up is forgotten.
    pub fn forget_set(&mut self, owner: &Owner, now: Timestamp) {
        let uids: Vec<Uid> = self.by_owner.get(owner).into_iter().flatten().cloned().collect();
        for uid in uids {
            let is_unwatched = self.by_uid.get(&uid).is_some_and(|seen| seen.is_missing || !seen.pod.is_labelled);
            if is_unwatched {
                self.remove(&uid, now);
            }
        }
    }

    /// Forgets the names whose rest is over. Until a term begins, also the pods of which the watch lost sight long ago: should one be
    /// alive, the reads with which a term begins find it before anything is written for its set.
    pub fn expire(&mut self, now: Timestamp) {
        let quarantine = self.rules.quarantine;
        while let Some((_, uid)) = self.lost.pop_front_if(|(at, _)| now.duration_since(*at) >= quarantine) {
            if self.by_uid.get(&uid).is_some_and(|seen| seen.is_missing) {
                self.remove(&uid, now);
            }
        }
        self.names.expire(now, quarantine);
    }
}

#[cfg(test)]
mod tests;
