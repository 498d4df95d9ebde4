//! The cache of pods. No I/O, no decision. Entries are keyed by UID. An older resourceVersion never replaces a newer one.
//!
//! In: events of the watch ([`Pods::apply`]), answers to our own requests ([`Pods::created`], [`Pods::delete_answered`],
//! [`Pods::looked_up`]) and consistent lists of all pods ([`Pods::apply_list`]).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    high_water::HighWater,
    index::PodIndex,
    pod::{Pod, Seen},
    rules::{CacheRules, Owner},
};
use operator_kit::{
    ObjectKey, in_scope,
    listwatch::{Change, Scope},
    meta::Uid,
};

mod arrival;

use arrival::Arrival;

/// The shortest time between two restores of a pod's label.
const RELABEL_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// How urgent a change of a set's pods is.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Urgency {
    /// Often only the status changes. A new or unlabelled pod can also need a write.
    #[default]
    CanWait,
    /// A pod that was being deleted has ended: urgent if its set waits for that.
    Ended,
    /// A live or ready pod may no longer be so. Or the last pod has become ready, and people wait for that.
    Urgent,
}

impl Urgency {
    fn of(is_urgent: bool, has_ended: bool) -> Self {
        match (is_urgent, has_ended) {
            (true, _) => Urgency::Urgent,
            (false, true) => Urgency::Ended,
            (false, false) => Urgency::CanWait,
        }
    }
}

/// Whether the pods of an owner count until they have ended; `None`: there is no such set.
type WaitsForTermination<'a> = &'a dyn Fn(&Owner) -> Option<bool>;

/// The pods that carry our label, and those of our sets that lost it.
#[derive(Debug, Default)]
pub struct Pods {
    rules: CacheRules,
    index: PodIndex,
    /// Pods that a read found gone while the watch still shows them. Watch events about them are outdated.
    gone: HashMap<Uid, Arc<Pod>>,
    /// The versions of the lists that `TakeOver::read` reads beside the watch. A pod that is not in the cache and not newer than such a list
    /// is gone.
    listed: HighWater,
    /// Until when the name of each pod that ended is not reused.
    ended: HashMap<ObjectKey, Timestamp>,
    /// Until when the name of each stranger counts as taken: a pod that no PodSet owns and that lacks our label.
    strangers: HashMap<ObjectKey, Timestamp>,
    /// How far each watch has come.
    high_water: HighWater,
    /// The owners whose pods have changed since the last [`Pods::take_touched`], and how urgent the change is.
    touched: BTreeMap<Owner, Urgency>,
    /// Whether a term of this process has begun. Until then, it forgets missing pods, because the reads of a new term find them.
    has_led: bool,
}

impl Pods {
    pub fn new(rules: CacheRules) -> Self {
        Pods { rules, index: PodIndex::new(rules), ..Pods::default() }
    }

    /// A term of this process begins. From now on only a read shows that a missing pod is gone.
    pub fn begin_term(&mut self) {
        self.has_led = true;
    }

    /// Applies a change from the watch of `scope`.
    pub fn apply(&mut self, scope: &Scope, change: Change<Pod>, waits: WaitsForTermination, now: Timestamp) {
        let version = match &change {
            Change::Snapshot { version, .. } | Change::Progress(version) => *version,
            Change::Applied(pod) | Change::Deleted(pod) => pod.version,
        };
        match change {
            Change::Snapshot { items, .. } => {
                self.snapshot(scope, items, version, waits, now);
                self.expire(now);
            }
            Change::Applied(pod) => self.upsert(pod, true, now),
            Change::Deleted(pod) => {
                let is_over = |known: &Arc<Pod>| !(self.rules.is_stale)(pod.version, known.version);
                if self.gone.get(&pod.uid).is_some_and(is_over) {
                    self.gone.remove(&pod.uid);
                }
                self.lose(&pod, waits, now);
            }
            // The API server sends a bookmark about once a minute.
            Change::Progress(_) => self.expire(now),
        }
        self.high_water.raise(scope, version);
    }

    /// Returns the owners whose pods have changed since the last call, and how urgent the change is.
    pub fn take_touched(&mut self) -> BTreeMap<Owner, Urgency> {
        std::mem::take(&mut self.touched)
    }

