//! Whether each watch of a controller has returned a complete list, and if not, why.
//!
//! A scope that cannot be listed, for example because its Role is gone, must not stop the others. A controller begins without it. The
//! objects of that scope wait for the list.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use crate::{
    lock,
    object_key::{ObjectKey, Scope},
};

/// Becomes true once at least one scope has listed completely, and each other one has too or has failed. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Synced {
    scopes: Arc<Mutex<BTreeMap<Scope, Watches>>>,
    synced: watch::Sender<bool>,
}

/// The watches of a scope, by what they watch.
type Watches = BTreeMap<&'static str, State>;

/// The state of a watch.
#[derive(Debug, Eq, PartialEq)]
pub enum State {
    /// It has not begun, because it waits for another watch, which reports the reason.
    NotStarted,
    /// It has not listed yet.
    Waits,
    /// Why the last list failed. Other scopes do not wait for this one.
    Failed(String),
    /// The cache holds a list.
    Listed,
}

fn are_listed(watches: &Watches) -> bool {
    watches.values().all(|state| *state == State::Listed)
}

impl Synced {
    /// Registers the watch of `what` in `scope`, which has not listed yet. Returns what reports its state. All watches of a controller must be
    /// registered before the first of them begins.
    pub fn register(&self, what: &'static str, scope: &Scope) -> Listing {
        let listing = Listing { synced: self.clone(), what, scope: scope.clone() };
        listing.set(State::Waits);
        listing
    }

    /// The value to wait for. It is sent again when a watch lists later.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Whether all watches of the scope of this object have listed.
    pub fn covers(&self, key: &ObjectKey) -> bool {
        let scopes = lock(&self.scopes);
        [None, Some(key.namespace.clone())].iter().filter_map(|scope| scopes.get(scope)).all(are_listed)
    }

    /// `Ok`, or why watches have not listed yet.
    pub fn verdict(&self) -> Result<(), String> {
        let scopes = lock(&self.scopes);
        if !scopes.is_empty() && scopes.values().all(are_listed) {
            return Ok(());
        }
        // Watches of several namespaces mostly fail for the same reason.
        let reasons = scopes.values().flatten().filter_map(|(what, state)| match state {
            State::Waits => Some(format!("waiting for the first list of {what}")),
            State::Failed(why) => Some(why.clone()),
            State::NotStarted | State::Listed => None,
        });
        let reasons = Vec::from_iter(reasons.collect::<BTreeSet<_>>()).join("; ");
        Err(if reasons.is_empty() { "the watches have not begun yet".to_owned() } else { reasons })
    }
}

/// Reports the state of one watch.
#[derive(Clone, Debug)]
pub struct Listing {
    synced: Synced,
    what: &'static str,
    scope: Scope,
}

impl Listing {
    /// Reports the state of the watch. After the first list this has no effect: the cache stays synced.
    pub fn set(&self, state: State) {
        let Synced { scopes, synced } = &self.synced;
        let mut scopes = lock(scopes);
        let watches = scopes.entry(self.scope.clone()).or_default();
        if watches.get(self.what) == Some(&State::Listed) {
            return;
        }
        let is_listed = state == State::Listed;
        watches.insert(self.what, state);
        let has_failed = |watches: &Watches| watches.values().any(|state| matches!(state, State::Failed(_)));
        let is_synced = scopes.values().any(are_listed)
            && scopes.values().all(|watches| are_listed(watches) || has_failed(watches));
        // `synced` never becomes false again. It is sent again when another watch lists.
        synced.send_if_modified(|synced| {
            let was_synced = std::mem::replace(synced, *synced || is_synced);
            *synced && (is_listed || !was_synced)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watch_must_have_listed() {
        let synced = Synced::default();
        let (pods, sets) = (synced.register("pods", &None), synced.register("podsets", &None));
        pods.set(State::Listed);
        pods.set(State::Listed);
        assert!(!*synced.subscribe().borrow());
        sets.set(State::Listed);
        assert!(*synced.subscribe().borrow());
    }

    #[test]
    fn a_scope_that_fails_stops_no_other() {
        let synced = Synced::default();
        let [here, there] = ["a", "b"].map(|namespace| Some(namespace.into()));
        let [pods, sets] = ["pods", "podsets"].map(|what| synced.register(what, &here));
        let [others, other_sets] = ["pods", "podsets"].map(|what| synced.register(what, &there));
        let (mut subscribed, forbidden) = (synced.subscribe(), "forbidden".to_owned());
        let covered = || ["a", "b"].map(|namespace| synced.covers(&ObjectKey::new(namespace, "web")));
        let mut is_synced = |expected| assert_eq!(*subscribed.borrow_and_update(), expected);
        others.set(State::Failed(forbidden.clone()));
        is_synced(false);
        pods.set(State::Listed);
        sets.set(State::Failed(forbidden.clone()));
        is_synced(false); // No scope has listed completely.
        sets.set(State::Listed);
        is_synced(true);
        others.set(State::Failed("the API server is away".to_owned()));
        other_sets.set(State::Listed);
        is_synced(true);
        assert_eq!((covered(), synced.verdict().is_ok()), ([true, false], false));
        assert!(!subscribed.has_changed().unwrap());
        others.set(State::Listed);
        assert!(subscribed.has_changed().unwrap(), "subscribers learn that this scope has listed");
        assert_eq!((covered(), synced.verdict()), ([true, true], Ok(())));
    }

    #[test]
    fn a_scope_that_has_not_failed_yet_is_waited_for() {
        let synced = Synced::default();
        let [here, there] = ["a", "b"].map(|namespace| synced.register("pods", &Some(namespace.into())));
        here.set(State::Listed);
        assert!(!*synced.subscribe().borrow());
        there.set(State::Failed("the API server did not answer".to_owned()));
        assert!(*synced.subscribe().borrow());
    }

    #[test]
    fn an_unlisted_cache_says_why() {
        let synced = Synced::default();
        assert_eq!(synced.verdict(), Err("the watches have not begun yet".to_owned()));
        let (pods, sets) = (synced.register("pods", &None), synced.register("podsets", &Some("a".into())));
        let others = synced.register("podsets", &Some("b".into()));
        let waiting = "waiting for the first list of pods; waiting for the first list of podsets";
        assert_eq!(synced.verdict(), Err(waiting.to_owned()));
        pods.set(State::NotStarted);
        assert_eq!(synced.verdict(), Err("waiting for the first list of podsets".to_owned()));
        pods.set(State::Listed);
        sets.set(State::Failed("the CRD is missing".to_owned()));
        others.set(State::Failed("the CRD is missing".to_owned()));
        assert_eq!(synced.verdict(), Err("the CRD is missing".to_owned()));
        sets.set(State::Listed);
        others.set(State::Listed);
        pods.set(State::Failed("the API server is away".to_owned()));
        assert_eq!(synced.verdict(), Ok(()), "the caches were complete once");
    }
}
