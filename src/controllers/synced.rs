//! Whether the caches of a controller hold a first complete list of everything they watch.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::listwatch::Scope;

/// Becomes true once every watch has brought its first list.
#[derive(Debug)]
pub struct Synced {
    watches: usize,
    listed: Mutex<BTreeSet<(&'static str, Scope)>>,
    synced: watch::Sender<bool>,
}

impl Synced {
    /// Nothing is listed yet of so many watches.
    pub fn new(watches: usize) -> Self {
        Synced { watches, listed: Mutex::default(), synced: watch::channel(false).0 }
    }

    /// The watch of `what` in `scope` brought a list.
    pub fn listed(&self, what: &'static str, scope: &Scope) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.insert((what, scope.clone()));
        if listed.len() == self.watches {
            self.synced.send_replace(true);
        }
    }

    /// The value to wait for.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watch_must_have_listed() {
        let synced = Synced::new(2);
        synced.listed("pods", &None);
        synced.listed("pods", &None);
        assert!(!*synced.subscribe().borrow());
        synced.listed("podsets", &None);
        assert!(*synced.subscribe().borrow());
    }
}
