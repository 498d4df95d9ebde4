//! Leadership as a value: whether this process may write, and for how long.
//!
//! Three places check a [`Leadership`]: the controllers' loop before it works, the writing client before each request
//! ([`Leadership::begin_write`]), and the gate just before bytes leave ([`WritePermit::is_valid`]). The owner of the [`LeaderState`] begins
//! and ends its terms. Without election, [`Leadership::always`] leads.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::timing::Timing;
use crate::{env::Env, lock};

/// The longest timeout of a write, also without election.
pub const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

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
    /// Every write ends on the API server before this time, if the API server receives it without delay: `?timeout=` counts
    /// from the moment its first filter receives the request.
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

    /// How long after [`Leadership::begin_write`] the bytes of a request may still leave. It is less than the time between `gate` and
    /// `writes`, so that a write still has a timeout if it begins just before the gate closes.
    fn slack(&self) -> SignedDuration {
        (self.writes.duration_since(self.gate) / 2).min(SignedDuration::from_secs(1))
    }
}

/// The current term, if any. Unlike a watch channel, a [`Notify`] wakes waiters in a fixed order. The simulation needs that to replay a run.
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

/// The reading side: whether this process leads.
#[derive(Clone, Debug)]
pub struct Leadership {
    current: Arc<CurrentTerm>,
    env: Env,
    unfinished: Arc<Mutex<Unfinished>>,
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

    /// Begins a write, if this process leads.
    pub fn begin_write(&self) -> Option<Write> {
        let (term, now) = (self.term()?, self.env.now());
        let left = |ends: Ends| ends.writes.duration_since(now).saturating_sub(ends.slack());
        let timeout = term.ends.map_or(WRITE_TIMEOUT, left).min(WRITE_TIMEOUT);
        if !timeout.is_positive() {
            return None;
        }
        lock(&self.unfinished).under_way += 1;
        let permit = WritePermit { leadership: self.clone(), number: term.number, timeout, has_left: Arc::default() };
        Some(Write { permit, sent: now, is_answered: false })
    }

    /// Waits until a term begins.
    pub async fn begun(&self) -> Term {
        loop {
            let changed = self.current.changed.notified();
            if let Some(term) = self.term() {
                return term;
            }
            changed.await;
        }
    }

    /// Waits until the term of that number is over.
    pub async fn ended(&self, number: u64) {
        loop {
            let changed = self.current.changed.notified();
            let Some(term) = self.term().filter(|term| term.number == number) else {
                return;
            };
            let end = async {
                match term.ends {
                    Some(ends) => self.env.sleep_until(ends.gate).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = end => {}
                () = changed => {}
            }
        }
    }
}

/// The writes that may still take effect.
#[derive(Debug, Default)]
struct Unfinished {
    /// How many are under way.
    under_way: usize,
    /// When the last write that left and got no answer was sent.
    unanswered: Option<Timestamp>,
}

/// A write that is under way. If it has left and is dropped without [`Write::answered`], it may still take effect.
#[derive(Debug)]
pub struct Write {
    permit: WritePermit,
    sent: Timestamp,
    is_answered: bool,
}

impl Write {
    /// The permit that the request carries as an extension.
    pub fn permit(&self) -> WritePermit {
        self.permit.clone()
    }

    /// The timeout of the request.
    pub fn timeout(&self) -> Duration {
        Duration::try_from(self.permit.timeout).unwrap_or_default()
    }

    /// Waits until its timeout is over.
    pub async fn times_out(&self) {
        let end = self.sent.saturating_add(self.permit.timeout).unwrap_or(Timestamp::MAX);
        self.permit.leadership.env.sleep_until(end).await;
    }

    /// Whether bytes of the request have left this process. If not, this call gives up the request: from now on no byte of it can leave.
    pub fn has_left(&self) -> bool {
        *self.permit.has_left.get_or_init(|| false)
    }

    /// The API server's answer proves whether the write took effect.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let mut unfinished = lock(&self.permit.leadership.unfinished);
        unfinished.under_way = unfinished.under_way.saturating_sub(1);
        if !self.is_answered && self.has_left() {
            unfinished.unanswered = unfinished.unanswered.max(Some(self.sent));
        }
    }
}

/// The permission to send one request.
#[derive(Clone, Debug)]
pub struct WritePermit {
    leadership: Leadership,
    number: u64,
    timeout: SignedDuration,
    /// Whether bytes of the request have left; not set before the first byte leaves or the request is given up.
    has_left: Arc<OnceLock<bool>>,
}

impl WritePermit {
    /// Records that bytes of the request leave. The gate calls this before any byte passes. Returns `false` if the request was given up
    /// before its first byte: then no byte may leave.
    pub fn leaves(&self) -> bool {
        *self.has_left.get_or_init(|| true)
    }

    /// Whether bytes of the request may leave now: its term is not over, and the request ends before the lease can.
    pub fn is_valid(&self) -> bool {
        let now = self.leadership.env.now();
        let ends_in_time = |ends: Ends| now.saturating_add(self.timeout).is_ok_and(|end| end <= ends.writes);
        let term = self.leadership.term().filter(|term| term.number == self.number);
        term.is_some_and(|term| term.ends.is_none_or(ends_in_time))
    }
}

/// The writing side: its owner decides whether this process leads.
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
        match self.leadership.term() {
            Some(term) => {
                self.leadership.current.change(Some(Term { ends: Some(ends), ..term }));
                true
            }
            None => false,
        }
    }

    /// Ends the term: from now on nothing is written.
    pub fn resign(&self) {
        self.leadership.current.change(None);
    }

    /// Whether no write can take effect any more.
    pub fn is_settled(&self) -> bool {
        let unfinished = lock(&self.leadership.unfinished);
        let can_land = |sent: Timestamp| self.leadership.env.now().duration_since(sent) < MAY_LAND;
        unfinished.under_way == 0 && !unfinished.unanswered.is_some_and(can_land)
    }
}

#[cfg(test)]
mod tests;
