//! Controls faults and watches, and queries the log, the history and the promises. Changes no object.

use std::sync::atomic::{AtomicUsize, Ordering};

use rand::RngExt;
use tokio::sync::Semaphore;

use super::*;

/// A fault rule that a test added. It stays in force until it is removed.
pub struct FaultRule {
    server: ApiServer,
    rule: Arc<Rule>,
}

impl FaultRule {
    pub fn hits(&self) -> usize {
        self.rule.hits.load(Ordering::Relaxed)
    }

    /// Whether the rule has not been removed.
    pub fn is_in_force(&self) -> bool {
        self.server.with(|state| state.faults.iter().any(|rule| Arc::ptr_eq(rule, &self.rule)))
    }

    pub async fn wait_for_hits(&self, count: usize) {
        self.server.wait_until(|_| self.hits() >= count, Duration::from_secs(600)).await;
    }

    /// Releases all held requests, and removes the rule.
    pub fn release(self) {
        self.rule.gate.close();
        self.remove();
    }

    /// Removes the rule. Held requests stay held.
    pub fn remove(self) {
        self.server.with(|state| state.faults.retain(|rule| !Arc::ptr_eq(rule, &self.rule)));
    }
}

/// Open and future watches, narrowed by [`WatchControl::of`] and [`WatchControl::on`].
#[derive(Clone)]
pub struct WatchControl {
    server: ApiServer,
    scope: WatchScope,
}

impl WatchControl {
    pub fn of(mut self, instance: &str) -> Self {
        self.scope.instance = Some(instance.to_owned());
        self
    }

    /// Only those on this resource, by its plural name.
    pub fn on(mut self, plural: &str) -> Self {
        self.scope.plural = Some(plural.to_owned());
        self
    }

    /// Holds events back until [`WatchControl::release`], also on watches that open later.
    pub fn hold(&self) {
        self.mode(WatchMode::Hold);
    }

    pub fn delay(&self, by: Duration) {
        self.mode(WatchMode::Delay(by));
    }

    /// Makes the connections half-open: they deliver nothing more and do not end, not even when the fault is released.
    /// A watch that opens before the release becomes half-open with its first event.
    pub fn stall(&self) {
        self.mode(WatchMode::Stall);
    }

    /// Ends holds, delays and stalls of exactly this scope, and delivers held events. Half-open watches stay so.
    pub fn release(&self) {
        self.server.with(|state| {
            state.watches.modes.retain(|mode| mode.scope != self.scope);
            state.apply_watch_modes(&self.scope);
        });
    }

    fn mode(&self, mode: WatchMode) {
        self.server.with(|state| {
            let (scope, action) = (self.scope.clone(), state.coverage.place_fault());
            state.watches.modes.push(ModeInForce { scope, mode, action });
            state.apply_watch_modes(&self.scope);
        });
    }

    /// Ends the open watches like a timeout.
    pub fn end(&self) {
        self.to_open(|watcher| watcher.deliver(Delivery::End));
    }

    pub fn cut(&self) {
        self.to_open(|watcher| watcher.deliver(Delivery::Cut));
    }

    pub fn replay(&self, count: usize) {
        self.to_open(|watcher| watcher.replay(count));
    }

    /// Answers the open watches with 410 Gone.
    pub fn gone(&self) {
        self.to_open(Watcher::expire);
    }

    fn to_open(&self, act: impl Fn(&Watcher)) {
        self.server.with(|state| {
            let action = state.coverage.place_fault();
            let mut is_any = false;
            for (_, watcher) in state.watches_in(&self.scope) {
                act(watcher);
                is_any = true;
            }
            if is_any {
                state.coverage.hit(action);
            }
        });
    }

    pub fn count(&self) -> usize {
        self.server.with(|state| state.watches_in(&self.scope).count())
    }
}

