//! Leadership as a value: whether this process may write, and for how long.
//!
//! Three places check a [`Leadership`]: the controllers' loop before it works, the writing client before each request
//! ([`Leadership::begin_write`]), and the gate just before bytes leave ([`WritePermit::is_valid`](crate::WritePermit)). The owner of the
//! [`LeaderState`] begins and ends its terms. Without election, [`Leadership::always`] leads.

use std::sync::{Arc, Mutex};

use futures::{Stream, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::{Timing, env::Env, lock};

/// How long a request can still take effect after it was sent: the API server's own limit, counted from the moment its first filter
/// receives the request. The promise does not cover the time before that, in a proxy, a load balancer or in front of a stopped API server.
pub const MAY_LAND: SignedDuration = SignedDuration::from_secs(60);

/// A term of leadership.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Term {
    /// Counts the terms of this process from 1.
    pub number: u64,
    /// When it ends unless it is renewed; `None` without election.
    pub ends: Option<Ends>,
}

/// When a term ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ends {
    /// From this time on, no byte of a write leaves this process.
    pub gate: Timestamp,
    /// Every write ends on the API server before this time, if the API server receives it without delay.
    pub writes: Timestamp,
}

impl Ends {
    /// The ends of a term whose last good renewal was sent at `renewed`.
    ///
    /// The lease lasts at least until `renewed` + lease duration, because other candidates count from when they see the renewal. The gate
    /// closes at the renew deadline. Bytes that left before may stay unacknowledged in the kernel for [`Timing::unacknowledged`], so a
    /// write must end on the API server that much earlier than the lease.
    pub fn after(renewed: Timestamp, timing: &Timing) -> Self {
        let later = |by| renewed.saturating_add(by).unwrap_or(Timestamp::MAX);
        let lease = timing.lease_duration;
        Ends { gate: later(timing.renew_deadline), writes: later(lease.saturating_sub(timing.unacknowledged())) }
    }

    /// How long after [`Leadership::begin_write`] the bytes of a request may still leave: half of the time between `gate` and `writes`, at
    /// most 1 s. The rest is the timeout of a write that begins just before the gate closes.
    pub(crate) fn slack(&self) -> SignedDuration {
        (self.writes.duration_since(self.gate) / 2).min(SignedDuration::from_secs(1))
    }
}

/// The current term, if any. Unlike a watch channel, a [`Notify`] wakes waiters in a fixed order. So a simulation can replay a run.
#[derive(Debug, Default)]
struct CurrentTerm {
    term: Mutex<Option<Term>>,
    changed: Notify,
}

impl CurrentTerm {
    fn change(&self, term: Option<Term>) {
        *lock(&self.term) = term;
        self.changed.notify_waiters();
    }
}

/// Whether this process leads. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    current: Arc<CurrentTerm>,
    pub(crate) env: Env,
    pub(crate) unfinished: Arc<Mutex<Unfinished>>,
}

impl Leadership {
    /// Leads for as long as the process lives: no election.
    pub fn always(env: Env) -> Self {
        let mut leader_state = LeaderState::vacant(env);
        leader_state.begin(None);
        leader_state.leadership
    }

    /// The term in which this process leads now, if it does.
    pub fn term(&self) -> Option<Term> {
        let term = *lock(&self.current.term);
        term.filter(|term| term.ends.is_none_or(|ends| self.env.now() < ends.gate))
    }

    /// Whether this process leads now.
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Waits until this process leads.
    pub async fn elected(&self) -> Term {
        loop {
            let changed = self.current.changed.notified();
            if let Some(term) = self.term() {
                return term;
            }
            changed.await;
        }
    }

    /// Waits until this term is over.
    pub async fn lost(&self, term: Term) {
        loop {
            let changed = self.current.changed.notified();
            let Some(term) = self.term().filter(|current| current.number == term.number) else {
                return;
            };
            let gate = term.ends.map(|ends| ends.gate);
            tokio::select! {
                biased;
                () = self.env.sleep_until(gate.unwrap_or_default()), if gate.is_some() => {}
                () = changed => {}
            }
        }
    }

    /// Yields each time this process begins to lead. Pass it to `Controller::reconcile_all_on` of kube: the reconciles of a standby return
    /// early, so a new leader must reconcile every object.
    pub fn elections(&self) -> impl Stream<Item = ()> + Send + Sync + use<> {
        stream::unfold((self.clone(), None), |(leadership, before)| async move {
            if let Some(term) = before {
                leadership.lost(term).await;
            }
            let term = leadership.elected().await;
            Some(((), (leadership, Some(term))))
        })
    }
}

/// The writes that may still take effect.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// How many are under way.
    pub under_way: usize,
    /// When the latest write of unknown fate began: bytes of it have left this process, and no answer proves what happened.
    pub unanswered: Option<Timestamp>,
}

/// The writing side of a [`Leadership`]: its owner, usually an [`Election`](crate::Election), decides whether this process leads.
#[derive(Debug)]
pub struct LeaderState {
    terms: u64,
    leadership: Leadership,
}

impl LeaderState {
    /// The state of a process that does not lead.
    pub fn vacant(env: Env) -> Self {
        LeaderState { terms: 0, leadership: Leadership { current: Arc::default(), env, unfinished: Arc::default() } }
    }

    /// The reading side of this state.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Begins the next term.
    pub fn begin(&mut self, ends: Option<Ends>) -> Term {
        self.terms += 1;
        let term = Term { number: self.terms, ends };
        self.leadership.current.change(Some(term));
        term
    }

    /// Prolongs the current term. Returns `false` if it is over: it cannot be revived.
    pub fn prolong(&self, ends: Ends) -> bool {
        let Some(term) = self.leadership.term() else {
            return false;
        };
        self.leadership.current.change(Some(Term { ends: Some(ends), ..term }));
        true
    }

    /// Ends the term: from now on nothing is written.
    pub fn resign(&self) {
        self.leadership.current.change(None);
    }

    /// Whether all writes have ended, and none of them can still take effect.
    pub fn is_settled(&self) -> bool {
        let unfinished = lock(&self.leadership.unfinished);
        let can_land = |sent: Timestamp| self.leadership.env.now().duration_since(sent) < MAY_LAND;
        unfinished.under_way == 0 && !unfinished.unanswered.is_some_and(can_land)
    }
}

#[cfg(test)]
mod tests;