    fn touch(&mut self, pod: &Pod, urgency: Urgency) {
        if let Some(owner) = self.rules.owner_of(pod) {
            let known = self.touched.entry(owner).or_default();
            *known = urgency.max(*known);
        }
    }

    /// Applies a consistent list of what the watch shows.
    fn snapshot(&mut self, scope: &Scope, items: Vec<Pod>, version: u64, waits: WaitsForTermination, now: Timestamp) {
        let listed: HashSet<Uid> = items.iter().map(|pod| pod.uid.clone()).collect();
        for pod in self.index.absent(scope, &listed, version) {
            self.lose(&pod, waits, now);
        }
        // The watch continues from this list, so it brings no more events about pods that are not in it.
        self.gone.retain(|uid, pod| !in_scope(scope, &pod.key) || listed.contains(uid));
        for pod in items {
            self.upsert(pod, true, now);
        }
    }

    /// Applies a state of a pod, unless a newer one is known, or its end was seen already.
    fn upsert(&mut self, pod: Pod, is_from_watch: bool, now: Timestamp) {
        let pod = self.index.shared(pod);
        match self.classify(&pod, is_from_watch, now) {
            Arrival::Stale => {}
            Arrival::Over => drop(self.ended.insert(pod.key.clone(), now + self.rules.quarantine)),
            Arrival::Update => self.update(pod, is_from_watch, now),
            Arrival::New { is_missing, replaces } => {
                if let Some(former) = replaces {
                    // An answer is ahead of the watch, which may still show the former pod.
                    if is_from_watch { self.remove(&former, now) } else { self.gone(&former, now) }
                }
                self.strangers.remove(&pod.key);
                self.touch(&pod, Urgency::CanWait);
                self.index.insert(Seen { is_missing, ..Seen::new(pod, now) });
            }
        }
    }

    /// Applies a newer state of a known pod.
    fn update(&mut self, pod: Arc<Pod>, is_from_watch: bool, now: Timestamp) {
        let Some((former, seen)) = self.index.update(&pod, now) else { return };
        let may_go_now = former.delete_rejected && pod.version > former.pod.version;
        seen.delete_rejected &= !may_go_now;
        if is_from_watch {
            seen.unconfirmed_since = None;
            seen.is_missing = false;
        }
        let is_lost = (former.is_live() && !seen.is_live()) || (former.is_ready() && !seen.is_ready());
        let has_ended = former.is_ending() && !seen.is_ending();
        let has_become_ready = !former.is_ready() && seen.is_ready();
        if former.pod.owner != pod.owner {
            self.touch(&former.pod, Urgency::Urgent);
        }
        if !former.pod.is_same(&pod) || former.is_missing || may_go_now {
            let is_complete = has_become_ready && self.are_all_ready(&pod);
            self.touch(&pod, Urgency::of(is_lost || may_go_now || is_complete, has_ended));
        }
    }

    /// Whether all live pods of this pod's set are ready.
    fn are_all_ready(&self, pod: &Pod) -> bool {
        let owner = self.rules.owner_of(pod);
        owner.is_none_or(|owner| self.owned(&owner).filter(|seen| seen.is_live()).all(Seen::is_ready))
    }

    /// The watch no longer shows a pod: it is gone, or it has only lost the watched label.
    fn lose(&mut self, pod: &Pod, waits: WaitsForTermination, now: Timestamp) {
        let Some(seen) = self.index.get_mut(&pod.uid) else { return };
        // The event is older than the known state, which has the label. An answer showed that state, and the watch will show it too.
        if seen.pod.is_labelled && (self.rules.is_stale)(pod.version, seen.pod.version) {
            return;
        }
        let may_count = |waits: bool| {
            [&*seen.pod, pod].iter().all(|state| (self.rules.may_count)(state, waits))
                && (waits || seen.delete_answered.is_none())
        };
        if self.has_led && self.rules.owner_of(&seen.pod).and_then(|owner| waits(&owner)).is_some_and(may_count) {
            if pod.version > seen.pod.version {
                Arc::make_mut(&mut seen.pod).version = pod.version;
            }
            seen.is_missing = true;
            let lost = seen.pod.clone();
            self.touch(&lost, Urgency::Urgent);
        } else {
            self.remove(&pod.uid, now);
        }
    }

