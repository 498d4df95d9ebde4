//! What is in a scenario's namespace as the watches have it now, and the questions that scenarios ask of it.
//!
//! Each question answers `Err` with what is there instead: a wait that fails prints the last of these answers.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;

use super::objects::Objects;
use crate::rights::LEASE;
use crate::types::{MyCustomResource, Pod, PodSet, in_short, uid};

/// An answer, or what was seen instead.
pub type Seen<T = ()> = Result<T, String>;

/// The namespace.
#[derive(Default)]
pub struct View {
    /// The PodSets.
    pub sets: Objects<PodSet>,
    /// Every pod, whoever it belongs to.
    pub pods: Objects<Pod>,
    /// The MyCustomResources.
    pub seekers: Objects<MyCustomResource>,
    /// The events (events.k8s.io) of all reporters.
    pub all_events: Objects<Event>,
    /// The Leases.
    pub leases: Objects<Lease>,
}

impl View {
    /// The PodSet of that name.
    pub fn set(&self, name: &str) -> Seen<&PodSet> {
        self.sets.named(name).ok_or_else(|| format!("no PodSet {name}"))
    }

    /// The MyCustomResource of that name.
    pub fn seeker(&self, name: &str) -> Seen<&MyCustomResource> {
        self.seekers.named(name).ok_or_else(|| format!("no MyCustomResource {name}"))
    }

    /// The pod of that name.
    pub fn pod(&self, name: &str) -> Seen<&Pod> {
        self.pods.named(name).ok_or_else(|| format!("no pod {name}"))
    }

    /// The identity of the holder of the election's Lease; empty where nobody holds it.
    pub fn holder(&self) -> Seen<String> {
        let lease = self.leases.named(LEASE).ok_or("no Lease")?;
        Ok(lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default())
    }

    /// The same, once the holder has renewed it: from then on it knows for certain that it leads.
    pub fn renewing_holder(&self) -> Seen<String> {
        let holder = self.holder()?;
        let spec = self.leases.named(LEASE).and_then(|lease| lease.spec.as_ref());
        match spec.map(|spec| (&spec.acquire_time, &spec.renew_time)) {
            Some((Some(acquired), Some(renewed))) if renewed.0 > acquired.0 => Ok(holder),
            _ => Err(format!("{holder:?} has not renewed the Lease yet")),
        }
    }

    /// Every pod with the set's owner reference: live, terminating or finished.
    pub fn pods_of(&self, set: &PodSet) -> Vec<&Pod> {
        self.pods.owned_by(&uid(&set.metadata)).collect()
    }

    /// The live pods of the set, sorted by name.
    pub fn live(&self, set: &str) -> Seen<Vec<&Pod>> {
        let mut pods = self.pods_of(self.set(set)?);
        pods.retain(|pod| pod.is_live());
        pods.sort_by_key(|pod| pod.name_any());
        Ok(pods)
    }

    /// The set has exactly `n` live pods; their names.
    pub fn has_live(&self, set: &str, n: usize) -> Seen<Vec<String>> {
        let live = names(&self.live(set)?);
        if live.len() == n { Ok(live) } else { Err(format!("{set} has {} live pods: {live:?}", live.len())) }
    }

    /// The set is at rest with `n` pods, all ready, and its status says exactly what is. The names.
    pub fn at_rest(&self, set: &str, n: usize) -> Seen<Vec<String>> {
        let live = self.has_live(set, n)?;
        let pods = self.pods_of(self.set(set)?);
        let unready = names(&pods.iter().copied().filter(|pod| pod.is_live() && !pod.is_ready()).collect::<Vec<_>>());
        if !unready.is_empty() {
            return Err(format!("{set} has pods that are not ready: {unready:?}"));
        }
        self.status_is_right(set)?;
        self.conditions(set, &[("Ready", "True/AllPodsReady")])?;
        Ok(live)
    }

    /// The set's status agrees with its spec's generation and with its pods.
    pub fn status_is_right(&self, set: &str) -> Seen {
        let object = self.set(set)?;
        let (status, generation) = (object.state(), object.metadata.generation);
        let available: Vec<_> = self.live(set)?.into_iter().filter(|pod| pod.is_available()).collect();
        let ready = available.iter().filter(|pod| pod.is_ready()).count() as i64;
        let selector = format!("app={set},version=v0.1,app.kubernetes.io/managed-by=podset-operator");
        let wrong =
            |field: &str, is: String, should: String| Err(format!("status.{field} of {set} is {is}, not {should}"));
        if status.observed_generation != generation {
            return wrong("observedGeneration", format!("{:?}", status.observed_generation), format!("{generation:?}"));
        }
        if status.pod_names != names(&available) {
            return wrong("podNames", format!("{:?}", status.pod_names), format!("{:?}", names(&available)));
        }
        if status.available_replicas != available.len() as i64 {
            return wrong("availableReplicas", status.available_replicas.to_string(), available.len().to_string());
        }
        if status.ready_replicas != ready {
            return wrong("readyReplicas", status.ready_replicas.to_string(), ready.to_string());
        }
        if status.selector.as_deref() != Some(&selector) {
            return wrong("selector", format!("{:?}", status.selector), selector);
        }
        Ok(())
    }

    /// The set has exactly these conditions, as (type, `Status/Reason`).
    pub fn conditions(&self, set: &str, expected: &[(&str, &str)]) -> Seen {
        let is = in_short(&self.set(set)?.state().conditions);
        let should = expected.iter().map(|(type_, state)| (type_.to_string(), state.to_string())).collect();
        if is == should { Ok(()) } else { Err(format!("{set} has the conditions {is:?}, not {should:?}")) }
    }

    /// The text of one condition of the set.
    pub fn message(&self, set: &str, condition: &str) -> Seen<String> {
        let status = self.set(set)?.state();
        let found = status.conditions.into_iter().find(|c| c.type_ == condition);
        found.map(|c| c.message).ok_or_else(|| format!("{set} has no condition {condition}"))
    }

    /// The events that the operator reported about an object, oldest first, as `Reason: note`. A series counts as often as it was reported.
    pub fn events(&self, name: &str) -> Vec<String> {
        let mut events: Vec<&Event> = self.all_events.all().filter(|event| is_ours(event, name)).collect();
        events.sort_by_key(|event| event.event_time.clone());
        events
            .into_iter()
            .flat_map(|event| {
                let times = event.series.as_ref().map_or(1, |series| series.count.max(1));
                let reason = event.reason.as_deref().unwrap_or_default();
                let line = format!("{reason}: {}", event.note.as_deref().unwrap_or_default());
                std::iter::repeat_n(line, times as usize)
            })
            .collect()
    }
}

fn is_ours(event: &Event, about: &str) -> bool {
    let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
    regarding == Some(about) && event.reporting_controller.as_deref() == Some("podset-operator")
}

/// The names of pods, sorted.
pub fn names(pods: &[&Pod]) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
    names.sort();
    names
}
