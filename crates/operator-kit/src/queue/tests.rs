//! When keys are handed out, and which triggers wake them.

use super::*;
use crate::telemetry::metrics::{Format, Metrics};
use jiff::SignedDuration;
use leadership::env::testing::virtual_env;
use tokio_test::{assert_pending, assert_ready, task};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A queue that is not open yet.
fn closed() -> (Queue, Metrics) {
    let metrics = Metrics::new(virtual_env());
    (Queue::new(virtual_env(), metrics.controller("test").queue), metrics)
}

fn queue() -> (Queue, Metrics) {
    let (queue, metrics) = closed();
    queue.open(64);
    (queue, metrics)
}

#[tokio::test(start_paused = true)]
async fn a_key_is_queued_once() {
    let (queue, _) = queue();
    queue.add(key("a"), "spec");
    queue.add(key("a"), "pod");
    assert_eq!(queue.next().await, (key("a"), "spec"));
    assert_pending!(task::spawn(queue.next()).poll());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_handed_out_twice_at_once() {
    let (queue, _) = queue();
    queue.add(key("a"), "spec");
    queue.next().await;
    queue.add(key("a"), "pod");
    assert_pending!(task::spawn(queue.next()).poll());
    queue.done(&key("a"), None);
    assert_eq!(assert_ready!(task::spawn(queue.next()).poll()), (key("a"), "pod"));
}

/// The trigger of the next key, and after how many milliseconds it comes.
async fn woken(queue: &Queue, env: &Env) -> (Trigger, i128) {
    let from = env.now();
    let (_, trigger) = queue.next().await;
    (trigger, env.now().duration_since(from).as_millis())
}

#[tokio::test(start_paused = true)]
async fn paced_keys_are_batched() {
    let env = virtual_env();
    let (queue, _) = queue();
    let far = env.now() + SignedDuration::from_mins(1);
    let next = || woken(&queue, &env);
    queue.add_paced(key("a"), "pod");
    assert_eq!(next().await, ("pod", 0), "at once after a pause");
    queue.add_paced(key("a"), "pod");
    queue.add_paced(key("a"), "pod");
    queue.done(&key("a"), Some((far, RESYNC)));
    assert_eq!(next().await, ("pod", 1000), "changes during the reconcile");
    queue.done(&key("a"), Some((far, RESYNC)));
    tokio::time::advance(std::time::Duration::from_millis(40)).await;
    queue.add_paced(key("a"), "pod");
    queue.add_paced(key("a"), "pod");
    assert_eq!(next().await, ("pod", 960), "changes right after it");
    queue.done(&key("a"), Some((far, RESYNC)));
    queue.add_paced(key("a"), "pod");
    queue.add(key("a"), "spec");
    assert_eq!(next().await, ("spec", 0), "an urgent trigger includes the paced ones");
    queue.done(&key("a"), Some((env.now() + SignedDuration::from_millis(10), ALARM)));
    queue.add_paced(key("a"), "pod");
    assert_eq!(next().await, ("alarm", 10), "an earlier alarm stays");
    queue.done(&key("a"), Some((far, RESYNC)));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    queue.add_paced(key("a"), "pod");
    assert_eq!(next().await, ("pod", 0));
    queue.done(&key("a"), None);
    assert_pending!(task::spawn(queue.next()).poll());
}

#[tokio::test(start_paused = true)]
async fn the_last_alarm_counts() {
    let env = virtual_env();
    let (queue, _) = queue();
    let start = env.now();
    for seconds in [50, 5] {
        queue.add(key("a"), "spec");
        queue.next().await;
        queue.done(&key("a"), Some((env.now() + SignedDuration::from_secs(seconds), ALARM)));
    }
    assert_eq!(queue.next().await, (key("a"), "alarm"));
    assert_eq!(env.now().duration_since(start).as_secs(), 5);
    queue.done(&key("a"), None);
    assert_pending!(task::spawn(queue.next()).poll());
}

#[tokio::test(start_paused = true)]
async fn a_key_at_rest_is_woken_by_a_resync() {
    let env = virtual_env();
    let (queue, _) = queue();
    queue.add(key("a"), "spec");
    queue.next().await;
    queue.done(&key("a"), Some((env.now() + SignedDuration::from_secs(5), RESYNC)));
    assert_eq!(queue.next().await, (key("a"), RESYNC));
}

#[tokio::test(start_paused = true)]
async fn waiting_and_work_are_measured() {
    let (queue, metrics) = queue();
    let pass = |seconds| tokio::time::advance(std::time::Duration::from_secs(seconds));
    assert_pending!(task::spawn(queue.next()).poll());
    queue.add(key("a"), "spec");
    queue.add(key("a"), "pod");
    pass(2).await;
    queue.next().await;
    queue.add(key("a"), "pod");
    pass(5).await;
    queue.done(&key("a"), Some((Timestamp::MAX, RETRY)));

    measures(
        &metrics,
        &[
            ("adds_total", "2"),
            ("depth", "1"),
            ("retries_total", "1"),
            ("queue_duration_seconds_sum", "2.0"),
            ("queue_duration_seconds_count", "1"),
            ("work_duration_seconds_sum", "5.0"),
            ("work_duration_seconds_count", "1"),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_keeps_nothing() {
    let (queue, metrics) = closed();
    for name in ["gone", "too", "stays"] {
        queue.add(key(name), "spec");
        queue.add_paced(key(name), "pod");
    }
    tokio::time::advance(std::time::Duration::from_secs(1000)).await;
    assert_pending!(task::spawn(queue.next()).poll());
    measures(&metrics, &[("depth", "0"), ("adds_total", "0")]);
    queue.open(64);
    assert_pending!(task::spawn(queue.next()).poll(), "no key was kept");
    queue.add(key("new"), "spec");
    for name in ["new", "stays"] {
        queue.add(key(name), "term");
    }
    measures(&metrics, &[("depth", "2"), ("adds_total", "2")]);
    assert_eq!(queue.next().await, (key("new"), "spec"));
    assert_eq!(queue.next().await, (key("stays"), "term"));
    let waits = [("queue_duration_seconds_sum", "0.0"), ("queue_duration_seconds_count", "2")];
    measures(&metrics, &waits);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_due_waits_for_a_place() {
    let env = virtual_env();
    let (queue, metrics) = closed();
    queue.open(1);
    let pass = |seconds| tokio::time::advance(std::time::Duration::from_secs(seconds));
    queue.add(key("a"), "spec");
    queue.next().await;
    queue.done(&key("a"), Some((env.now() + SignedDuration::from_secs(5), RESYNC)));
    queue.add(key("busy"), "spec");
    queue.next().await;
    let mut next = task::spawn(queue.next());
    assert_pending!(next.poll());
    measures(&metrics, &[("depth", "0")]);
    pass(6).await;
    assert_pending!(next.poll());
    measures(&metrics, &[("depth", "1")]);
    pass(2).await;
    queue.done(&key("busy"), None);
    assert!(next.is_woken());
    assert_eq!(assert_ready!(next.poll()), (key("a"), RESYNC));
    let waits = [("depth", "0"), ("queue_duration_seconds_sum", "3.0"), ("queue_duration_seconds_count", "3")];
    measures(&metrics, &waits);
}

/// The keys that are handed out, in this order, until no more are.
fn handed_out(queue: &Queue) -> Vec<String> {
    let next = || match task::spawn(queue.next()).poll() {
        std::task::Poll::Ready((key, _)) => Some(key.to_string()),
        std::task::Poll::Pending => None,
    };
    std::iter::from_fn(next).collect()
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_and_share_the_places() {
    let (queue, _) = closed();
    queue.open(16);
    for name in 0..1000 {
        queue.add(ObjectKey::new("busy", name.to_string()), "spec");
    }
    assert_eq!(handed_out(&queue).len(), 12);
    queue.add(ObjectKey::new("other", "a"), "spec");
    queue.add(ObjectKey::new("other", "b"), "spec");
    assert_eq!(handed_out(&queue), ["other/a", "other/b"]);
    for (name, next) in [("0", &[][..]), ("1", &[]), ("2", &["busy/12"])] {
        queue.done(&ObjectKey::new("busy", name), None);
        assert_eq!(handed_out(&queue), next, "busy holds three times what it leaves free");
    }
}

#[tokio::test(start_paused = true)]
async fn one_place_goes_to_every_namespace_in_turn() {
    let (queue, _) = closed();
    queue.open(1);
    for name in ["a", "b"] {
        queue.add(ObjectKey::new("busy", name), "spec");
    }
    queue.add(ObjectKey::new("other", "a"), "spec");
    for expected in ["busy/a", "other/a", "busy/b"] {
        assert_eq!(handed_out(&queue), [expected]);
        let (namespace, name) = expected.split_once('/').unwrap();
        queue.done(&ObjectKey::new(namespace, name), None);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_failed_wait_behind_the_others_of_their_namespace() {
    let env = virtual_env();
    let (queue, _) = queue();
    for name in ["fails", "too", "waits"] {
        queue.add(key(name), "spec");
        queue.next().await;
    }
    let soon = env.now() + SignedDuration::from_secs(1);
    queue.done(&key("fails"), Some((soon, RETRY)));
    queue.done(&key("too"), Some((soon, RETRY)));
    queue.done(&key("waits"), Some((soon + SignedDuration::from_millis(1), ALARM)));
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    queue.add(key("new"), "spec");
    assert_eq!(handed_out(&queue), ["default/new", "default/waits", "default/fails", "default/too"]);
    queue.done(&key("fails"), Some((soon, RETRY)));
    queue.add(key("fails"), "spec");
    queue.done(&key("too"), Some((soon, RETRY)));
    assert_eq!(handed_out(&queue), ["default/fails", "default/too"], "a new spec counts as new");
}

#[tokio::test(start_paused = true)]
async fn news_of_a_key_that_failed_ends_its_wait_behind_the_others() {
    for add in [Queue::add, Queue::add_paced] {
        let env = virtual_env();
        let (queue, _) = closed();
        queue.open(1);
        for name in ["fails", "too"] {
            queue.add(key(name), SPEC);
            queue.next().await;
            queue.done(&key(name), Some((env.now() + SignedDuration::from_secs(1), RETRY)));
        }
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        queue.add(key("busy"), SPEC);
        assert_eq!(queue.next().await, (key("busy"), SPEC));
        queue.add(key("too"), RETRY);
        add(&queue, key("too"), POD);
        queue.add(key("new"), SPEC);
        let mut last = key("busy");
        for (name, trigger) in [("too", POD), ("new", SPEC), ("fails", RETRY)] {
            queue.done(&last, None);
            last = key(name);
            assert_eq!(assert_ready!(task::spawn(queue.next()).poll()), (key(name), trigger));
        }
        queue.done(&last, None);
        assert_pending!(task::spawn(queue.next()).poll(), "no key is handed out twice");
    }
}

/// A queue with one place, which the key `a` holds while `b` and `c` wait. And an alarm for a report, in 60 seconds.
async fn with_a_report() -> (Queue, Option<(Timestamp, Trigger)>) {
    let (queue, _) = closed();
    queue.open(1);
    for name in ["a", "b", "c"] {
        queue.add(key(name), SPEC);
    }
    assert_eq!(queue.next().await, (key("a"), SPEC));
    (queue, Some((virtual_env().now() + SignedDuration::from_secs(60), REPORT)))
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_report_left_comes_first_whatever_wakes_it() {
    let (queue, report) = with_a_report().await;
    queue.done(&key("a"), report);
    assert_eq!(queue.next().await, (key("b"), SPEC));
    queue.add(key("a"), POD);
    queue.done(&key("b"), None);
    assert_eq!(queue.next().await, (key("a"), POD));
    queue.add(key("a"), SPEC);
    queue.done(&key("a"), report);
    assert_eq!(queue.next().await, (key("a"), SPEC));
    queue.done(&key("a"), None);
    assert_eq!(queue.next().await, (key("c"), SPEC));
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_report_left_comes_first_after_a_paced_trigger() {
    for is_active in [true, false] {
        let (queue, report) = with_a_report().await;
        if is_active {
            queue.add_paced(key("a"), POD);
        }
        queue.done(&key("a"), report);
        assert_eq!(queue.next().await, (key("b"), SPEC));
        queue.add_paced(key("a"), POD);
        tokio::time::advance(PACE.unsigned_abs()).await;
        queue.done(&key("b"), None);
        assert_eq!(queue.next().await, (key("a"), POD));
    }
}

#[tokio::test(start_paused = true)]
async fn time_being_reconciled_does_not_count_as_waiting() {
    let env = virtual_env();
    let (queue, metrics) = queue();
    queue.add(key("a"), "spec");
    queue.next().await;
    let due = env.now();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    queue.done(&key("a"), Some((due, ALARM)));
    assert_eq!(queue.next().await, (key("a"), "alarm"));
    measures(&metrics, &[("queue_duration_seconds_sum", "0.0"), ("queue_duration_seconds_count", "2")]);
}

fn measures(metrics: &Metrics, expected: &[(&str, &str)]) {
    let text = metrics.text(Format::OpenMetrics).unwrap();
    for (figure, expected) in expected {
        let line = text.lines().find(|line| line.starts_with(&format!("workqueue_{figure}{{"))).unwrap();
        assert_eq!(line.rsplit_once(' ').unwrap().1, *expected, "{line}");
    }
}
