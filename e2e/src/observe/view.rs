//! A scenario's namespace as the watches show it. An `Err` says what is there instead, which a failed wait prints.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;

use super::objects::Objects;
use crate::types::{Pod, PodSet, PodSetStatus, uid};

/// What was asked for, or what was seen instead.
pub type Seen<T = ()> = Result<T, String>;

/// The namespace.
#[derive(Default)]
pub struct View {
    pub sets: Objects<PodSet>,
    /// All pods, also foreign ones.
    pub pods: Objects<Pod>,
    /// The events (events.k8s.io) of all reporters.
    pub all_events: Objects<Event>,
    pub leases: Objects<Lease>,
}

impl View {
    pub fn set(&self, name: &str) -> Seen<&PodSet> {
        self.sets.named(name).ok_or_else(|| format!("no PodSet {name}"))
    }

    pub fn pod(&self, name: &str) -> Seen<&Pod> {
        self.pods.named(name).ok_or_else(|| format!("no pod {name}"))
    }

    /// The holder of this Lease; empty if nobody holds it.
    pub fn holder(&self, lease: &str) -> Seen<String> {
        let lease = self.leases.named(lease).ok_or("no Lease")?;
        Ok(lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default())
    }

    /// The same, if the holder has renewed the Lease, so that it knows that it leads.
    pub fn renewing_holder(&self, lease: &str) -> Seen<String> {
        let holder = self.holder(lease)?;
        let spec = self.leases.named(lease).and_then(|lease| lease.spec.as_ref());
        match spec.map(|spec| (&spec.acquire_time, &spec.renew_time)) {
            Some((Some(acquired), Some(renewed))) if renewed.0 > acquired.0 => Ok(holder),
            _ => Err(format!("{holder:?} has not renewed the Lease yet")),
        }
    }

    pub fn live_pods_are(&self, is_right: impl Fn(usize) -> bool) -> Seen {
        let live = self.pods.all().filter(|pod| pod.is_live()).count();
        if is_right(live) { Ok(()) } else { Err(format!("{live} live pods")) }
    }

    /// The live pods of the set, sorted by name.
    pub fn live(&self, set: &str) -> Seen<Vec<&Pod>> {
        let set = uid(&self.set(set)?.metadata);
        let mut pods: Vec<_> = self.pods.owned_by(&set).filter(|pod| pod.is_live()).collect();
        pods.sort_by_key(|pod| pod.name_any());
        Ok(pods)
    }

    /// The set has exactly `n` live pods. Returns their names.
    pub fn has_live(&self, set: &str, n: usize) -> Seen<Vec<String>> {
        let live = names(&self.live(set)?);
        if live.len() == n { Ok(live) } else { Err(format!("{set} has {} live pods: {live:?}", live.len())) }
    }

    /// The set has exactly `n` live pods, all ready, and its status says so. Returns their names.
    pub fn at_rest(&self, set: &str, n: usize) -> Seen<Vec<String>> {
        let live = self.has_live(set, n)?;
        let unready: Vec<_> = self.live(set)?.into_iter().filter(|pod| !pod.is_ready()).collect();
        if !unready.is_empty() {
            return Err(format!("{set} has pods that are not ready: {:?}", names(&unready)));
        }
        self.status_is_right(set)?;
        self.conditions(set, &[("Ready", "True/AllPodsReady")])?;
        Ok(live)
    }

    /// The set's status is about its current generation and its current pods.
    pub fn status_is_right(&self, set: &str) -> Seen {
        let object = self.set(set)?;
        let status = object.state();
        let available: Vec<_> = self.live(set)?.into_iter().filter(|pod| pod.is_available()).collect();
        let expected = PodSetStatus {
            pod_names: names(&available),
            available_replicas: available.len() as i64,
            ready_replicas: available.iter().filter(|pod| pod.is_ready()).count() as i64,
            observed_generation: object.metadata.generation,
            selector: Some(format!("app={set},version=v0.1,app.kubernetes.io/managed-by=podset-operator")),
            ..status.clone()
        };
        if status == expected { Ok(()) } else { Err(format!("the status of {set} is {status:?}, not {expected:?}")) }
    }

    /// The set has exactly these conditions, as (type, `Status/Reason`).
    pub fn conditions(&self, set: &str, expected: &[(&str, &str)]) -> Seen {
        let conditions = self.set(set)?.state().conditions;
        let is: BTreeMap<_, _> =
            conditions.into_iter().map(|c| (c.type_, format!("{}/{}", c.status, c.reason))).collect();
        let should = expected.iter().map(|(type_, state)| (type_.to_string(), state.to_string())).collect();
        if is == should { Ok(()) } else { Err(format!("{set} has the conditions {is:?}, not {should:?}")) }
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

fn names(pods: &[&Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.name_any()).collect()
}
