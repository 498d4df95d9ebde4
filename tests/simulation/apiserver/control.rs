//! What a test may switch, and what it may ask about the run: faults, watches, the log, the history
//! and the promise. No object is changed here.

use std::time::Duration;

use super::{
    ApiServer,
    faults::{Fault, WatchMode, WatchScope},
    ice::Ice,
    log::LoggedRequest,
    request::Verb,
    select::Requests,
    settings::Settings,
    store::{Change, State},
    watch::{Delivery, ModeInForce},
};

/// A fault rule that was added; it stays in force until it is removed.
pub struct FaultRule {
    server: ApiServer,
    id: u64,
}

impl FaultRule {
    pub fn hits(&self) -> usize {
        self.server.with(|state| state.faults.hits(self.id)).unwrap_or(0)
    }

    /// Whether nobody has removed it.
    pub fn is_in_force(&self) -> bool {
        self.server.with(|state| state.faults.hits(self.id)).is_some()
    }

    /// Waits until it has met `count` requests.
    pub async fn met(&self, count: usize) {
        self.server.wait_until(|_| self.hits() >= count, Duration::from_secs(600)).await;
    }

    /// Lets all held requests go on, and removes the rule.
    pub fn release(self) {
        self.server.with(|state| state.faults.release(self.id));
    }

    /// Removes the rule; what it holds stays held.
    pub fn remove(self) {
        self.server.with(|state| state.faults.remove(self.id));
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

    /// Keeps events back until [`WatchControl::release`]; watches that open meanwhile lag as well.
    pub fn hold(&self) {
        self.mode(WatchMode::Hold);
    }

    pub fn delay(&self, by: Duration) {
        self.mode(WatchMode::Delay(by));
    }

    /// Makes the connections half-open: they deliver nothing any more and do not end, not even when the fault is released. A watch that opens
    /// before the release becomes half-open with its first event.
    pub fn stall(&self) {
        self.mode(WatchMode::Stall);
    }

    /// Ends holds, delays and stalls of exactly this scope; held events go out.
    pub fn release(&self) {
        self.server.with(|state| {
            state.watches.modes.retain(|mode| mode.scope != self.scope);
            state.apply_watch_modes(&self.scope);
        });
    }

    fn mode(&self, mode: WatchMode) {
        self.server.with(|state| {
            let (scope, deed) = (self.scope.clone(), state.met.place());
            state.watches.modes.push(ModeInForce { scope, mode, deed });
            state.apply_watch_modes(&self.scope);
        });
    }

    /// Ends the open watches as their time-out would.
    pub fn end(&self) {
        self.deliver(&Delivery::End);
    }

    /// Breaks the connections of the open watches.
    pub fn cut(&self) {
        self.deliver(&Delivery::Cut);
    }

    fn deliver(&self, delivery: &Delivery) {
        self.to_open(|state, ids| state.deliver_all(ids, delivery));
    }

    /// Does something to the watches that are open now, if any are.
    fn to_open(&self, act: impl FnOnce(&mut State, &[u64])) {
        self.server.with(|state| {
            let (ids, deed) = (state.watches_in(&self.scope), state.met.place());
            if !ids.is_empty() {
                state.met.meet(deed);
                act(state, &ids);
            }
        });
    }

    /// Sends the last `count` events of each open watch again.
    pub fn replay(&self, count: usize) {
        self.to_open(|state, ids| state.replay(ids, count));
    }

    /// Answers the open watches with 410 Gone.
    pub fn gone(&self) {
        self.to_open(|state, ids| state.expire_watches(ids));
    }

    pub fn count(&self) -> usize {
        self.server.with(|state| state.watches_in(&self.scope).len())
    }
}

impl ApiServer {
    /// Puts a fault in force for these requests.
    pub fn fault(&self, requests: Requests, fault: Fault) -> FaultRule {
        let id = self.with(|state| {
            let deed = state.met.place();
            state.faults.add(requests, fault, deed)
        });
        FaultRule { server: self.clone(), id }
    }

    /// This keeps a client's watches from being heard while it is whole.
    pub fn register_ice(&self, client: &str, ice: &Ice) {
        self.with(|state| state.watches.ice.insert(client.to_owned(), ice.clone()));
    }

    /// The watches of all clients on all resources.
    pub fn watches(&self) -> WatchControl {
        WatchControl { server: self.clone(), scope: WatchScope::default() }
    }

    /// Cuts a client off: no request arrives, and its watches fall silent without an end.
    pub fn partition(&self, instance: &str) -> FaultRule {
        self.watches().of(instance).stall();
        self.fault(Requests::all().from(instance), Fault::CutBefore)
    }

    /// The API server goes away: all connections break, and none can be made.
    pub fn go_away(&self) {
        self.with(|state| {
            let deed = state.met.place();
            state.listener.go_away(deed);
        });
        self.watches().cut();
    }

    pub fn come_back(&self) {
        self.with(|state| state.listener.come_back());
    }

    /// Ends every fault of requests and watches; held requests and events go on.
    pub fn heal(&self) {
        self.with(|state| {
            state.listener.come_back();
            state.faults.clear();
            state.watches.modes.clear();
            state.apply_watch_modes(&WatchScope::default());
        });
    }

    pub fn settings(&self, change: impl FnOnce(&mut Settings)) {
        self.with(|state| change(&mut state.settings));
    }

    /// The logged requests among these.
    pub fn requests(&self, which: &Requests) -> Vec<LoggedRequest> {
        self.with(|state| {
            let entries = state.log.iter();
            entries.filter(|entry| which.matches(&entry.request)).cloned().collect()
        })
    }

    /// How many requests among these arrived.
    pub fn count(&self, which: &Requests) -> usize {
        self.requests(which).len()
    }

    /// How many of these were executed with success.
    pub fn effects(&self, which: &Requests) -> usize {
        self.requests(which).iter().filter(|entry| entry.took_effect()).count()
    }

    /// Requests that arrived since `mark` and are not watches: what a controller at rest must not
    /// send. A mark is an earlier [`ApiServer::mark`].
    pub fn requests_since(&self, mark: usize) -> Vec<LoggedRequest> {
        let all = self.requests(&Requests::all());
        all.into_iter().skip(mark).filter(|entry| entry.request.verb != Verb::Watch).collect()
    }

    /// The present end of the log.
    pub fn mark(&self) -> usize {
        self.with(|state| state.log.len())
    }

    /// The changes of the store for which this holds.
    pub fn changes_where(&self, holds: impl Fn(&Change) -> bool) -> Vec<Change> {
        self.with(|state| state.history.iter().filter(|change| holds(change)).cloned().collect())
    }

    /// How often a set had more pods than allowed.
    pub fn exceeded(&self) -> usize {
        self.with(|state| state.observers.bound.exceeded)
    }

    /// From now on this client stands for election: it may write only while the Lease names it.
    pub fn stands_for_election(&self, replica: &str) {
        self.with(|state| state.observers.one_writer.stands(replica));
    }

    /// The first promise that was broken, if one was.
    pub fn broken(&self) -> Option<String> {
        self.with(|state| state.observers.violations.first().cloned())
    }

    /// Fails the test if a promise was ever broken.
    #[track_caller]
    pub fn check(&self) {
        if let Some(broken) = self.broken() {
            panic!("{broken}\n{}", self.recently());
        }
    }
}
