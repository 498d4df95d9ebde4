//! What tests read, and how they wait for it. Changes nothing.

use std::panic::Location;

use tokio::time::{Instant, sleep_until};

use super::*;

/// How many lines of the log and of the history a failed wait shows.
const SHOWN: usize = 25;

impl ApiServer {
    /// An object, null if there is none.
    pub fn get(&self, kind: &'static Kind, namespace: &str, name: &str) -> Value {
        self.with(|state| state.get(kind, namespace, name).map_or(Value::Null, |o| (**o).clone()))
    }

    /// All objects of a kind, in a namespace or (if empty) in all namespaces.
    pub fn all(&self, kind: &'static Kind, namespace: &str) -> Vec<Value> {
        self.with(|state| state.of_kind(kind, namespace).map(|o| (**o).clone()).collect())
    }

    /// A PodSet, null if there is none.
    pub fn podset(&self, namespace: &str, name: &str) -> Value {
        self.get(&PODSETS, namespace, name)
    }

    /// A pod, null if there is none.
    pub fn pod(&self, namespace: &str, name: &str) -> Value {
        self.get(&PODS, namespace, name)
    }

    /// The pods whose controller is this PodSet, by its current UID, in any state.
    pub fn pods(&self, namespace: &str, podset: &str) -> Vec<Value> {
        self.pods_of(namespace, podset, |pod| Some(pod.clone()))
    }

    /// Names of the live pods of a PodSet.
    pub fn live_pods(&self, namespace: &str, podset: &str) -> Vec<String> {
        self.pods_of(namespace, podset, |pod| object::is_live(pod).then(|| object::name(pod).to_owned()))
    }

    /// Names of the live pods of a PodSet that are ready.
    pub fn ready_pods(&self, namespace: &str, podset: &str) -> Vec<String> {
        let is_it = |pod: &Value| object::is_live(pod) && object::is_ready(pod);
        self.pods_of(namespace, podset, |pod| is_it(pod).then(|| object::name(pod).to_owned()))
    }

    fn pods_of<T>(&self, namespace: &str, podset: &str, view: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        self.with(|state| {
            let Some(set) = state.get(&PODSETS, namespace, podset) else { return Vec::new() };
            let is_owned = |pod: &&Arc<Value>| object::controller_uid(pod) == Some(object::uid(set));
            state.of_kind(&PODS, namespace).filter(is_owned).filter_map(|pod| view(pod)).collect()
        })
    }

    /// The events in a namespace with this reason, or all if it is empty.
    pub fn events(&self, namespace: &str, reason: &str) -> Vec<Value> {
        let mut events = self.all(&EVENTS, namespace);
        events.retain(|event| reason.is_empty() || event["reason"] == reason);
        events
    }

    /// Waits until `holds` returns true. After `timeout` on tokio's clock, panics with the last requests and changes.
    #[track_caller]
    pub fn wait_until<'a>(
        &'a self,
        mut holds: impl FnMut(&Self) -> bool + 'a,
        timeout: Duration,
    ) -> impl Future<Output = ()> + 'a {
        let caller = Location::caller();
        async move {
            let end = Instant::now() + timeout;
            let mut changes = self.with(|state| state.changes.subscribe());
            loop {
                changes.mark_unchanged();
                if holds(self) {
                    return;
                }
                assert!(Instant::now() < end, "timed out after {timeout:?} at {caller}.\n{}", self.recently());
                // A test can also wait for something outside the store.
                let next_look = end.min(Instant::now() + Duration::from_millis(100));
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep_until(next_look) => {}
                }
            }
        }
    }

    /// The last requests and changes.
    pub fn recently(&self) -> String {
        self.with(|state| {
            let requests: Vec<_> = state.log.iter().rev().take(SHOWN).map(LoggedRequest::line).rev().collect();
            let changes: Vec<_> = state.history.iter().rev().take(SHOWN).map(Change::to_string).rev().collect();
            format!("last requests:\n{}\nlast changes:\n{}", requests.join("\n"), changes.join("\n"))
        })
    }
}
