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
mod tests {
    use std::time::Duration;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;
    use crate::podset::{
        observe::{CacheRules, Pod},
        revision::Revision,
        testing::{self, PodBuilder},
    };
    use leadership::{LeaderState, env::testing::virtual_env};
    use operator_kit::{ObjectKey, listwatch::Change, telemetry::metrics::Format};

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_exports_the_metrics() {
        let env = virtual_env();
        let (metrics, (synced, is_synced)) = (Metrics::new(env.clone()), watch::channel(true));
        let mut leader_state = LeaderState::vacant(env.clone());
        let (sets, pods) = a_rollout_and_two_neglected_sets();
        FleetMetrics::new(caches(sets, pods), env, is_synced, leader_state.leadership()).register(&metrics);
        let shown = || {
            let text = metrics.text(Format::OpenMetrics).unwrap();
            let is_own = |line: &&str| line.starts_with("podset_") || line.starts_with("# TYPE podset_");
            let is_zero = |line: &str| line.starts_with("podset_sets{") && line.ends_with(" 0");
            text.lines().filter(is_own).filter(|line| !is_zero(line)).map(str::to_owned).collect::<Vec<_>>()
        };
        let build = concat!(r#"podset_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#);
        let always = ["# TYPE podset_build info", build];
        assert_eq!(shown(), always, "it does not lead");
        tokio::time::advance(Duration::from_millis(1500)).await;
        leader_state.begin(None);
        synced.send_replace(false);
        assert_eq!(shown(), always, "its caches are not synced");
        synced.send_replace(true);
        let expected = [
            "# TYPE podset_sets gauge",
            r#"podset_sets{reason="AllPodsReady"} 2"#,
            r#"podset_sets{reason="RolloutInProgress"} 1"#,
            "# TYPE podset_rollouts gauge",
            r#"podset_rollouts{state="in_progress"} 1"#,
            r#"podset_rollouts{state="stalled"} 0"#,
            r#"podset_rollouts{state="paused"} 0"#,
            r#"podset_rollouts{state="at_partition"} 0"#,
            "# TYPE podset_sets_refused gauge",
            "podset_sets_refused 1",
            "# TYPE podset_pods_desired gauge",
            "podset_pods_desired 9",
            "# TYPE podset_pods_available gauge",
            "podset_pods_available 6",
            "# TYPE podset_pods_ready gauge",
            "podset_pods_ready 5",
            "# TYPE podset_pods_terminating gauge",
            "podset_pods_terminating 3",
            "# TYPE podset_pods_outdated gauge",
            "podset_pods_outdated 4",
            "# TYPE podset_longest_unconverged_seconds gauge",
            "podset_longest_unconverged_seconds 1.5",
            "# TYPE podset_longest_backoff_seconds gauge",
            "podset_longest_backoff_seconds 4.0",
            "# TYPE podset_longest_termination_seconds gauge",
            "podset_longest_termination_seconds 61.5",
            "# TYPE podset_longest_rollout_seconds gauge",
            "podset_longest_rollout_seconds 31.5",
        ];
        assert_eq!(shown(), [&always[..], &expected].concat());
    }

    /// The set `web` with this many wanted pods and these conditions.
    fn set(replicas: usize, conditions: &[(&str, &str, &str, i64)]) -> Set {
        let mut set = testing::set(replicas);
        let condition = |(type_, status, reason, ago): &(&str, &str, &str, i64)| Condition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH - SignedDuration::from_secs(*ago)),
        };
        set.status.conditions = conditions.iter().map(condition).collect();
        set
    }

    /// The caches of these sets and pods.
    fn caches(sets: Vec<Set>, pods: Vec<PodBuilder>) -> Arc<Mutex<Caches>> {
        let mut caches = Caches::new(CacheRules::default());
        let pods: Vec<Pod> = pods.into_iter().map(|pod| pod.0).collect();
        caches.sets.apply(&None, Change::Snapshot { items: sets, version: 100 });
        caches.apply_pods(&None, Change::Snapshot { items: pods, version: 100 }, Timestamp::UNIX_EPOCH);
        Arc::new(Mutex::new(caches))
    }

    /// Two sets that are Ready without pods. A third one has been in a rollout for 30 s, and one of its pods terminating for a minute.
    fn a_rollout_and_two_neglected_sets() -> (Vec<Set>, Vec<PodBuilder>) {
        let rolling = [("Ready", "False", "RolloutInProgress", 30), ("ReplicaFailure", "True", "FailedCreate", 30)];
        let neglected = |name: &str| Set {
            key: ObjectKey::new("default", name),
            uid: name.into(),
            ..set(2, &[("Ready", "True", "AllPodsReady", 9)])
        };
        let outdated = |name| testing::pod(name).of(Revision::of(None, 7)).ready(9);
        let mut pods = vec![outdated("a"), outdated("b"), outdated("c"), outdated("d")];
        pods.extend([testing::pod("e").ready(9), testing::pod("f").replacements(4)]);
        pods.extend(["g", "h", "i"].map(|name| testing::pod(name).terminating()));
        pods[8].0.deleted = Some((Timestamp::UNIX_EPOCH - SignedDuration::from_secs(60)).into());
        (vec![set(5, &rolling), neglected("one"), neglected("two")], pods)
    }

    /// The metrics of this set and these pods.
    fn figures(set: Set, pods: Vec<PodBuilder>) -> FleetMetrics {
        let env = virtual_env();
        FleetMetrics::new(caches(vec![set], pods), env.clone(), watch::channel(true).1, Leadership::always(env))
    }

    fn count(figures: &SetFigures, reason: &str) -> i64 {
        figures.by_reason.iter().find(|(counted, _)| *counted == reason).unwrap().1
    }

    #[tokio::test(start_paused = true)]
    async fn each_state_of_a_rollout_has_its_count() {
        let states = [
            ("in_progress", "RolloutInProgress"),
            ("stalled", "ProgressDeadlineExceeded"),
            ("paused", "RolloutPaused"),
            ("at_partition", "PartitionReached"),
        ];
        let (env, mut sets) = (virtual_env(), Vec::new());
        for (index, (_, reason)) in states.into_iter().enumerate() {
            sets.extend((0..=index).map(|number| {
                let name = format!("{reason}-{number}");
                let (key, uid) = (ObjectKey::new("default", name.as_str()), name.as_str().into());
                Set { key, uid, ..set(2, &[("Ready", "False", reason, 9)]) }
            }));
        }
        let metrics = Metrics::new(env.clone());
        let leadership = Leadership::always(env.clone());
        FleetMetrics::new(caches(sets, Vec::new()), env, watch::channel(true).1, leadership).register(&metrics);
        let text = metrics.text(Format::OpenMetrics).unwrap();
        for (index, (state, _)) in states.into_iter().enumerate() {
            let line = format!(r#"podset_rollouts{{state="{state}"}} {}"#, index + 1);
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_without_a_revision_is_outdated_even_if_the_spec_cannot_be_read() {
        let mut pod = testing::pod("a");
        pod.0.revision = None;
        let unreadable = Set { wanted: Err("the spec cannot be read".into()), ..set(1, &[]) };
        assert_eq!(figures(unreadable, vec![pod]).take().outdated, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_at_rest_is_counted_as_converged() {
        let set = set(2, &[("Ready", "True", "AllPodsReady", 9)]);
        let taken = figures(set, vec![testing::pod("a").ready(9), testing::pod("b").ready(9)]).take();
        assert_eq!((taken.desired, taken.available, taken.ready), (2, 2, 2));
        assert_eq!((count(&taken, "AllPodsReady"), count(&taken, "Unknown"), taken.refused), (1, 0, 0));
        assert_eq!((taken.unconverged, taken.backoff), (SignedDuration::ZERO, SignedDuration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unready_set_is_unconverged_since_its_transition_time() {
        let rejected = [("Ready", "False", "PodsNotReady", 60), ("ReplicaFailure", "True", "FailedCreate", 30)];
        let figures = figures(set(2, &rejected), vec![testing::pod("a").ready(9)]);
        tokio::time::advance(Duration::from_secs(40)).await;
        let taken = figures.take();
        assert_eq!(taken.unconverged.as_secs(), 100);
        assert_eq!((taken.refused, count(&taken, "PodsNotReady")), (1, 1));
        assert_eq!((taken.desired, taken.available, taken.ready), (2, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollout_in_progress_does_not_count_as_unconverged() {
        for (generation, unconverged) in [(1, 0), (2, 30)] {
            let mut rolling = set(2, &[("Ready", "False", "RolloutInProgress", 60)]);
            rolling.status.observed_generation = Some(1);
            rolling.generation = generation;
            let figures = figures(rolling, vec![testing::pod("a").ready(9)]);
            let taken = figures.take();
            assert_eq!((taken.unconverged.as_secs(), taken.rollout.as_secs()), (0, 60));
            tokio::time::advance(Duration::from_secs(30)).await;
            assert_eq!(figures.take().unconverged.as_secs(), unconverged);
        }
    }

    /// For example, the leader hangs, and the last status that it wrote is Ready.
    #[tokio::test(start_paused = true)]
    async fn a_neglected_set_counts_as_unconverged() {
        let ready = [("Ready", "True", "AllPodsReady", 9)];
        let mut outdated = set(1, &ready);
        outdated.generation = 2;
        for (set, pods) in
            [(outdated, vec![testing::pod("a").ready(9)]), (set(2, &ready), vec![]), (set(1, &[]), vec![])]
        {
            let figures = figures(set, pods);
            assert_eq!(figures.take().unconverged.as_secs(), 0);
            tokio::time::advance(Duration::from_secs(1000)).await;
            assert_eq!(figures.take().unconverged.as_secs(), 1000);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_unconverged_time_restarts_after_convergence() {
        let figures = figures(set(1, &[("Ready", "True", "AllPodsReady", 9)]), vec![]);
        figures.take();
        tokio::time::advance(Duration::from_secs(1000)).await;
        let change =
            |pod: PodBuilder| lock(&figures.observed).apply_pods(&None, Change::Applied(pod.0), figures.env.now());
        change(testing::pod("a").version(101).ready(0));
        assert_eq!(figures.take().unconverged.as_secs(), 0);
        change(testing::pod("a").version(102));
        assert_eq!(figures.take().unconverged.as_secs(), 0, "the time restarts");
    }

    #[tokio::test(start_paused = true)]
    async fn foreign_reasons_create_no_series() {
        let taken = figures(set(1, &[("Ready", "False", "Sabotage", 9)]), vec![]).take();
        assert_eq!(count(&taken, "Unknown"), 1);
        assert_eq!(taken.by_reason.len(), crate::podset::status::REASONS.len() + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_that_is_being_deleted_wants_no_pods_and_is_not_converged() {
        let mut deleting = set(2, &[("Ready", "False", "Deleting", 7)]);
        deleting.is_deleting = true;
        let taken = figures(deleting, vec![]).take();
        assert_eq!((taken.desired, taken.unconverged.as_secs(), count(&taken, "Deleting")), (0, 7, 1));
    }
}
