//! Metrics of all sets together. Each scrape counts the cached sets and pods.
//!
//! Only the leader shows them: the caches of a standby may be outdated, and a sum over replicas would count every set several times.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge, info::Info},
};
use tokio::sync::watch;

use super::{
    conditions,
    observe::{Caches, Seen, Set},
    restart_backoff,
    status::{self, REASONS},
};
use crate::api::condition;
use leadership::{Leadership, env::Env};
use operator_kit::{
    lock,
    meta::Uid,
    telemetry::{metrics::Metrics, spans},
};

/// The reason of a set without a condition Ready, or with a reason that the operator does not use. Users who may write statuses must not be
/// able to add series.
const UNKNOWN: &str = "Unknown";

/// The states of a rollout, each with the reason of the condition Ready in it.
const ROLLOUTS: [(&str, &str); 4] = [
    ("in_progress", conditions::ROLLING),
    ("stalled", conditions::LATE),
    ("paused", conditions::PAUSED),
    ("at_partition", status::AT_PARTITION),
];

/// The metrics of all sets, exported while this process leads and its caches are synced. If a namespace cannot be listed, its pods count as
/// missing.
#[derive(Debug)]
pub struct FleetMetrics {
    observed: Arc<Mutex<Caches>>,
    env: Env,
    synced: watch::Receiver<bool>,
    leadership: Leadership,
    /// When each set was first seen to differ from its spec, for sets whose status does not say since when.
    noticed: Mutex<HashMap<Uid, Timestamp>>,
}

