//! The runner, with a controller that does nothing: its probes, metrics and queue.

use jiff::SignedDuration;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, task};

use super::*;
use crate::listwatch::synced::{Listing, State};
use leadership::LeaderState;

/// A controller that does nothing. The test plays its one watch.
struct Idle {
    queue: Queue,
    synced: Synced,
}

impl Controller for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn background(self: Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        Vec::new()
    }

    fn synced(&self) -> &Synced {
        &self.synced
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn keys(&self) -> Vec<ObjectKey> {
        vec![ObjectKey::new("default", "known")]
    }

    async fn reconcile(&self, key: &ObjectKey, trigger: Trigger) -> Next {
        match &*key.name {
            "fails" => Next::Retry(Timestamp::MAX),
            "waits" => Next::At(Timestamp::MAX),
            "goes-on" if trigger != "alarm" => Next::At(Timestamp::MIN),
            "known" | "is-gone" => Next::Never,
            "hangs" | "hangs-too" => std::future::pending().await,
            _ => Next::Resync,
        }
    }
}

/// The controller, its context, its watch and its election.
fn idle() -> (Arc<Idle>, Context, Listing, LeaderState) {
    idle_in(leadership::env::testing::virtual_env())
}

fn idle_in(env: Env) -> (Arc<Idle>, Context, Listing, LeaderState) {
    let metrics = Metrics::new(env.clone());
    let synced = Synced::default();
    let listing = synced.register("things", &None);
    let queue = Queue::new(env.clone(), metrics.controller("idle").queue);
    let leader_state = LeaderState::vacant(env.clone());
    let leadership = leader_state.leadership();
    let health = Health::new(env.clone());
    health.started();
    let context = Context { env, leadership, metrics, health, max_concurrent: 2, stop: CancellationToken::new() };
    (Arc::new(Idle { queue, synced }), context, listing, leader_state)
}

fn worker(health: &Health) -> Result<(), String> {
    health.liveness().get("idle-worker").cloned().expect("the worker has a pulse")
}