    /// Removes a pod. Its name is not reused during the quarantine.
    fn remove(&mut self, uid: &Uid, now: Timestamp) {
        let Some(seen) = self.index.remove(uid) else { return };
        self.touch(&seen.pod, Urgency::of(seen.is_live(), seen.is_ending()));
        self.ended.insert(seen.pod.key.clone(), now + self.rules.quarantine);
    }

    /// A read shows that a pod is gone. The watch may still show it.
    pub fn gone(&mut self, uid: &Uid, now: Timestamp) {
        let may_be_shown = |seen: &&Seen| may_be_shown(&seen.pod, &self.high_water);
        if let Some(seen) = self.index.get(uid).filter(|seen| !seen.is_missing).filter(may_be_shown) {
            self.gone.insert(uid.clone(), seen.pod.clone());
        }
        self.remove(uid, now);
    }

    /// Adds the pod that a create returned. If it is known already, only its number of replacements is updated: the answer is not newer, and
    /// contains only metadata.
    pub fn created(&mut self, pod: Pod, now: Timestamp) {
        if let Some(seen) = self.index.get_mut(&pod.uid) {
            if seen.pod.replacements < pod.replacements {
                Arc::make_mut(&mut seen.pod).replacements = pod.replacements;
            }
            return;
        }
        let uid = pod.uid.clone();
        self.upsert(pod, false, now);
        if let Some(seen) = self.index.get_mut(&uid) {
            seen.unconfirmed_since = Some(now.into());
        }
    }

    /// A delete of ours was answered, perhaps with the pod's last state.
    pub fn delete_answered(&mut self, uid: &Uid, last: Option<Pod>, now: Timestamp) {
        if let Some(pod) = last.filter(|pod| pod.uid == *uid && self.index.get(uid).is_some()) {
            self.upsert(pod, false, now);
        }
        if let Some(seen) = self.index.get_mut(uid) {
            seen.delete_answered.get_or_insert(now.into());
        }
    }

    /// A read of the pod of this name found this pod, or none. `sought` is the known pod that was read for, as it was at the sending.
    pub fn looked_up(&mut self, key: &ObjectKey, sought: Option<&Seen>, found: Option<Pod>, now: Timestamp) {
        if let Some(sought) = sought.filter(|sought| found.as_ref().is_none_or(|pod| pod.uid != sought.pod.uid)) {
            self.gone(&sought.pod.uid, now);
        }
        match found {
            Some(pod) if pod.owner.is_some() || pod.is_labelled => {
                let uid = pod.uid.clone();
                let is_watched = self.is_watched(&pod);
                // If it went missing after the read was sent, the read does not show whether it exists.
                let is_current = |seen: &Seen| !(self.rules.is_stale)(pod.version, seen.pod.version);
                let was_missing = sought.is_some_and(|sought| sought.is_missing && sought.pod.uid == uid);
                let is_found = was_missing && self.index.get(&uid).is_some_and(is_current);
                self.upsert(pod, false, now);
                if let Some(seen) = self.index.get_mut(&uid) {
                    seen.is_missing &= !is_found;
                    seen.unconfirmed_since = (!is_watched).then(|| now.into());
                    // If it is not being deleted now, it never was, whatever was answered.
                    seen.delete_answered = seen.delete_answered.filter(|_| seen.pod.is_terminating);
                }
            }
            Some(pod) => {
                // It may have been ours: it has lost its owner as well as the label.
                self.remove(&pod.uid, now);
                self.strangers.insert(key.clone(), now + self.rules.quarantine);
            }
            None => drop(self.strangers.remove(key)),
        }
    }

    /// Whether the watch has shown this state of a pod and the cache still has it. Then [`Pods::apply_list`] learns nothing from it, now or
    /// later: known versions only rise, and a pod that has ended does not come back.
    pub fn knows(&self, pod: &Pod) -> bool {
        self.is_watched(pod) && self.index.get(&pod.uid).is_some_and(|seen| seen.pod.version == pod.version)
    }

