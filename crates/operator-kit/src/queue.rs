//! The work queue of a controller.
//!
//! A key is queued once however often it is added, is never handed out twice at the same time, and has at most one alarm. Triggers that can
//! wait are gathered for [`PACE`]. kube's scheduler does this too, but it shows neither its length nor the trigger, which metrics and traces
//! need.
//!
//! Keys that are handed out hold the places of a [`FairQueue`], one for each concurrent reconcile. Namespaces share them fairly. Within
//! a namespace, keys with a waiting report come first, and keys that failed come last.
//!
//! A closed queue takes nothing: a standby needs no list, because a new leader reconciles every object.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::object_key::ObjectKey;
use crate::{
    fair::{FairQueue, Lane},
    lock,
    telemetry::metrics::QueueMetrics,
};
use leadership::env::Env;

/// The reason why a key is in the queue.
pub type Trigger = &'static str;

/// The spec changed, or the object was created or deleted.
pub const SPEC: Trigger = "spec";

/// Someone else wrote the status.
pub const STATUS: Trigger = "status";

/// The pods changed.
pub const POD: Trigger = "pod";

/// A term began, or the first list of a namespace came later.
pub const TERM: Trigger = "term";

/// A read that the key waited for is over.
pub const READ: Trigger = "read";

/// The resync period is over.
pub const RESYNC: Trigger = "resync";

/// The key had work left.
pub const ALARM: Trigger = "alarm";

/// The last reconcile left a report that waits. Whatever the trigger is, the key is handed out before the others of its namespace.
pub const REPORT: Trigger = "report";

/// The last reconcile failed.
pub const RETRY: Trigger = "retry";

/// The least time between two reconciles of an object for triggers that can wait. An object whose pods become ready one after the other is
/// reconciled a few times, not once per pod.
const PACE: SignedDuration = SignedDuration::from_secs(1);

/// A work queue of keys.
#[derive(Debug)]
pub struct Queue {
    env: Env,
    metrics: QueueMetrics,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Keys that wait and are not being reconciled. A closed queue has no places.
    ready: FairQueue<ObjectKey>,
    /// The triggers of the keys that wait, and since when.
    triggers: HashMap<ObjectKey, (Trigger, Timestamp)>,
    active: BTreeMap<ObjectKey, Active>,
    /// The keys with a waiting report.
    reports: BTreeSet<ObjectKey>,
    alarms: BTreeSet<(Timestamp, ObjectKey)>,
    alarm_of: BTreeMap<ObjectKey, Alarm>,
}

/// A key that is being reconciled.
#[derive(Debug)]
struct Active {
    since: Timestamp,
    /// The first trigger since then that can wait.
    news: Option<Trigger>,
}

/// When a key that rests is queued again.
#[derive(Debug)]
struct Alarm {
    when: Timestamp,
    trigger: Trigger,
    /// Before this time, `add_paced` does not queue the key: it brings a later alarm forward to this time.
    quiet_until: Timestamp,
}

impl Queue {
    /// An empty, closed queue.
    pub fn new(env: Env, metrics: QueueMetrics) -> Self {
        Queue { env, metrics, state: Mutex::default(), changed: Notify::new() }
    }

    /// Opens the queue: at most `places` keys are handed out at the same time. List the objects after this, and add them.
    pub fn open(&self, places: usize) {
        lock(&self.state).ready.places = places;
    }

    /// Queues a key, unless it is queued already. A key that is queued because it failed no longer waits behind the others of its
    /// namespace, unless the trigger is [`RETRY`]. A key that is being reconciled is reconciled once more afterwards. [`STATUS`] is paced,
    /// see [`Queue::add_paced`]. A closed queue ignores the call.
    pub fn add(&self, key: ObjectKey, trigger: Trigger) {
        if trigger == STATUS {
            return self.add_paced(key, trigger);
        }
        let now = self.env.now();
        lock(&self.state).add(key, trigger, now, &self.metrics);
        self.changed.notify_one();
    }

    /// As [`Queue::add`], for a trigger that can wait until [`PACE`] after the last reconcile of the key.
    pub fn add_paced(&self, key: ObjectKey, trigger: Trigger) {
        let now = self.env.now();
        if lock(&self.state).add_paced(key, trigger, now, &self.metrics) {
            self.changed.notify_one();
        }
    }

