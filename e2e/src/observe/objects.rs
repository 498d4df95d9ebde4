//! The objects of one kind as a watch has them, and what makes a kind one that is watched.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::bound::{Bound, Stream};
use super::follow::Told;
use super::view::{Seen, View};
use crate::types::{MyCustomResource, Pod, PodSet, controller, uid, version};

/// The objects by UID and by owner, and which of them were seen to go.
pub struct Objects<K> {
    by_uid: BTreeMap<String, K>,
    by_owner: BTreeMap<String, BTreeSet<String>>,
    gone: HashSet<String>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_uid: BTreeMap::new(), by_owner: BTreeMap::new(), gone: HashSet::new() }
    }
}

impl<K: Resource> Objects<K> {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &K> {
        self.by_uid.values()
    }

    /// The one of that name.
    pub fn named(&self, name: &str) -> Option<&K> {
        self.all().find(|object| object.meta().name.as_deref() == Some(name))
    }

    /// Those whose controller owner reference carries this UID.
    pub fn owned_by(&self, owner: &str) -> impl Iterator<Item = &K> {
        self.by_owner.get(owner).into_iter().flatten().filter_map(|uid| self.by_uid.get(uid))
    }

    fn apply(&mut self, object: K) {
        let uid = uid(object.meta());
        self.remove(&uid);
        if let Some(owner) = controller(object.meta()) {
            self.by_owner.entry(owner.to_owned()).or_default().insert(uid.clone());
        }
        self.gone.remove(&uid);
        self.by_uid.insert(uid, object);
    }

    fn remove(&mut self, uid: &str) -> Option<K> {
        self.gone.insert(uid.to_owned());
        let object = self.by_uid.remove(uid)?;
        if let Some(owner) = controller(object.meta())
            && let Some(owned) = self.by_owner.get_mut(owner)
        {
            owned.remove(uid);
        }
        Some(object)
    }

    /// Takes out those that this list does not have as they are here.
    fn differing(&mut self, listed: &[K]) -> Vec<K> {
        let versions: HashMap<_, _> =
            listed.iter().map(|object| (uid(object.meta()), version(object.meta()))).collect();
        let is_the_same = |uid: &String, known: &K| versions.get(uid) == Some(&version(known.meta()));
        let known = self.by_uid.iter().filter(|(uid, known)| !is_the_same(uid, known));
        let uids: Vec<_> = known.map(|(uid, _)| uid.clone()).collect();
        uids.iter().filter_map(|uid| self.remove(uid)).collect()
    }

    /// What a list at `version_of_list` has, the watch has told, and what the list has not, the watch has seen go.
    pub fn caught_up(&self, listed: &[K], version_of_list: u64) -> Seen {
        for object in listed {
            let uid = uid(object.meta());
            let current = self.by_uid.get(&uid).is_some_and(|known| version(known.meta()) >= version(object.meta()));
            if !current && !self.gone.contains(&uid) {
                return Err(format!("{:?} is newer than the watch", object.meta().name));
            }
        }
        let listed: HashSet<_> = listed.iter().map(|object| uid(object.meta())).collect();
        let ghost = |known: &&K| version(known.meta()) <= version_of_list && !listed.contains(&uid(known.meta()));
        match self.all().find(ghost) {
            Some(known) => Err(format!("{:?} is gone, which the watch has not told yet", known.meta().name)),
            None => Ok(()),
        }
    }
}

/// A kind that an observer watches.
pub trait Kind: Clone + Debug + DeserializeOwned + Resource<DynamicType = (), Scope = NamespaceResourceScope> {
    /// Its place in a view.
    fn of(view: &mut View) -> &mut Objects<Self>;

    /// Its stream in the check of the bound, if it has a part in that.
    const STREAM: Option<Stream> = None;

    /// Tells the check of the bound about one event.
    fn judge(&self, _bound: &mut Bound, _gone: bool) {}
}

