//! Up to which resourceVersion something is known, of each scope. No I/O, no decision.

use std::collections::HashMap;

use operator_kit::{ObjectKey, listwatch::Scope};

/// The highest version of each scope.
#[derive(Debug, Default)]
pub struct HighWater(HashMap<Scope, u64>);

impl HighWater {
    /// This version of the scope was reached.
    pub fn note(&mut self, scope: &Scope, version: u64) {
        let reached = self.0.entry(scope.clone()).or_default();
        *reached = version.max(*reached);
    }

    /// The highest version of those scopes in which an object of this name lies.
    pub fn at(&self, key: &ObjectKey) -> u64 {
        let of = |scope: Scope| self.0.get(&scope).copied().unwrap_or_default();
        of(None).max(of(Some(key.namespace.clone())))
    }
}
