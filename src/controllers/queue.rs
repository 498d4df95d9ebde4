//! The work queue of a controller: which objects wait to be reconciled, and until when.
//!
//! A key is queued once however often it is added, is never handed out twice at the same time, and may have one alarm.
//! kube's own scheduler does as much, but shows neither its length nor what woke a key, which the metrics and the
//! traces need.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::Notify;

use super::ObjectKey;
use crate::{env::Env, telemetry::metrics::QueueMetrics};

/// Why a key is in the queue.
pub type Trigger = &'static str;

/// The trigger of a key that nothing has woken but time, while it was at rest.
pub const RESYNC: Trigger = "resync";

/// The trigger of a key that had something left to do.
const ALARM: Trigger = "alarm";

/// A queue of keys.
#[derive(Debug)]
pub struct Queue {
    env: Env,
    metrics: QueueMetrics,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Whether anybody takes keys out. Until then, in a standby, nothing is measured: what it would look at if it led is no work
    /// that waits, and the time until it leads no delay.
    is_served: bool,
    /// Keys that wait, in order; beside them what brought them here, and when.
    ready: VecDeque<ObjectKey>,
    triggers: HashMap<ObjectKey, (Trigger, Timestamp)>,
    /// Keys that are being reconciled, and since when.
    active: BTreeMap<ObjectKey, Timestamp>,
    alarms: BTreeSet<(Timestamp, ObjectKey)>,
    alarm_of: BTreeMap<ObjectKey, (Timestamp, Trigger)>,
}

impl Queue {
    /// An empty queue, which is measured by `metrics`.
    pub fn new(env: Env, metrics: QueueMetrics) -> Self {
        Queue { env, metrics, state: Mutex::default(), changed: Notify::new() }
    }

    /// Queues a key, unless it waits already. A key that is being reconciled is reconciled once more afterwards.
    pub fn add(&self, key: ObjectKey, trigger: Trigger) {
        let now = self.env.now();
        self.lock().add(key, trigger, now, &self.metrics);
        self.changed.notify_one();
    }

