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
    for (set, pods) in [(outdated, vec![testing::pod("a").ready(9)]), (set(2, &ready), vec![]), (set(1, &[]), vec![])] {
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
    let change = |pod: PodBuilder| lock(&figures.observed).apply_pods(&None, Change::Applied(pod.0), figures.env.now());
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