impl Kind for PodSet {
    fn of(view: &mut View) -> &mut Objects<Self> {
        &mut view.sets
    }

    const STREAM: Option<Stream> = Some(Stream::Sets);

    fn judge(&self, bound: &mut Bound, gone: bool) {
        bound.set(self, gone);
    }
}

impl Kind for Pod {
    fn of(view: &mut View) -> &mut Objects<Self> {
        &mut view.pods
    }

    const STREAM: Option<Stream> = Some(Stream::Pods);

    fn judge(&self, bound: &mut Bound, gone: bool) {
        bound.pod(self, gone);
    }
}

impl Kind for MyCustomResource {
    fn of(view: &mut View) -> &mut Objects<Self> {
        &mut view.seekers
    }
}

impl Kind for Event {
    fn of(view: &mut View) -> &mut Objects<Self> {
        &mut view.all_events
    }
}

impl Kind for Lease {
    fn of(view: &mut View) -> &mut Objects<Self> {
        &mut view.leases
    }
}

/// Puts what a follower told into the view and the check of the bound.
pub fn take_in<K: Kind>(view: &mut View, bound: &mut Bound, told: Told<K>) {
    match told {
        Told::Applied(object) => {
            object.judge(bound, false);
            K::of(view).apply(object);
        }
        Told::Deleted(object) => {
            object.judge(bound, true);
            K::of(view).remove(&uid(object.meta()));
        }
        Told::Nothing(version) => progress::<K>(bound, version),
        Told::Listed(mut objects, version_of_list) => {
            // First what went or changed while nobody watched: nobody can say what it was meanwhile, nor until when.
            for object in K::of(view).differing(&objects) {
                object.judge(bound, true);
            }
            objects.sort_by_key(|object| version(object.meta()));
            for object in objects {
                object.judge(bound, false);
                K::of(view).apply(object);
            }
            progress::<K>(bound, version_of_list);
        }
    }
}

fn progress<K: Kind>(bound: &mut Bound, version: u64) {
    if let Some(stream) = K::STREAM {
        bound.progress(stream, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::fixtures::{pod, set};

    #[test]
    fn what_a_set_wanted_while_nobody_watched_it_is_not_judged() {
        let (mut view, mut bound) = (View::default(), Bound::default());
        take_in(&mut view, &mut bound, Told::Listed(vec![set(1, Some(1), 1, 1)], 1));
        take_in(&mut view, &mut bound, Told::Listed(vec![pod(2, "a", "Running")], 2));
        // Scaled up at 3, which the watch of the sets missed; the pod came at 4, the status at 5.
        take_in(&mut view, &mut bound, Told::Applied(pod(4, "b", "Running")));
        take_in(&mut view, &mut bound, Told::Listed(vec![set(5, Some(2), 2, 2)], 5));
        take_in::<Pod>(&mut view, &mut bound, Told::Nothing(5));
        assert_eq!(bound.violations(), &[] as &[String]);
        // From then on it is known again.
        take_in(&mut view, &mut bound, Told::Applied(pod(6, "c", "Running")));
        take_in::<PodSet>(&mut view, &mut bound, Told::Nothing(6));
        assert_eq!(bound.violations().len(), 1);
    }

    #[test]
    fn a_pod_that_finished_while_nobody_watched_made_room() {
        let (mut view, mut bound) = (View::default(), Bound::default());
        take_in(&mut view, &mut bound, Told::Listed(vec![set(1, Some(1), 1, 1)], 1));
        take_in(&mut view, &mut bound, Told::Listed(vec![pod(2, "a", "Running")], 2));
        // It failed at 3, its replacement came at 4, and something else about it changed at 5.
        take_in(&mut view, &mut bound, Told::Listed(vec![pod(5, "a", "Failed"), pod(4, "b", "Running")], 5));
        take_in::<PodSet>(&mut view, &mut bound, Told::Nothing(5));
        assert_eq!(bound.violations(), &[] as &[String]);
        assert_eq!(bound.judged(), 3);
    }
}