    /// Queues the keys of this namespace that have a waiting report.
    pub fn add_reports(&self, namespace: &Arc<str>) {
        let now = self.env.now();
        let mut state = lock(&self.state);
        let from_first = state.reports.range(ObjectKey::new(namespace.clone(), "")..);
        let waiting: Vec<_> = from_first.take_while(|key| key.namespace == *namespace).cloned().collect();
        for key in waiting {
            state.add(key, REPORT, now, &self.metrics);
        }
        self.changed.notify_one();
    }

    /// Waits for a key and a place for it. Returns the key and its trigger. While it waits, it queues the keys whose alarm is due.
    pub async fn next(&self) -> (ObjectKey, Trigger) {
        loop {
            let (changed, now) = (self.changed.notified(), self.env.now());
            let alarm = {
                let mut state = lock(&self.state);
                let alarm = state.ring(now, &self.metrics);
                if let Some(next) = state.pop(now, &self.metrics) {
                    return next;
                }
                alarm
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = self.env.sleep_until(alarm.unwrap_or(now)), if alarm.is_some() => {}
            }
        }
    }

    /// A key was reconciled. It is queued again at this time and for this reason, or earlier for a trigger that came meanwhile. A key whose
    /// report waits ([`REPORT`]) then comes before the others of its namespace, and a key that failed ([`RETRY`]) after them.
    pub fn done(&self, key: &ObjectKey, wake: Option<(Timestamp, Trigger)>) {
        let now = self.env.now();
        if wake.is_some_and(|(when, trigger)| trigger != RESYNC && when > now) {
            self.metrics.retried();
        }
        lock(&self.state).done(key, wake, now, &self.metrics);
        self.changed.notify_one();
    }
}

impl State {
    /// Adds a key that waits since `since`.
    fn add(&mut self, key: ObjectKey, trigger: Trigger, since: Timestamp, metrics: &QueueMetrics) {
        if self.ready.places == 0 {
            return;
        }
        if let Some((waiting, _)) = self.triggers.get_mut(&key) {
            // Something has changed, so the next reconcile may succeed: it need not wait behind the others.
            if *waiting == RETRY && trigger != RETRY {
                *waiting = trigger;
                self.ready.promote(&key.namespace, &key);
            }
            return;
        }
        metrics.added();
        self.triggers.insert(key.clone(), (trigger, since));
        if !self.active.contains_key(&key) {
            self.line_up(key, trigger);
        }
    }

    fn line_up(&mut self, key: ObjectKey, trigger: Trigger) {
        let lane = match trigger {
            _ if self.reports.contains(&key) => Lane::First,
            RETRY => Lane::Retry,
            _ => Lane::Ordinary,
        };
        self.ready.push(&key.namespace.clone(), key, lane);
    }

    /// Returns whether a key may be due earlier than before.
    fn add_paced(&mut self, key: ObjectKey, trigger: Trigger, now: Timestamp, metrics: &QueueMetrics) -> bool {
        if self.triggers.contains_key(&key) {
            self.add(key, trigger, now, metrics);
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

    /// Queues the keys whose alarm is due. They wait since the alarm. Returns the time of the next alarm.
    fn ring(&mut self, now: Timestamp, metrics: &QueueMetrics) -> Option<Timestamp> {
        while self.alarms.first().is_some_and(|(when, _)| *when <= now)
            && let Some((when, key)) = self.alarms.pop_first()
        {
            let trigger = self.alarm_of.remove(&key).map_or(ALARM, |alarm| alarm.trigger);
            self.add(key, trigger, when, metrics);
        }
        self.alarms.first().map(|(when, _)| *when)
    }

    fn pop(&mut self, now: Timestamp, metrics: &QueueMetrics) -> Option<(ObjectKey, Trigger)> {
        let (_, key) = self.ready.pop()?;
        self.clear_alarm(&key); // `done` sets the next one
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
            self.ready.give_back(&key.namespace, 1);
            news = ended.news.map(|trigger| (quiet_until, trigger));
        }
        match alarm {
            Some((_, REPORT)) => self.reports.insert(key.clone()),
            _ => self.reports.remove(key),
        };
        if let Some((when, trigger)) = alarm.into_iter().chain(news).min_by_key(|(when, _)| *when) {
            // An alarm that was due before the reconcile ended has not waited meanwhile.
            self.set_alarm(key.clone(), Alarm { when: when.max(now), trigger, quiet_until });
        }
        if let Some((trigger, _)) = self.triggers.get(key) {
            self.line_up(key.clone(), trigger);
        }
    }
}

#[cfg(test)]
mod tests;
