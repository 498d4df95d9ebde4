//! Up to which resourceVersion each scope is known. No I/O.

use std::collections::HashMap;

use operator_kit::{ObjectKey, listwatch::Scope};

/// The resourceVersion of each scope.
#[derive(Debug, Default)]
pub struct HighWater(HashMap<Scope, u64>);

impl HighWater {
    /// The scope is known up to this version.
    pub fn raise(&mut self, scope: &Scope, version: u64) {
        let reached = self.0.entry(scope.clone()).or_default();
        *reached = version.max(*reached);
    }

    /// Up to which version the object of this name is known.
    pub fn at(&self, key: &ObjectKey) -> u64 {
        let of = |scope: Scope| self.0.get(&scope).copied().unwrap_or_default();
        of(None).max(of(Some(key.namespace.clone())))
    }
}
