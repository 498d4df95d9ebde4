//! Faults: rules that a test adds and takes away, for requests and for watches. Which rule meets
//! which request is decided here; what it does to the request is done in `carry.rs` and
//! `watch.rs`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{request::ApiRequest, select::Requests, status::Status};

/// What a rule does to a request that it meets.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not executed; answered with this Status.
    Refuse(Status),
    /// Executed; answered with an error of this code all the same.
    ExecuteThenError(u16),
    /// Executed; the connection breaks before the answer.
    ExecuteThenCut,
    /// Executed; half of the answer arrives.
    ExecuteThenGarble,
    /// Not executed; the connection breaks.
    CutBefore,
    /// Executed this much later, unless its `?timeout=` is over by then.
    Delay(Duration),
    /// Arrives this much later: only then does its `?timeout=` begin.
    ArriveLate(Duration),
    /// The connection breaks at once; executed this much later all the same.
    ExecuteLate(Duration),
    /// Never answered; executed after this long.
    ExecuteUnanswered(Duration),
    /// Executed twice in a row; answered with what came of the first or of the second execution, by chance.
    ExecuteTwice,
    /// Executed; answered when the test releases it.
    HoldAnswer,
}

/// A rule in force.
pub struct Rule {
    id: u64,
    requests: Requests,
    fault: Fault,
    matched: usize,
    hits: usize,
    gate: Arc<Semaphore>,
    deed: &'static str,
}

impl Rule {
    /// Lets all requests through that will ever come.
    fn open(self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

/// Which deeds of a world have met something. A fault that meets nothing exercises nothing.
#[derive(Default)]
pub struct Met {
    /// The deed that is under way.
    pub deed: &'static str,
    has_placed: bool,
    /// The deeds that froze clients.
    frozen: BTreeMap<String, &'static str>,
    /// How often each deed met something.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Met {
    /// From now on faults belong to this deed.
    pub fn begin(&mut self, deed: &'static str) {
        (self.deed, self.has_placed) = (deed, false);
    }

    /// The deed was done. One that placed no fault counts at once.
    pub fn done(&mut self) {
        if !self.has_placed {
            self.meet(self.deed);
        }
    }

    /// A fault is placed: it belongs to this deed, which counts when the fault meets something.
    pub fn place(&mut self) -> &'static str {
        self.has_placed = true;
        self.deed
    }

    /// A client is frozen.
    pub fn freeze(&mut self, client: &str) {
        let deed = self.place();
        self.frozen.insert(client.to_owned(), deed);
    }

    /// A frozen client was kept from sending or from hearing.
    pub fn held_up(&mut self, client: &str) {
        if let Some(deed) = self.frozen.get(client).copied() {
            self.meet(deed);
        }
    }

    /// The fault of this deed met something.
    pub fn meet(&mut self, deed: &'static str) {
        *self.counts.entry(deed).or_default() += 1;
    }
}

/// What a rule does to one request: the fault, and the gate that a held request waits at.
#[derive(Clone)]
pub struct Hit {
    pub fault: Fault,
    pub gate: Arc<Semaphore>,
}

/// The rules for requests, in the order in which they were added.
#[derive(Default)]
pub struct Faults {
    rules: Vec<Rule>,
    added: u64,
}

impl Faults {
    /// Adds a rule of this deed. Returns its id.
    pub fn add(&mut self, requests: Requests, fault: Fault, deed: &'static str) -> u64 {
        self.added += 1;
        let (id, gate) = (self.added, Arc::new(Semaphore::new(0)));
        self.rules.push(Rule { id, requests, fault, matched: 0, hits: 0, gate, deed });
        id
    }

    /// Takes a rule away.
    pub fn remove(&mut self, id: u64) {
        self.rules.retain(|rule| rule.id != id);
    }

    /// Takes a rule away and lets go what it held.
    pub fn release(&mut self, id: u64) {
        self.rules.extract_if(.., |rule| rule.id == id).for_each(Rule::open);
    }

    /// Takes all rules away and lets go what they held.
    pub fn clear(&mut self) {
        self.rules.drain(..).for_each(Rule::open);
    }

    /// How many requests a rule has met; none once it is removed.
    pub fn hits(&self, id: u64) -> Option<usize> {
        self.rules.iter().find(|rule| rule.id == id).map(|rule| rule.hits)
    }

    /// The first rule that meets this request. Counts.
    pub fn meet(&mut self, request: &ApiRequest, met: &mut Met) -> Option<Hit> {
        for rule in &mut self.rules {
            if !rule.requests.matches(request) {
                continue;
            }
            rule.matched += 1;
            let nth = rule.matched - 1;
            if rule.requests.chooses(nth) {
                rule.hits += 1;
                met.meet(rule.deed);
                return Some(Hit { fault: rule.fault.clone(), gate: Arc::clone(&rule.gate) });
            }
        }
        None
    }
}

/// A lasting fault of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Events are kept back until released.
    Hold,
    /// Events arrive this much later.
    Delay(Duration),
    /// Half-open: nothing arrives any more, not even an end.
    Stall,
}

/// Which watches: all, narrowed by instance and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// Client; none for every one.
    pub instance: Option<String>,
    /// Plural name of the resource; none for every one.
    pub plural: Option<String>,
}

impl WatchScope {
    /// Whether a watch of `plural` by `instance` is meant.
    pub fn covers(&self, instance: &str, plural: &str) -> bool {
        self.instance.as_deref().is_none_or(|i| i == instance) && self.plural.as_deref().is_none_or(|p| p == plural)
    }
}