    /// Whether the watch has shown this state of a pod, or is past it.
    fn is_watched(&self, pod: &Pod) -> bool {
        pod.is_labelled && pod.version <= self.high_water.at(&pod.key)
    }

    /// Applies a consistent list of all pods of `scope`, without a label selector: it shows pods of our sets that no watch shows. `known`:
    /// those that were known in this state when their page was read; `items`: the others that concern us.
    pub fn apply_list(&mut self, scope: &Scope, items: Vec<Pod>, known: HashSet<Uid>, version: u64, now: Timestamp) {
        let mut listed = known;
        listed.extend(items.iter().map(|pod| pod.uid.clone()));
        for pod in self.index.absent(scope, &listed, version) {
            self.remove(&pod.uid, now);
        }
        for pod in items {
            let is_watched = self.is_watched(&pod);
            // Perhaps it ended while the list was read. Without the label, the watch does not tell.
            let may_be_over = !pod.is_labelled && self.index.get(&pod.uid).is_none();
            let uid = pod.uid.clone();
            self.upsert(pod, false, now);
            if !is_watched && let Some(seen) = self.index.get_mut(&uid) {
                seen.unconfirmed_since.get_or_insert(now.into());
                seen.is_missing |= may_be_over;
            }
        }
        self.listed.raise(scope, version);
    }

    pub fn delete_rejected(&mut self, uid: &Uid) {
        if let Some(seen) = self.index.get_mut(uid) {
            seen.delete_rejected = true;
        }
    }

    /// We have restored the label of this pod.
    pub fn relabelled(&mut self, pod: Pod, now: Timestamp) {
        let uid = pod.uid.clone();
        self.upsert(pod, false, now);
        if let Some(seen) = self.index.get_mut(&uid) {
            seen.relabel_at = Some((now + RELABEL_PAUSE).into());
        }
    }

    /// The known state of this pod may be wrong: only a read can tell.
    pub fn doubt(&mut self, uid: &Uid) {
        if let Some(seen) = self.index.get_mut(uid) {
            seen.is_missing = true;
        }
    }

    /// A create was rejected because its name was taken, and then the name was free: it may be used at once.
    pub fn allow_reuse(&mut self, key: &ObjectKey) {
        self.ended.remove(key);
    }

    /// The pods of this set, sorted by name.
    pub fn of(&self, owner: &Owner) -> Vec<Seen> {
        let mut pods: Vec<Seen> = self.owned(owner).cloned().collect();
        pods.sort_by(|a, b| a.pod.key.name.cmp(&b.pod.key.name));
        pods
    }

    /// The pods of this set, in any order.
    pub fn owned(&self, owner: &Owner) -> impl Iterator<Item = &Seen> {
        self.index.owned(owner)
    }

    /// Whether a pod of this name is known, with any owner.
    pub fn is_known(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.index.named(key).is_some() || self.strangers.get(key).is_some_and(|until| *until > now)
    }

    /// Whether a pod of this name ended so recently that no other may take it.
    pub fn is_resting(&self, key: &ObjectKey, now: Timestamp) -> bool {
        self.ended.get(key).is_some_and(|until| *until > now)
    }

    /// This set is gone: forgets its pods that no watch shows.
    pub fn forget_set(&mut self, owner: &Owner, now: Timestamp) {
        let is_unwatched = |seen: &&Seen| seen.is_missing || !seen.pod.is_labelled;
        let unwatched: Vec<Uid> = self.owned(owner).filter(is_unwatched).map(|seen| seen.pod.uid.clone()).collect();
        for uid in unwatched {
            self.remove(&uid, now);
        }
    }

    /// Forgets names that may be taken again, to free their memory.
    fn expire(&mut self, now: Timestamp) {
        self.ended.retain(|_, until| *until > now);
        self.strangers.retain(|_, until| *until > now);
        self.gone.retain(|_, pod| may_be_shown(pod, &self.high_water));
    }
}

/// Whether the watch may still show this pod. The watch never shows the end of a pod without the label, so its version decides then.
fn may_be_shown(pod: &Pod, high_water: &HighWater) -> bool {
    pod.is_labelled || pod.version > high_water.at(&pod.key)
}

#[cfg(test)]
mod tests;