/// Lets time pass in small steps, and polls the loop after each.
async fn assert_live(worker: &mut task::Spawn<impl Future<Output = ()>>, health: &Health) {
    for _ in 0..100 {
        advance(Duration::from_secs(15)).await;
        assert_pending!(worker.poll());
        assert_eq!(self::worker(health), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_polled_worker_is_live_whatever_it_waits_for() {
    let (controller, context, listing, mut leader_state) = idle();
    let (health, stop) = (context.health.clone(), context.stop.clone());
    let mut running = task::spawn(Box::pin(run(controller, context)));
    assert_live(&mut running, &health).await;
    listing.set(State::Listed);
    assert_live(&mut running, &health).await;
    leader_state.begin(None);
    assert_live(&mut running, &health).await;

    advance(Duration::from_secs(61)).await;
    assert_eq!(worker(&health), Err("the loop has not turned for 61 s, limit 1m".to_owned()), "it was not polled");
    assert_pending!(running.poll());
    assert_eq!(worker(&health), Ok(()));
    stop.cancel();
    assert_ready!(running.poll());
    drop(running);
    assert!(!health.liveness().contains_key("idle-worker"), "it ended");
}

#[tokio::test(start_paused = true)]
async fn a_leading_worker_is_live_only_while_it_is_polled() {
    let (controller, context, listing, mut leader_state) = idle();
    let health = context.health.clone();
    listing.set(State::Listed);
    leader_state.begin(None);
    let mut running = task::spawn(Box::pin(run(controller, context)));
    assert_live(&mut running, &health).await;
    advance(Duration::from_secs(61)).await;
    assert!(worker(&health).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_ready_when_its_caches_are() {
    let (controller, context, listing, _leader_state) = idle();
    let health = context.health.clone();
    let caches = || health.readiness().get("idle-caches").cloned().expect("its caches are checked");
    let _running = run(controller, context);
    assert_eq!(caches(), Err("waiting for the first list of things".to_owned()), "before the first poll");
    listing.set(State::Failed("the API server is away".to_owned()));
    assert_eq!(caches(), Err("the API server is away".to_owned()));
    listing.set(State::Listed);
    assert_eq!(caches(), Ok(()), "it does not need to lead");
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_counted_by_outcome() {
    let (controller, context, listing, mut leader_state) = idle();
    let (metrics, stop) = (context.metrics.clone(), context.stop.clone());
    listing.set(State::Listed);
    leader_state.begin(None);
    let running = tokio::spawn(run(controller.clone(), context));
    tokio::time::sleep(Duration::from_millis(1)).await;
    for name in ["fails", "waits", "is-gone", "rests", "rests-too", "goes-on"] {
        controller.queue.add(ObjectKey::new("default", name), "test");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.cancel();
    running.await.expect("the controller ends");
    let value = |series: &str| value(&metrics, series);
    let of =
        |result: &str| value(&format!(r#"controller_runtime_reconcile_total{{controller="idle",result="{result}"}}"#));
    assert_eq!((of("success"), of("error"), of("requeue"), of("requeue_after")), (5.0, 1.0, 1.0, 1.0));
    assert_eq!(value("workqueue_retries_total"), 2.0, "one key failed, and one is not due yet");
    assert_eq!(value("controller_runtime_max_concurrent_reconciles"), 2.0);
    assert_eq!(value("controller_runtime_active_workers"), 0.0);
    assert_eq!(value("workqueue_work_duration_seconds_count"), 8.0);
}

/// The value of the first series that begins like this.
fn value(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.text(crate::telemetry::metrics::Format::OpenMetrics).expect("the metrics are written");
    let line = text.lines().find(|line| line.starts_with(series)).expect("the series is there");
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("it has a value")
}

#[tokio::test(start_paused = true)]
async fn a_standby_queues_nothing_and_its_term_begins_with_the_known_keys() {
    let (controller, context, listing, mut leader_state) = idle();
    let metrics = context.metrics.clone();
    listing.set(State::Listed);
    let _running = tokio::spawn(run(controller.clone(), context));
    for name in ["known", "was-there"] {
        controller.queue.add(ObjectKey::new("default", name), "test");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(value(&metrics, "workqueue_adds_total"), 0.0);
    leader_state.begin(None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(value(&metrics, "workqueue_adds_total"), 1.0);
    assert_eq!(value(&metrics, "workqueue_work_duration_seconds_count"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_due_while_all_workers_are_busy_count_as_depth() {
    let (controller, context, listing, mut leader_state) = idle();
    let metrics = context.metrics.clone();
    listing.set(State::Listed);
    leader_state.begin(None);
    let _running = tokio::spawn(run(controller.clone(), context));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (namespace, name) in [("default", "rests"), ("default", "hangs"), ("other", "hangs-too")] {
        controller.queue.add(ObjectKey::new(namespace, name), "test");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(value(&metrics, "workqueue_depth"), 0.0);
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert_eq!(value(&metrics, "workqueue_depth"), 1.0, "the third key is due for a resync");
}

#[tokio::test(start_paused = true)]
async fn one_namespace_leaves_room_for_another() {
    let (controller, context, listing, mut leader_state) = idle();
    let metrics = context.metrics.clone();
    listing.set(State::Listed);
    leader_state.begin(None);
    let _running = tokio::spawn(run(controller.clone(), context));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let done = || value(&metrics, "workqueue_work_duration_seconds_count");
    let before = done();
    for (namespace, name) in [("default", "hangs"), ("default", "hangs-too"), ("other", "rests")] {
        controller.queue.add(ObjectKey::new(namespace, name), "test");
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(done() - before, 1.0);
    assert_eq!(value(&metrics, "controller_runtime_active_workers"), 1.0, "one of two workers stays free");
    assert_eq!(value(&metrics, "workqueue_depth"), 1.0);
}

#[test]
fn the_next_step_determines_the_outcome() {
    let now = Timestamp::UNIX_EPOCH;
    let later = now + SignedDuration::from_secs(1);
    for (next, expected) in [
        (Next::Resync, Outcome::SUCCESS),
        (Next::Never, Outcome::SUCCESS),
        (Next::At(now), Outcome::REQUEUE),
        (Next::At(later), Outcome::REQUEUE_AFTER),
        (Next::Retry(later), Outcome::ERROR),
        (Next::Retry(now), Outcome::ERROR),
    ] {
        assert_eq!(next.outcome(now, now).0, expected, "{next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn resyncs_of_objects_at_rest_are_jittered() {
    let (controller, context, listing, mut leader_state) = idle_in(leadership::env::testing::virtual_env_of(0.5));
    let metrics = context.metrics.clone();
    listing.set(State::Listed);
    leader_state.begin(None);
    let _running = tokio::spawn(run(controller.clone(), context));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reconciles = || value(&metrics, "workqueue_work_duration_seconds_count");
    let before = reconciles();
    controller.queue.add(ObjectKey::new("default", "rests"), "test");
    for (seconds, expected) in [(1, 1.0), (657, 1.0), (4, 2.0)] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(reconciles() - before, expected, "after 600 s, and half of a fifth of that");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_reconciles_up_to_a_limit() {
    let (controller, context, listing, mut leader_state) = idle();
    let stop = context.stop.clone();
    listing.set(State::Listed);
    leader_state.begin(None);
    let running = tokio::spawn(run(controller.clone(), context));
    tokio::time::sleep(Duration::from_secs(1)).await;
    controller.queue.add(ObjectKey::new("default", "hangs"), "test");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stopped = tokio::time::Instant::now();
    stop.cancel();
    running.await.expect("the controller ends");
    assert_eq!(stopped.elapsed(), DRAIN);
}
