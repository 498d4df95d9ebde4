//! The work queue of a controller: which objects wait to be reconciled, and until when.
//!
//! A key is queued once however often it is added, is never handed out twice at the same time, and may have one alarm. News
//! that can wait is gathered ([`PACE`], [`Queue::hush`]). kube's own scheduler does as much, but shows neither its length nor what woke a key,
//! which the metrics and the traces need.
//!
//! Until it is opened a queue takes nothing: a standby needs no list of what it would look at if it led, for whoever begins to lead
//! looks at every object that there is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, futures::Notified};

use super::ObjectKey;
use crate::{env::Env, telemetry::metrics::QueueMetrics};

/// Why a key is in the queue.
pub type Trigger = &'static str;

/// The trigger of a key whose spec is new, or whose object is there, or gone.
pub const SPEC: Trigger = "spec";

/// The trigger of a key whose status somebody else has written.
pub const STATUS: Trigger = "status";

/// The trigger of a key whose pods have changed.
pub const POD: Trigger = "pod";

/// The trigger of every key at the beginning of a term.
pub const TERM: Trigger = "term";

/// The trigger of a key that has waited for a read.
pub const READ: Trigger = "read";

/// The trigger of a key that nothing has woken but time, while it was at rest.
pub const RESYNC: Trigger = "resync";

/// The trigger of a key that had something left to do.
const ALARM: Trigger = "alarm";

/// The least time from one reconcile of an object to the next for news that can wait: an object whose pods become ready one
/// after the other is looked at a few times, not once for each of them.
const PACE: SignedDuration = SignedDuration::from_secs(1);

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
    /// Whether keys are taken. Until then nothing is in here: all begins with a key that was added.
    is_open: bool,
    /// Keys that wait, in order; beside them what brought them here, and when.
    ready: VecDeque<ObjectKey>,
    triggers: HashMap<ObjectKey, (Trigger, Timestamp)>,
    active: BTreeMap<ObjectKey, Active>,
    alarms: BTreeSet<(Timestamp, ObjectKey)>,
    alarm_of: BTreeMap<ObjectKey, Alarm>,
}

/// A key that is being reconciled.
#[derive(Debug)]
struct Active {
    since: Timestamp,
    /// What news has come meanwhile that can wait, and when.
    news: Option<(Trigger, Timestamp)>,
    /// For how long it can wait, if it has been said.
    hush: Option<Hush>,
}

/// For how long news of a key waits that can.
#[derive(Clone, Copy, Debug)]
struct Hush {
    /// Nothing could come of it before.
    until: Timestamp,
    /// More of it may come in this time.
    gather: SignedDuration,
}

impl Hush {
    /// When news is due that came at this time.
    fn due(self, came: Timestamp) -> Timestamp {
        self.until.max(came + self.gather)
    }
}

/// When a key that rests is queued again.
#[derive(Debug)]
struct Alarm {
    when: Timestamp,
    trigger: Trigger,
    /// For how long news waits that can.
    hush: Hush,
}

impl Queue {
    /// An empty queue, which is measured by `metrics`. It takes nothing before it is opened.
    pub fn new(env: Env, metrics: QueueMetrics) -> Self {
        Queue { env, metrics, state: Mutex::default(), changed: Notify::new() }
    }

    /// From now on keys are queued. Whoever lists the objects that there are after this, and adds them, misses none: what was not
    /// taken before is among them.
    pub fn open(&self) {
        self.lock().is_open = true;
    }

    /// Queues a key, unless it waits already. A key that is being reconciled is reconciled once more afterwards. A status that
    /// somebody else wrote can wait.
    pub fn add(&self, key: ObjectKey, trigger: Trigger) {
        if trigger == STATUS {
            return self.add_paced(key, trigger);
        }
        let now = self.env.now();
        self.lock().add(key, trigger, now, &self.metrics);
        self.changed.notify_one();
    }

    /// As [`Queue::add`], for news that can wait: until [`PACE`] after the last reconcile of the key, and as [`Queue::hush`] has it.
    pub fn add_paced(&self, key: ObjectKey, trigger: Trigger) {
        let now = self.env.now();
        if self.lock().add_paced(key, trigger, now, &self.metrics) {
            self.changed.notify_one();
        }
    }

    /// After the reconcile that is under way, news that can wait shall not wake the key before `until`: nothing could come of it. Nor
    /// before it is as old as `gather`: more is expected.
    pub fn hush(&self, key: &ObjectKey, until: Timestamp, gather: SignedDuration) {
        if let Some(active) = self.lock().active.get_mut(key) {
            active.hush = Some(Hush { until, gather });
        }
    }

    /// The next key and what woke it, as soon as there is one.
    pub async fn next(&self) -> (ObjectKey, Trigger) {
        loop {
            let changed = self.changed.notified();
            let alarm = {
                let now = self.env.now();
                let mut state = self.lock();
                let alarm = state.ring(now, &self.metrics);
                if let Some(next) = state.pop(now, &self.metrics) {
                    return next;
                }
                alarm
            };
            self.until(alarm, changed).await;
        }
    }