impl ApiServer {
    pub fn fault(&self, requests: Requests, fault: Fault) -> FaultRule {
        let rule = self.with(|state| {
            let (hits, gate, action) = (AtomicUsize::new(0), Semaphore::new(0), state.coverage.place_fault());
            let rule = Arc::new(Rule { requests, fault, hits, gate, action });
            state.faults.push(Arc::clone(&rule));
            rule
        });
        FaultRule { server: self.clone(), rule }
    }

    pub fn watches(&self) -> WatchControl {
        WatchControl { server: self.clone(), scope: WatchScope::default() }
    }

    /// Makes a client's requests fail until the returned rule is removed, and its watches stall until [`ApiServer::heal`].
    pub fn partition(&self, instance: &str) -> FaultRule {
        self.watches().of(instance).stall();
        self.fault(Requests::all().from(instance), Fault::CutBefore)
    }

    /// Ends all faults of requests and watches, and releases held requests and events.
    pub fn heal(&self) {
        self.become_reachable();
        self.with(|state| {
            state.faults.drain(..).for_each(|rule| rule.gate.close());
            state.watches.modes.clear();
            state.apply_watch_modes(&WatchScope::default());
        });
    }

    /// Takes the quorum from the store: reads and writes wait, and watches are silent.
    pub fn lose_quorum(&self) {
        self.with(|state| state.quorum = Quorum(Some((state.coverage.place_fault(), Vec::new()))));
    }

    /// Restores the quorum. A random number of the first queued writes takes effect, in order, even if their clients
    /// gave up. The other writes are lost. Then the reads are answered.
    pub fn regain_quorum(&self) {
        let Some((_, pending)) = self.with(|state| state.quorum.0.take()) else { return };
        let (writes, reads): (Vec<_>, Vec<_>) = pending.into_iter().partition(|waits| waits.request.verb.mutates());
        let kept = self.with(|state| state.random.random_range(0..=writes.len()));
        let reads = reads.into_iter().filter(|waits| !waits.answer.is_closed());
        for Pending { id, request, answer } in writes.into_iter().take(kept).chain(reads) {
            drop(answer.send(self.execute(id, &request)));
        }
        self.with(|state| state.jobs.wake.notify_one());
    }

    pub fn settings(&self, change: impl FnOnce(&mut Settings)) {
        self.with(|state| change(&mut state.settings));
    }

    pub fn requests(&self, which: &Requests) -> Vec<LoggedRequest> {
        self.with(|state| {
            let entries = state.log.iter();
            entries.filter(|entry| which.matches(&entry.request)).cloned().collect()
        })
    }

    /// How many matching requests arrived.
    pub fn count(&self, which: &Requests) -> usize {
        self.requests(which).len()
    }

    /// How many matching requests were executed successfully.
    pub fn effects(&self, which: &Requests) -> usize {
        self.requests(which).iter().filter(|entry| entry.took_effect()).count()
    }

    /// Requests other than watches since an [`ApiServer::mark`]. A controller at rest sends none.
    pub fn requests_since(&self, mark: usize) -> Vec<LoggedRequest> {
        let all = self.requests(&Requests::all());
        all.into_iter().skip(mark).filter(|entry| entry.request.verb != Verb::Watch).collect()
    }

    /// The current end of the log.
    pub fn mark(&self) -> usize {
        self.with(|state| state.log.len())
    }

    /// What broke a promise so far. Only what comes later makes the test fail.
    pub fn violations(&self) -> Vec<String> {
        self.with(|state| {
            state.observers.expected = state.observers.violations.len();
            state.observers.violations.clone()
        })
    }

    pub fn first_violation(&self) -> Option<String> {
        self.violations().into_iter().next()
    }

    /// Whether a promise was broken, in these words, perhaps among others.
    pub fn has_also_broken(&self, words: &str) -> bool {
        self.violations().iter().any(|violation| violation.contains(words))
    }

    /// Whether a promise was broken, in these words. Other violations still make the test fail.
    pub fn has_broken(&self, words: &str) -> bool {
        let is_it = |violation: &mut String| violation.contains(words);
        self.with(|state| {
            state.observers.expected = 0;
            state.observers.violations.extract_if(.., is_it).count() > 0
        })
    }
}
