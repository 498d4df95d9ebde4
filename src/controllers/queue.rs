//! The work queue of a controller: which objects wait to be reconciled, and until when.
//!
//! A key is queued once however often it is added, is never handed out twice at the same time, and may have one alarm. News
//! that can wait is gathered for [`PACE`]. kube's own scheduler does as much, but shows neither its length nor what woke a key, which the
//! metrics and the traces need.
//!
//! The keys that are handed out hold the places of a [`FairQueue`]: as many as objects may be reconciled at once. Namespaces
//! share them fairly, and keys that failed come last in their namespace.
//!
//! Until it is opened a queue takes nothing: a standby needs no list of what it would look at if it led, for whoever begins to lead
//! looks at every object that there is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, futures::Notified};

use super::ObjectKey;
use crate::{fair::FairQueue, telemetry::metrics::QueueMetrics};
use leadership::env::Env;

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

/// The trigger of a key whose last reconcile failed.
const RETRY: Trigger = "retry";

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
    /// Keys that wait; beside them what brought them here, and when.
    ready: FairQueue<ObjectKey>,
    triggers: HashMap<ObjectKey, (Trigger, Timestamp)>,
    active: BTreeMap<ObjectKey, Active>,
    alarms: BTreeSet<(Timestamp, ObjectKey)>,
    alarm_of: BTreeMap<ObjectKey, Alarm>,
}

/// A key that is being reconciled.
#[derive(Debug)]
struct Active {
    since: Timestamp,
    /// What news has come meanwhile that can wait.
    news: Option<Trigger>,
}

/// When a key that rests is queued again.
#[derive(Debug)]
struct Alarm {
    when: Timestamp,
    trigger: Trigger,
    /// Until when news waits that can.
    quiet_until: Timestamp,
}

impl Queue {
    /// An empty queue, which is measured by `metrics`. It takes nothing before it is opened.
    pub fn new(env: Env, metrics: QueueMetrics) -> Self {
        Queue { env, metrics, state: Mutex::default(), changed: Notify::new() }
    }

    /// From now on keys are queued, and at most `places` of them are handed out at the same time. To miss no object, list the
    /// objects after this and add them.
    pub fn open(&self, places: usize) {
        let mut state = self.lock();
        state.ready.set_places(places);
        state.is_open = true;
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

    /// As [`Queue::add`], for news that can wait until [`PACE`] after the last reconcile of the key.
    pub fn add_paced(&self, key: ObjectKey, trigger: Trigger) {
        let now = self.env.now();
        if self.lock().add_paced(key, trigger, now, &self.metrics) {
            self.changed.notify_one();
        }
    }

    /// The next key and what woke it, as soon as there is one and a place for it. Meanwhile keys are queued when they are due.
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

    /// As [`Queue::done`], for a key that is not due yet.
    pub fn later(&self, key: &ObjectKey, wake: Timestamp) {
        self.metrics.retried();
        self.done(key, Some(wake));
    }

    /// As [`Queue::done`], for a key whose reconcile failed: when it is due, it waits behind the others of its namespace.
    pub fn retry(&self, key: &ObjectKey, wake: Timestamp) {
        self.metrics.retried();
        self.wake(key, Some((wake, RETRY)));
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
            self.line_up(key, trigger);
        }
    }

    fn line_up(&mut self, key: ObjectKey, trigger: Trigger) {
        self.ready.push(&key.namespace.clone(), key, trigger == RETRY);
    }

    /// Returns whether there is something to take, or sooner than before.
    fn add_paced(&mut self, key: ObjectKey, trigger: Trigger, now: Timestamp, metrics: &QueueMetrics) -> bool {
        if self.triggers.contains_key(&key) {
            return false;
        }
        if let Some(active) = self.active.get_mut(&key) {
            active.news.get_or_insert(trigger);
            return false;
        }
        match self.alarm_of.get(&key).map(|alarm| (alarm.when, alarm.quiet_until)).filter(|(_, until)| now < *until) {
            Some((when, until)) if when <= until => return false,
            Some((_, until)) => self.set_alarm(key, Alarm { when: until, trigger, quiet_until: until }),
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
        let (_, key) = self.ready.pop()?;
        let (trigger, added) = self.triggers.remove(&key).unwrap_or(("unknown", now));
        metrics.taken(now, now.duration_since(added));
        self.active.insert(key.clone(), Active { since: now, news: None });
        Some((key, trigger))
    }

    fn done(&mut self, key: &ObjectKey, alarm: Option<(Timestamp, Trigger)>, now: Timestamp, metrics: &QueueMetrics) {
        let quiet_until = now + PACE;
        let mut news = None;
        if let Some(ended) = self.active.remove(key) {
            metrics.done(ended.since, now);
            self.ready.give_back(&key.namespace);
            news = ended.news.map(|trigger| (quiet_until, trigger));
        }
        if let Some((trigger, _)) = self.triggers.get(key) {
            self.line_up(key.clone(), trigger);
        }
        match alarm.into_iter().chain(news).min_by_key(|(when, _)| *when) {
            // What was due before the reconcile had ended has not waited meanwhile.
            Some((when, trigger)) => self.set_alarm(key.clone(), Alarm { when: when.max(now), trigger, quiet_until }),
            None => self.clear_alarm(key),
        }
    }
}

#[cfg(test)]
mod tests;
