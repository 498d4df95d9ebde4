//! Whether each watch of a controller has returned a complete list, and if not, why.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use super::source::Scope;
use crate::lock;

/// Becomes true once every watch has returned its first list. Clones share it.
#[derive(Clone, Debug)]
pub struct Synced {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    watches: usize,
    state: Mutex<State>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    listed: BTreeSet<(&'static str, Scope)>,
    /// Why the other watches have not listed yet.
    waiting: BTreeMap<(&'static str, Scope), String>,
}

impl Synced {
    /// The state of this many watches, none of which has listed.
    pub fn new(watches: usize) -> Self {
        Synced { shared: Arc::new(Shared { watches, state: Mutex::default(), synced: watch::channel(false).0 }) }
    }

    /// Registers the watch of `what` in `scope`, which has not listed yet, and returns its state.
    pub fn watch(&self, what: &'static str, scope: &Scope) -> Listing {
        let listing = Listing { synced: self.clone(), watch: (what, scope.clone()) };
        listing.waits(format!("waiting for the first list of {what}"));
        listing
    }

    /// The value to wait for.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.shared.synced.subscribe()
    }

    /// `Ok`, or why watches have not listed yet.
    pub fn verdict(&self) -> Result<(), String> {
        let state = lock(&self.shared.state);
        if state.listed.len() == self.shared.watches {
            return Ok(());
        }
        // Watches of several namespaces mostly fail for the same reason.
        let reasons: BTreeSet<&str> = state.waiting.values().map(String::as_str).collect();
        if reasons.is_empty() {
            return Err("the watches have not begun yet".to_owned());
        }
        Err(reasons.into_iter().collect::<Vec<_>>().join("; "))
    }
}

/// The state of one watch.
#[derive(Clone, Debug)]
pub struct Listing {
    synced: Synced,
    watch: (&'static str, Scope),
}

impl Listing {
    /// The watch has not begun, because it waits for another watch, which reports the reason.
    pub fn not_started(&self) {
        lock(&self.synced.shared.state).waiting.remove(&self.watch);
    }

    /// The cache holds a list.
    pub fn listed(&self) {
        let mut state = lock(&self.synced.shared.state);
        state.waiting.remove(&self.watch);
        state.listed.insert(self.watch.clone());
        if state.listed.len() == self.synced.shared.watches {
            self.synced.shared.synced.send_replace(true);
        }
    }

    /// Reports why the watch has not listed yet. After the first list this has no effect: the cache stays synced.
    pub fn waits(&self, reason: String) {
        let mut state = lock(&self.synced.shared.state);
        if !state.listed.contains(&self.watch) {
            state.waiting.insert(self.watch.clone(), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watch_must_have_listed() {
        let synced = Synced::new(2);
        let (pods, sets) = (synced.watch("pods", &None), synced.watch("podsets", &None));
        pods.listed();
        pods.listed();
        assert!(!*synced.subscribe().borrow());
        sets.listed();
        assert!(*synced.subscribe().borrow());
    }

    #[test]
    fn an_unlisted_cache_says_why() {
        let synced = Synced::new(3);
        assert_eq!(synced.verdict(), Err("the watches have not begun yet".to_owned()));
        let (pods, sets) = (synced.watch("pods", &None), synced.watch("podsets", &Some("a".into())));
        pods.not_started();
        assert_eq!(synced.verdict(), Err("waiting for the first list of podsets".to_owned()));
        pods.waits("waiting for the first list of pods".to_owned());
        let others = synced.watch("podsets", &Some("b".into()));
        let waiting = "waiting for the first list of pods; waiting for the first list of podsets";
        assert_eq!(synced.verdict(), Err(waiting.to_owned()));
        pods.listed();
        sets.waits("the CRD is missing".to_owned());
        others.waits("the CRD is missing".to_owned());
        assert_eq!(synced.verdict(), Err("the CRD is missing".to_owned()));
        sets.listed();
        others.listed();
        pods.waits("the API server is away".to_owned());
        assert_eq!(synced.verdict(), Ok(()), "the caches were complete once");
    }
}
