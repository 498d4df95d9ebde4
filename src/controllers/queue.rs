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
use crate::env::Env;

/// Why a key is in the queue.
pub type Trigger = &'static str;

/// A queue of keys.
#[derive(Debug)]
pub struct Queue {
    env: Env,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Keys that wait, in order, each with what brought it here.
    ready: VecDeque<ObjectKey>,
    triggers: HashMap<ObjectKey, Trigger>,
    /// Keys that are being reconciled.
    active: BTreeSet<ObjectKey>,
    alarms: BTreeSet<(Timestamp, ObjectKey)>,
    alarm_of: BTreeMap<ObjectKey, Timestamp>,
}

impl Queue {
    /// An empty queue.
    pub fn new(env: Env) -> Self {
        Queue { env, state: Mutex::default(), changed: Notify::new() }
    }

    /// Queues a key, unless it waits already. A key that is being reconciled is reconciled once more afterwards.
    pub fn add(&self, key: ObjectKey, trigger: Trigger) {
        self.lock().add(key, trigger);
        self.changed.notify_one();
    }

    /// The next key and what woke it, as soon as there is one.
    pub async fn next(&self) -> (ObjectKey, Trigger) {
        loop {
            let changed = self.changed.notified();
            let alarm = {
                let mut state = self.lock();
                state.ring(self.env.now());
                if let Some(next) = state.pop() {
                    return next;
                }
                state.alarms.first().map(|(when, _)| *when)
            };
            match alarm {
                Some(when) => {
                    tokio::select! {
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
        self.lock().done(key, wake);
        self.changed.notify_one();
    }

    /// How many keys wait.
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: ObjectKey, trigger: Trigger) {
        if self.triggers.contains_key(&key) {
            return;
        }
        self.triggers.insert(key.clone(), trigger);
        if !self.active.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Queues the keys whose alarm is due.
    fn ring(&mut self, now: Timestamp) {
        while self.alarms.first().is_some_and(|(when, _)| *when <= now) {
            if let Some((_, key)) = self.alarms.pop_first() {
                self.alarm_of.remove(&key);
                self.add(key, "alarm");
            }
        }
    }

    fn pop(&mut self) -> Option<(ObjectKey, Trigger)> {
        let key = self.ready.pop_front()?;
        let trigger = self.triggers.remove(&key).unwrap_or("unknown");
        self.active.insert(key.clone());
        Some((key, trigger))
    }

    fn done(&mut self, key: &ObjectKey, wake: Option<Timestamp>) {
        self.active.remove(key);
        if self.triggers.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        if let Some(when) = self.alarm_of.remove(key) {
            self.alarms.remove(&(when, key.clone()));
        }
        if let Some(when) = wake {
            self.alarm_of.insert(key.clone(), when);
            self.alarms.insert((when, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::testing::virtual_env;
    use jiff::SignedDuration;
    use tokio_test::{assert_pending, assert_ready, task};

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once() {
        let queue = Queue::new(virtual_env());
        queue.add(key("a"), "spec");
        queue.add(key("a"), "pod");
        assert_eq!(queue.next().await, (key("a"), "spec"));
        assert_pending!(task::spawn(queue.next()).poll());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_handed_out_twice_at_once() {
        let queue = Queue::new(virtual_env());
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
        let queue = Queue::new(env.clone());
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
        assert_eq!(queue.depth(), 0);
    }
}
