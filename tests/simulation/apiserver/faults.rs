//! Faults: rules that a test adds and removes, for requests and for watches. This file decides which
//! rule hits which request; `carry.rs` and `watch.rs` apply it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{request::ApiRequest, select::Requests, status::Status};

/// What a rule does to a request that it hits.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not executed; answered with this Status.
    Refuse(Status),
    /// Executed; answered with an error of this code.
    ExecuteThenError(u16),
    /// Executed; the connection breaks before the answer.
    ExecuteThenCut,
    /// Executed; half of the answer arrives.
    ExecuteThenGarble,
    /// Not executed; the connection breaks.
    CutBefore,
    /// Executed this much later, unless its `?timeout=` has passed by then.
    Delay(Duration),
    /// Arrives this much later. Its `?timeout=` starts on arrival.
    ArriveLate(Duration),
    /// The connection breaks at once; executed this much later.
    ExecuteLate(Duration),
    /// Never answered; executed after this long.
    ExecuteUnanswered(Duration),
    /// Executed twice in a row; answered with the result of the first or the second execution, at random.
    ExecuteTwice,
    /// Executed; answered when the test releases it.
    HoldAnswer,
}

/// A rule in force.
pub struct Rule {
    id: u64,
    requests: Requests,
    fault: Fault,
    hits: usize,
    /// Closed to release the requests that the rule holds.
    gate: Arc<Semaphore>,
    action: &'static str,
}

/// Counts which actions of a world had an effect. A fault that hits no request and no watch tests nothing.
#[derive(Default)]
pub struct Coverage {
    /// The action that is running.
    pub action: &'static str,
    has_placed_fault: bool,
    /// The actions that froze clients.
    frozen: BTreeMap<String, &'static str>,
    /// How often each action had an effect.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Assigns the faults that follow to this action.
    pub fn begin(&mut self, action: &'static str) {
        (self.action, self.has_placed_fault) = (action, false);
    }

    /// Ends the action. It counts at once if it placed no fault.
    pub fn finish(&mut self) {
        if !self.has_placed_fault {
            self.hit(self.action);
        }
    }

    /// Notes that the current action places a fault, and returns it. The action counts once the fault hits something.
    pub fn place_fault(&mut self) -> &'static str {
        self.has_placed_fault = true;
        self.action
    }

    /// Notes that the action freezes a client.
    pub fn freeze(&mut self, client: &str) {
        let action = self.place_fault();
        self.frozen.insert(client.to_owned(), action);
    }

    /// Notes that a freeze delayed a request, a response or an event of this client.
    pub fn held_up(&mut self, client: &str) {
        if let Some(action) = self.frozen.get(client).copied() {
            self.hit(action);
        }
    }

    /// Notes that a fault of this action hit something.
    pub fn hit(&mut self, action: &'static str) {
        *self.counts.entry(action).or_default() += 1;
    }
}

/// The rules for requests, in the order in which the test added them.
#[derive(Default)]
pub struct Faults {
    rules: Vec<Rule>,
    added: u64,
}

impl Faults {
    /// Adds a rule of this action. Returns its id.
    pub fn add(&mut self, requests: Requests, fault: Fault, action: &'static str) -> u64 {
        self.added += 1;
        let (id, gate) = (self.added, Arc::new(Semaphore::new(0)));
        self.rules.push(Rule { id, requests, fault, hits: 0, gate, action });
        id
    }

    /// Removes a rule.
    pub fn remove(&mut self, id: u64) {
        self.rules.retain(|rule| rule.id != id);
    }

    /// Removes a rule and releases the requests that it holds.
    pub fn release(&mut self, id: u64) {
        self.rules.extract_if(.., |rule| rule.id == id).for_each(|rule| rule.gate.close());
    }

    /// Removes all rules and releases the requests that they hold.
    pub fn clear(&mut self) {
        self.rules.drain(..).for_each(|rule| rule.gate.close());
    }

    /// How many requests a rule has hit; none once it is removed.
    pub fn hits(&self, id: u64) -> Option<usize> {
        self.rules.iter().find(|rule| rule.id == id).map(|rule| rule.hits)
    }

    /// Counts the hit of the first rule that hits this request. Returns its fault, and the gate at which a held request
    /// waits.
    pub fn hit(&mut self, request: &ApiRequest, coverage: &mut Coverage) -> Option<(Fault, Arc<Semaphore>)> {
        let rule = self.rules.iter_mut().find(|rule| rule.requests.chooses(request, rule.hits))?;
        rule.hits += 1;
        coverage.hit(rule.action);
        Some((rule.fault.clone(), Arc::clone(&rule.gate)))
    }
}

/// A lasting fault of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Events are kept back until released.
    Hold,
    /// Events arrive this much later.
    Delay(Duration),
    /// Half-open: nothing arrives any more, not even the end of the stream.
    Stall,
}

/// Selects watches: all, or those of one client or of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// Client; none for all.
    pub instance: Option<String>,
    /// Plural name of the resource; none for all.
    pub plural: Option<String>,
}

impl WatchScope {
    /// Whether the scope includes a watch of `plural` by `instance`.
    pub fn covers(&self, instance: &str, plural: &str) -> bool {
        self.instance.as_deref().is_none_or(|i| i == instance) && self.plural.as_deref().is_none_or(|p| p == plural)
    }
}
