//! In which namespaces the operator works on pods now. Meanwhile, reports of other sets in the namespace wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use operator_kit::{lock, queue::Queue};

/// The namespaces in which sets have work in flight, and how many sets.
#[derive(Default)]
pub struct BusyNamespaces(Mutex<HashMap<Arc<str>, usize>>);

impl BusyNamespaces {
    /// Marks the namespace as busy until the guard is dropped. Dropping the last guard of a namespace queues its sets with a waiting report.
    pub fn begin_work<'a>(&'a self, queue: &'a Queue, namespace: &'a Arc<str>) -> WorkGuard<'a> {
        *lock(&self.0).entry(namespace.clone()).or_default() += 1;
        WorkGuard { namespaces: self, queue, namespace }
    }

    /// Whether a set of this namespace has work in flight.
    pub fn is_busy(&self, namespace: &str) -> bool {
        lock(&self.0).contains_key(namespace)
    }
}

/// Marks a namespace as busy until it is dropped.
pub struct WorkGuard<'a> {
    namespaces: &'a BusyNamespaces,
    queue: &'a Queue,
    namespace: &'a Arc<str>,
}

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        let mut namespaces = lock(&self.namespaces.0);
        let Some(in_flight) = namespaces.get_mut(self.namespace) else { return };
        *in_flight -= 1;
        if *in_flight == 0 {
            namespaces.remove(self.namespace);
            drop(namespaces);
            self.queue.add_reports(self.namespace);
        }
    }
}