/// The values of the metrics at one moment. Pods of sets that are being deleted count, too.
#[derive(Debug, Default)]
struct SetFigures {
    /// The number of sets by the reason of their condition Ready. The reasons are a fixed list.
    by_reason: Vec<(&'static str, i64)>,
    refused: i64,
    /// A set that is being deleted wants no pods.
    desired: i64,
    available: i64,
    ready: i64,
    terminating: i64,
    termination: SignedDuration,
    outdated: i64,
    rollout: SignedDuration,
    unconverged: SignedDuration,
    backoff: SignedDuration,
}

impl Collector for FleetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        if !*self.synced.borrow() {
            return Ok(());
        }
        // A standby computes them too, so that they are right from the start when it leads.
        let figures = self.take();
        if !self.leadership.is_leader() {
            return Ok(());
        }
        let help = "Number of PodSets by the reason of their condition Ready; Unknown if they have none yet";
        let mut sets = encoder.encode_descriptor("podset_sets", help, None, MetricType::Gauge)?;
        for (reason, count) in &figures.by_reason {
            ConstGauge::new(*count).encode(sets.encode_family(&[("reason", *reason)])?)?;
        }
        let help = "Number of PodSets in a rollout by its state: in_progress, stalled, paused or at_partition";
        let mut rollouts = encoder.encode_descriptor("podset_rollouts", help, None, MetricType::Gauge)?;
        for (state, reason) in ROLLOUTS {
            let count = figures.by_reason.iter().find(|(counted, _)| *counted == reason).map_or(0, |(_, count)| *count);
            ConstGauge::new(count).encode(rollouts.encode_family(&[("state", state)])?)?;
        }
        let available = "Number of pods of PodSets that are Pending or Running and not being deleted, ready or not";
        let refused = "Number of PodSets for which creates or deletes of pods are rejected or get no answer";
        let terminating = "Number of pods of PodSets that are being deleted and have not finished yet";
        let outdated = "Number of live pods whose template is not the one in the spec of their PodSet";
        let counts = [
            ("podset_sets_refused", refused, figures.refused),
            ("podset_pods_desired", "Number of pods that all PodSets want", figures.desired),
            ("podset_pods_available", available, figures.available),
            ("podset_pods_ready", "Number of pods of PodSets that are ready", figures.ready),
            ("podset_pods_terminating", terminating, figures.terminating),
            ("podset_pods_outdated", outdated, figures.outdated),
        ];
        for (name, help, count) in counts {
            ConstGauge::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let termination =
            "Seconds since the deletion of the longest-terminating pod was requested; 0 if none is terminating";
        let unconverged = "Seconds since the longest-diverged PodSet last matched its spec, apart from rollouts in progress; 0 if all match";
        let backoff = "Longest restart backoff of any PodSet in the last 10 minutes, in seconds; 0 if there was none";
        let rollout = "Longest time since Ready turned False of any PodSet with a rollout in progress or stalled, in seconds; 0 if there is none";
        for (name, help, time) in [
            ("podset_longest_unconverged_seconds", unconverged, figures.unconverged),
            ("podset_longest_backoff_seconds", backoff, figures.backoff),
            ("podset_longest_termination_seconds", termination, figures.termination),
            ("podset_longest_rollout_seconds", rollout, figures.rollout),
        ] {
            let gauge = ConstGauge::new(time.as_secs_f64().max(0.0));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

impl FleetMetrics {
    /// The metrics of the sets and pods in these caches.
    pub fn new(observed: Arc<Mutex<Caches>>, env: Env, synced: watch::Receiver<bool>, leadership: Leadership) -> Self {
        FleetMetrics { observed, env, synced, leadership, noticed: Mutex::default() }
    }

    /// Registers these metrics and the version.
    pub fn register(self, metrics: &Metrics) {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        metrics.register(|registry| {
            registry.register("podset_build", "The version of podset-operator", build);
            registry.register_collector(Box::new(self));
        });
    }

    fn take(&self) -> SetFigures {
        let (now, wall) = (self.env.now(), self.env.clock.wall());
        let mut noticed = lock(&self.noticed);
        let former = std::mem::take(&mut *noticed);
        let caches = lock(&self.observed);
        let mut by_reason: Vec<_> = REASONS.into_iter().chain([UNKNOWN]).map(|reason| (reason, 0)).collect();
        let mut figures = SetFigures::default();
        for set in caches.sets.all() {
            let owner = caches.owner(set);
            let pods: Vec<&Seen> = caches.pods.owned(&owner).collect();
            let count = |holds: fn(&Seen) -> bool| spans::count(pods.iter().filter(|seen| holds(seen)).count());
            let [live, current, ready] = [Seen::is_live, Seen::is_current, Seen::is_ready].map(count);
            let desired = if set.is_deleting { 0 } else { spans::count(set.replicas()) };
            let reason = reason(set);
            by_reason.iter_mut().filter(|(counted, _)| *counted == reason).for_each(|(_, count)| *count += 1);
            figures.refused += i64::from(conditions::holds(&set.status, condition::REPLICA_FAILURE));
            figures.desired += desired;
            figures.available += current;
            figures.ready += ready;
            let terminating = || pods.iter().filter(|seen| seen.counts_as_terminating());
            figures.terminating += spans::count(terminating().count());
            let is_outdated = |seen: &&&Seen| seen.is_live() && !set.is_template_of(&seen.pod);
            figures.outdated += spans::count(pods.iter().filter(is_outdated).count());
            if conditions::reports_rollout(&set.status) {
                let since = unready_since(set).map(|since| wall.duration_since(since));
                figures.rollout = figures.rollout.max(since.unwrap_or_default());
            }
            let since = terminating().filter_map(|seen| seen.terminating_since()).min();
            figures.termination =
                figures.termination.max(since.map(|since| now.duration_since(since)).unwrap_or_default());
            figures.backoff = figures.backoff.max(restart_backoff::backoff(pods.iter().copied(), now));
            // A rollout has a deadline of its own, so its time does not count, also while a later spec is not observed yet.
            let is_rolling = reason == conditions::ROLLING;
            if !(is_rolling && set.is_observed()) && ([live, current, ready] != [desired; 3] || !says_converged(set)) {
                // Prefer the time in the status, which outlives the leader. Otherwise count from when this process noticed.
                let since = unready_since(set).filter(|_| !is_rolling);
                let age = since.map(|since| wall.duration_since(since)).unwrap_or_else(|| {
                    let since = former.get(&set.uid).copied().unwrap_or(now);
                    noticed.insert(set.uid.clone(), since);
                    now.duration_since(since)
                });
                figures.unconverged = figures.unconverged.max(age);
            }
        }
        SetFigures { by_reason, ..figures }
    }
}

/// Whether the status says that the set matches its spec. This is not enough, because a leader that hangs does not update it.
fn says_converged(set: &Set) -> bool {
    !set.is_deleting && set.wanted.is_ok() && set.is_observed() && conditions::holds(&set.status, condition::READY)
}

/// When the set became not Ready, according to its status.
fn unready_since(set: &Set) -> Option<Timestamp> {
    let ready = conditions::find(&set.status, condition::READY)?;
    (ready.status != "True").then_some(ready.last_transition_time.0)
}

fn reason(set: &Set) -> &'static str {
    let stored = conditions::ready_reason(&set.status);
    REASONS.into_iter().find(|reason| *reason == stored).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests;