    /// Queues keys when they are due although none is taken, so that it shows that they wait. It never ends.
    pub async fn line_up(&self) {
        loop {
            let changed = self.changed.notified();
            let alarm = self.lock().ring(self.env.now(), &self.metrics);
            self.until(alarm, changed).await;
        }
    }

    /// Waits for the alarm or a change.
    async fn until(&self, alarm: Option<Timestamp>, changed: Notified<'_>) {
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
    /// `since`: from when on it waits.
    fn add(&mut self, key: ObjectKey, trigger: Trigger, since: Timestamp, metrics: &QueueMetrics) {
        if !self.is_open || self.triggers.contains_key(&key) {
            return;
        }
        metrics.added();
        self.triggers.insert(key.clone(), (trigger, since));
        if !self.active.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    /// Returns whether there is something to take, or sooner than before.
    fn add_paced(&mut self, key: ObjectKey, trigger: Trigger, now: Timestamp, metrics: &QueueMetrics) -> bool {
        if self.triggers.contains_key(&key) {
            return false;
        }
        if let Some(active) = self.active.get_mut(&key) {
            active.news.get_or_insert((trigger, now));
            return false;
        }
        let alarm = self.alarm_of.get(&key).map(|alarm| (alarm.hush.due(now), alarm.when, alarm.hush));
        match alarm.filter(|(due, ..)| now < *due) {
            Some((due, when, _)) if when <= due => return false,
            Some((due, _, hush)) => self.set_alarm(key, Alarm { when: due, trigger, hush }),
            None => self.add(key, trigger, now, metrics),
        }
        true
    }

    /// In place of any earlier one.
    fn set_alarm(&mut self, key: ObjectKey, alarm: Alarm) {
        self.clear_alarm(&key);
        self.alarms.insert((alarm.when, key.clone()));
        self.alarm_of.insert(key, alarm);
    }

    fn clear_alarm(&mut self, key: &ObjectKey) {
        if let Some(former) = self.alarm_of.remove(key) {
            self.alarms.remove(&(former.when, key.clone()));
        }
    }

    /// Queues the keys whose alarm is due: since then they wait, whenever that is noticed. Returns when the next one will be.
    fn ring(&mut self, now: Timestamp, metrics: &QueueMetrics) -> Option<Timestamp> {
        while self.alarms.first().is_some_and(|(when, _)| *when <= now) {
            if let Some((when, key)) = self.alarms.pop_first() {
                let trigger = self.alarm_of.remove(&key).map_or(ALARM, |alarm| alarm.trigger);
                self.add(key, trigger, when, metrics);
            }
        }
        self.alarms.first().map(|(when, _)| *when)
    }

    fn pop(&mut self, now: Timestamp, metrics: &QueueMetrics) -> Option<(ObjectKey, Trigger)> {
        let key = self.ready.pop_front()?;
        let (trigger, added) = self.triggers.remove(&key).unwrap_or(("unknown", now));
        metrics.taken(now, now.duration_since(added));
        self.active.insert(key.clone(), Active { since: now, news: None, hush: None });
        Some((key, trigger))
    }

    fn done(&mut self, key: &ObjectKey, alarm: Option<(Timestamp, Trigger)>, now: Timestamp, metrics: &QueueMetrics) {
        let mut hush = Hush { until: now + PACE, gather: SignedDuration::ZERO };
        let mut news = None;
        if let Some(ended) = self.active.remove(key) {
            metrics.done(ended.since, now);
            if let Some(said) = ended.hush {
                hush = Hush { until: said.until.max(hush.until), ..said };
            }
            news = ended.news.map(|(trigger, came)| (hush.due(came), trigger));
        }
        if self.triggers.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        match alarm.into_iter().chain(news).min_by_key(|(when, _)| *when) {
            // What was due before the reconcile had ended has not waited meanwhile.
            Some((when, trigger)) => self.set_alarm(key.clone(), Alarm { when: when.max(now), trigger, hush }),
            None => self.clear_alarm(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::testing::virtual_env;
    use crate::telemetry::metrics::{Format, Metrics};
    use jiff::SignedDuration;
    use tokio_test::{assert_pending, assert_ready, task};

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    /// A queue that is not open yet.
    fn closed() -> (Queue, Metrics) {
        let metrics = Metrics::new(virtual_env());
        (Queue::new(virtual_env(), metrics.queue("test")), metrics)
    }

    fn queue() -> (Queue, Metrics) {
        let (queue, metrics) = closed();
        queue.open();
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

    /// What wakes the next key, and after how many milliseconds.
    async fn woken(queue: &Queue, env: &Env) -> (Trigger, i128) {
        let from = env.now();
        let (_, trigger) = queue.next().await;
        (trigger, env.now().duration_since(from).as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn news_that_can_wait_is_gathered() {
        let env = virtual_env();
        let (queue, _) = queue();
        let far = env.now() + SignedDuration::from_mins(1);
        let next = || woken(&queue, &env);
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("pod", 0), "at once after a rest");
        queue.add_paced(key("a"), "pod");
        queue.add_paced(key("a"), "pod");
        queue.rest(&key("a"), far);
        assert_eq!(next().await, ("pod", 1000), "what came while it was reconciled");
        queue.rest(&key("a"), far);
        tokio::time::advance(std::time::Duration::from_millis(40)).await;
        queue.add_paced(key("a"), "pod");
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("pod", 960), "what came right after");
        queue.rest(&key("a"), far);
        queue.add_paced(key("a"), "pod");
        queue.add(key("a"), "spec");
        assert_eq!(next().await, ("spec", 0), "what cannot wait takes the rest along");
        queue.done(&key("a"), Some(env.now() + SignedDuration::from_millis(10)));
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("alarm", 10), "an earlier alarm stays");
        queue.rest(&key("a"), far);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("pod", 0));
        queue.hush(&key("a"), env.now() + SignedDuration::from_millis(3000), SignedDuration::ZERO);
        queue.add_paced(key("a"), "pod");
        queue.rest(&key("a"), far);
        assert_eq!(next().await, ("pod", 3000), "nothing could come of it before");
        queue.hush(&key("a"), env.now() + SignedDuration::from_millis(3000), SignedDuration::ZERO);
        queue.rest(&key("a"), far);
        queue.add_paced(key("a"), "pod");
        queue.add(key("a"), "spec");
        assert_eq!(next().await, ("spec", 0));
        queue.rest(&key("a"), far);
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("pod", 1000), "it was not said again");
        queue.done(&key("a"), None);
        assert_pending!(task::spawn(queue.next()).poll());
    }

    #[tokio::test(start_paused = true)]
    async fn news_is_as_old_as_it_was_said_to_grow() {
        let env = virtual_env();
        let (queue, _) = queue();
        let far = env.now() + SignedDuration::from_mins(1);
        let next = || woken(&queue, &env);
        queue.add(key("a"), "spec");
        assert_eq!(next().await, ("spec", 0));
        let gather = || queue.hush(&key("a"), env.now() + SignedDuration::from_secs(5), SignedDuration::from_secs(3));
        gather();
        queue.rest(&key("a"), far);
        tokio::time::advance(std::time::Duration::from_secs(4)).await;
        queue.add_paced(key("a"), "pod");
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("pod", 1000), "three seconds after the first of it");
        gather();
        queue.rest(&key("a"), far);
        tokio::time::advance(std::time::Duration::from_secs(9)).await;
        queue.add_paced(key("a"), "pod");
        assert_eq!(next().await, ("pod", 3000), "however long nothing has come");
        gather();
        queue.rest(&key("a"), far);
        tokio::time::advance(std::time::Duration::from_secs(9)).await;
        queue.add_paced(key("a"), "pod");
        queue.add(key("a"), "spec");
        assert_eq!(next().await, ("spec", 0));
        queue.hush(&key("a"), env.now() + SignedDuration::from_secs(4), SignedDuration::from_secs(3));
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        queue.add_paced(key("a"), "pod");
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        queue.rest(&key("a"), far);
        assert_eq!(next().await, ("pod", 2000), "since it came, however long the reconcile took");
        queue.done(&key("a"), None);
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
        let (queue, metrics) = closed();
        for name in ["gone", "too", "stays"] {
            queue.add(key(name), "spec");
            queue.add_paced(key(name), "pod");
        }
        tokio::time::advance(std::time::Duration::from_secs(1000)).await;
        assert_pending!(task::spawn(queue.next()).poll());
        measures(&metrics, &[("depth", "0"), ("adds_total", "0")]);
        queue.open();
        assert_pending!(task::spawn(queue.next()).poll(), "nothing was kept");
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
    async fn what_is_due_waits_although_nobody_takes_it() {
        let env = virtual_env();
        let (queue, metrics) = queue();
        let pass = |seconds| tokio::time::advance(std::time::Duration::from_secs(seconds));
        queue.add(key("a"), "spec");
        queue.next().await;
        let mut line = task::spawn(queue.line_up());
        assert_pending!(line.poll());
        queue.rest(&key("a"), env.now() + SignedDuration::from_secs(5));
        assert_pending!(line.poll());
        measures(&metrics, &[("depth", "0")]);
        pass(6).await;
        assert_pending!(line.poll());
        measures(&metrics, &[("depth", "1")]);
        pass(2).await;
        drop(line);
        assert_eq!(queue.next().await, (key("a"), RESYNC));
        let waits = [("depth", "0"), ("queue_duration_seconds_sum", "3.0"), ("queue_duration_seconds_count", "2")];
        measures(&metrics, &waits);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_due_while_it_was_reconciled_has_not_waited_meanwhile() {
        let env = virtual_env();
        let (queue, metrics) = queue();
        queue.add(key("a"), "spec");
        queue.next().await;
        let due = env.now();
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        queue.done(&key("a"), Some(due));
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
}
