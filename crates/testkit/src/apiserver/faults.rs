//! Faults: rules that a test adds and removes, for requests and for watches. `carry.rs` and `watch.rs` apply them.

use std::{collections::BTreeMap, sync::atomic::AtomicUsize, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{select::Requests, status::Status};

#[derive(Clone, Debug)]
pub enum Fault {
    /// Not executed; answered with this Status.
    Refuse(Status),
    /// Not executed; answered with this Status after this long.
    RefuseLate(Duration, Status),
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

/// A fault for matching requests. The first rule that matches a request, and is not used up, applies.
pub struct Rule {
    pub requests: Requests,
    pub fault: Fault,
    pub hits: AtomicUsize,
    /// Closed to release the requests that it holds.
    pub gate: Semaphore,
    pub action: &'static str,
}

/// Counts which actions of a world had an effect. A fault that hits no request and no watch tests nothing.
#[derive(Default)]
pub struct Coverage {
    pub action: &'static str,
    has_placed_fault: bool,
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

    /// Notes that the current action places a fault, and returns the action. It counts once the fault hits something.
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
    /// The client; `None`: all clients.
    pub instance: Option<String>,
    /// The plural name of the resource; `None`: all resources.
    pub plural: Option<String>,
}

impl WatchScope {
    pub fn covers(&self, instance: &str, plural: &str) -> bool {
        self.instance.as_deref().is_none_or(|i| i == instance) && self.plural.as_deref().is_none_or(|p| p == plural)
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection reset by peer")]
pub struct Cut;

/// Whether the server is reachable, and the connections that it has accepted.
#[derive(Default)]
pub struct Listener {
    /// The action that made it unreachable.
    pub away: Option<&'static str>,
    pub accepted: CancellationToken,
}

impl Listener {
    /// Accepts a connection or a request. The token is cancelled when the connection breaks.
    pub fn reach(&self, coverage: &mut Coverage) -> Result<CancellationToken, Cut> {
        match self.away {
            None => Ok(self.accepted.clone()),
            Some(action) => {
                coverage.hit(action);
                Err(Cut)
            }
        }
    }
}
