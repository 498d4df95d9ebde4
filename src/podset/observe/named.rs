//! Pods by name, for the cache of pods.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::pod::Pod;
use operator_kit::ObjectKey;

/// A pod that hashes as its namespace and name: an index by name then takes one pointer for each pod.
#[derive(Debug)]
pub struct Named(pub Arc<Pod>);

impl Borrow<ObjectKey> for Named {
    fn borrow(&self) -> &ObjectKey {
        &self.0.key
    }
}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Named {}