    /// The next key and what woke it, as soon as there is one.
    pub async fn next(&self) -> (ObjectKey, Trigger) {
        loop {
            let changed = self.changed.notified();
            let alarm = {
                let now = self.env.now();
                let mut state = self.lock();
                state.serve(now, &self.metrics);
                state.ring(now, &self.metrics);
                if let Some(next) = state.pop(now, &self.metrics) {
                    return next;
                }
                state.alarms.first().map(|(when, _)| *when)
            };
            match alarm {
                Some(when) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = self.env.sleep_until(when) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// A key was reconciled; it is queued again at `wake`, in place of any earlier alarm.
    pub fn done(&self, key: &ObjectKey, wake: Option<Timestamp>) {
        self.wake(key, wake.map(|when| (when, ALARM)));
    }

    /// A key was reconciled and is at rest; it is looked at again at `resync`, in place of any earlier alarm.
    pub fn rest(&self, key: &ObjectKey, resync: Timestamp) {
        self.wake(key, Some((resync, RESYNC)));
    }

    fn wake(&self, key: &ObjectKey, alarm: Option<(Timestamp, Trigger)>) {
        let now = self.env.now();
        self.lock().done(key, alarm, now, &self.metrics);
        self.changed.notify_one();
    }

    /// As [`Queue::done`], for a key that must be reconciled again later because something failed or is not due yet.
    pub fn retry(&self, key: &ObjectKey, wake: Timestamp) {
        self.metrics.retried();
        self.done(key, Some(wake));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: ObjectKey, trigger: Trigger, now: Timestamp, metrics: &QueueMetrics) {
        if self.triggers.contains_key(&key) {
            return;
        }
        if self.is_served {
            metrics.added();
        }
        self.triggers.insert(key.clone(), (trigger, now));
        if !self.active.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    /// Somebody takes keys out: what is here begins to wait now.
    fn serve(&mut self, now: Timestamp, metrics: &QueueMetrics) {
        if self.is_served {
            return;
        }
        self.is_served = true;
        for (_, added) in self.triggers.values_mut() {
            *added = now;
            metrics.added();
        }
    }

    /// Queues the keys whose alarm is due.
    fn ring(&mut self, now: Timestamp, metrics: &QueueMetrics) {
        while self.alarms.first().is_some_and(|(when, _)| *when <= now) {
            if let Some((_, key)) = self.alarms.pop_first() {
                let (_, trigger) = self.alarm_of.remove(&key).unwrap_or((now, ALARM));
                self.add(key, trigger, now, metrics);
            }
        }
    }

    fn pop(&mut self, now: Timestamp, metrics: &QueueMetrics) -> Option<(ObjectKey, Trigger)> {
        let key = self.ready.pop_front()?;
        let (trigger, added) = self.triggers.remove(&key).unwrap_or(("unknown", now));
        metrics.taken(now, now.duration_since(added));
        self.active.insert(key.clone(), now);
        Some((key, trigger))
    }

    fn done(&mut self, key: &ObjectKey, alarm: Option<(Timestamp, Trigger)>, now: Timestamp, metrics: &QueueMetrics) {
        if let Some(taken) = self.active.remove(key) {
            metrics.done(taken, now);
        }
        if self.triggers.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        if let Some((when, _)) = self.alarm_of.remove(key) {
            self.alarms.remove(&(when, key.clone()));
        }
        if let Some((when, trigger)) = alarm {
            self.alarm_of.insert(key.clone(), (when, trigger));
            self.alarms.insert((when, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::testing::virtual_env;
    use crate::telemetry::metrics::Metrics;
    use jiff::SignedDuration;
    use tokio_test::{assert_pending, assert_ready, task};

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    fn queue() -> (Queue, Metrics) {
        let metrics = Metrics::new(virtual_env());
        (Queue::new(virtual_env(), metrics.queue("test")), metrics)
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

    #[tokio::test(start_paused = true)]
    async fn the_last_alarm_counts() {
        let env = virtual_env();
        let (queue, _) = queue();
        let start = env.now();
        for seconds in [50, 5] {
            queue.add(key("a"), "spec");
            queue.next().await;
            queue.done(&key("a"), Some(env.now() + SignedDuration::from_secs(seconds)));
        }
        assert_eq!(queue.next().await, (key("a"), "alarm"));
        assert_eq!(env.now().duration_since(start).as_secs(), 5);
        queue.done(&key("a"), None);
        assert_pending!(task::spawn(queue.next()).poll());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_at_rest_is_told_from_one_that_has_something_left_to_do() {
        let env = virtual_env();
        let (queue, _) = queue();
        queue.add(key("a"), "spec");
        queue.next().await;
        queue.rest(&key("a"), env.now() + SignedDuration::from_secs(5));
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
        queue.retry(&key("a"), Timestamp::MAX);

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
    async fn in_a_standby_nothing_waits() {
        let (queue, metrics) = queue();
        queue.add(key("a"), "spec");
        queue.add(key("b"), "spec");
        tokio::time::advance(std::time::Duration::from_secs(1000)).await;
        measures(&metrics, &[("depth", "0"), ("adds_total", "0")]);
        queue.next().await;
        let waits = [("queue_duration_seconds_sum", "0.0"), ("queue_duration_seconds_count", "1")];
        measures(&metrics, &waits);
        measures(&metrics, &[("depth", "1"), ("adds_total", "2")]);
    }

    fn measures(metrics: &Metrics, expected: &[(&str, &str)]) {
        let text = metrics.text().unwrap();
        for (figure, expected) in expected {
            let line = text.lines().find(|line| line.starts_with(&format!("workqueue_{figure}{{"))).unwrap();
            assert_eq!(line.rsplit_once(' ').unwrap().1, *expected, "{line}");
        }
    }
}
