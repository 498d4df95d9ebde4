//! Leadership as a value: who may write, and for how long.
//!
//! A [`Leadership`] is asked in three places only: the controllers' loop asks it whether to work at all; the writing
//! client asks it before each request ([`Leadership::begin_write`]) and once more where the bytes leave
//! ([`WritePermit::is_valid`]). Whoever holds the [`LeaderState`] decides; without election that is [`Leadership::always`].

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::timing::Timing;
use crate::env::Env;

/// The longest that any write may take, also without election.
pub const WRITE_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// How long a request can still take effect after it was sent: the API server's own limit. The API server counts from the
/// moment its first filter receives the request. The promise does not cover the time that the request spends before that, in a
/// proxy, in a load balancer or in front of a stopped API server.
pub const MAY_LAND: SignedDuration = SignedDuration::from_secs(60);

/// A term of leader_state.
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
    /// From then on no byte of a write leaves this process.
    pub gate: Timestamp,
    /// Every write ends on the API server before this time, if the API server receives it without delay: `?timeout=` counts
    /// from the moment its first filter receives the request.
    pub writes: Timestamp,
}

impl Ends {
    /// The ends of a term whose last good renewal was sent at `renewed`.
    ///
    /// The lease lasts until `renewed` + lease duration at least: whoever waits for it begins to count when it sees that
    /// renewal. The gate closes at the renew deadline. What left before may lie unacknowledged in the kernel for
    /// [`Timing::unacknowledged`], so a write has to end on the API server by that much earlier than the lease.
    pub fn after(renewed: Timestamp, timing: &Timing) -> Self {
        let later = |by| renewed.saturating_add(by).unwrap_or(Timestamp::MAX);
        let lease = timing.lease_duration;
        Ends { gate: later(timing.renew_deadline), writes: later(lease.saturating_sub(timing.unacknowledged())) }
    }

    /// Room between the making of a request and the leaving of its bytes.
    fn slack(&self) -> SignedDuration {
        (self.writes.duration_since(self.gate) / 2).min(SignedDuration::from_secs(1))
    }
}

/// The term that runs, if one does. Those who wait wake in the order in which they began to (of a watch channel, in any), so that
/// a simulation can be replayed.
#[derive(Debug, Default)]
struct Seat {
    term: Mutex<Option<Term>>,
    changed: Notify,
}

impl Seat {
    fn term(&self) -> MutexGuard<'_, Option<Term>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, term: Option<Term>) {
        *self.term() = term;
        self.changed.notify_waiters();
    }
}

/// The reading side: whether this process leads.
#[derive(Clone, Debug)]
pub struct Leadership {
    seat: Arc<Seat>,
    env: Env,
    tally: Arc<Mutex<Tally>>,
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
        let term = *self.seat.term();
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
        self.tally().under_way += 1;
        let pass = WritePermit { leadership: self.clone(), number: term.number, timeout, has_left: Arc::default() };
        Some(Write { pass, sent: now, is_answered: false })
    }

    /// Waits until a term begins.
    pub async fn begun(&self) -> Term {
        loop {
            let changed = self.seat.changed.notified();
            if let Some(term) = self.term() {
                return term;
            }
            changed.await;
        }
    }

    /// Waits until the term of that number is over.
    pub async fn ended(&self, number: u64) {
        loop {
            let changed = self.seat.changed.notified();
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

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writes that may still take effect.
#[derive(Debug, Default)]
struct Tally {
    /// How many are under way.
    under_way: usize,
    /// When the last of those was sent that left and ended without an answer.
    unanswered: Option<Timestamp>,
}

/// A write that is under way. If it has left and is dropped without [`Write::answered`], it may still take effect.
#[derive(Debug)]
pub struct Write {
    pass: WritePermit,
    sent: Timestamp,
    is_answered: bool,
}

impl Write {
    /// What the request shows where its bytes leave.
    pub fn pass(&self) -> WritePermit {
        self.pass.clone()
    }

    /// How long it may take.
    pub fn timeout(&self) -> Duration {
        Duration::try_from(self.pass.timeout).unwrap_or_default()
    }

    /// Waits until it has taken as long as it may.
    pub async fn times_out(&self) {
        let end = self.sent.saturating_add(self.pass.timeout).unwrap_or(Timestamp::MAX);
        self.pass.leadership.env.sleep_until(end).await;
    }

    /// Whether bytes of the request have left this process. If none has, this call gives the request up: the gate lets none
    /// pass from now on. Whichever comes first decides, the first byte or this call.
    pub fn has_left(&self) -> bool {
        *self.pass.has_left.get_or_init(|| false)
    }

    /// The API server has said what became of it.
    pub fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let mut tally = self.pass.leadership.tally();
        tally.under_way = tally.under_way.saturating_sub(1);
        if !self.is_answered && self.has_left() {
            tally.unanswered = tally.unanswered.max(Some(self.sent));
        }
    }
}

/// The right of one request to leave.
#[derive(Clone, Debug)]
pub struct WritePermit {
    leadership: Leadership,
    number: u64,
    timeout: SignedDuration,
    /// Whether bytes of the request have left; not set while that is open.
    has_left: Arc<OnceLock<bool>>,
}

impl WritePermit {
    /// The gate calls this before each byte that it lets pass, and lets it pass only if the answer is `true`. The answer is
    /// `false` if the request was given up before its first byte.
    pub fn leaves(&self) -> bool {
        *self.has_left.get_or_init(|| true)
    }

    /// Whether bytes of the request may leave now: the term for which it was made goes on, and the request will have
    /// ended before the lease can.
    pub fn is_valid(&self) -> bool {
        let now = self.leadership.env.now();
        let ends_in_time = |ends: Ends| now.saturating_add(self.timeout).is_ok_and(|end| end <= ends.writes);
        let term = self.leadership.term().filter(|term| term.number == self.number);
        term.is_some_and(|term| term.ends.is_none_or(ends_in_time))
    }
}

/// The writing side: whoever holds it says whether this process leads.
#[derive(Debug)]
pub struct LeaderState {
    terms: u64,
    leadership: Leadership,
}

impl LeaderState {
    /// An leader_state that nobody holds.
    pub fn vacant(env: Env) -> Self {
        LeaderState { terms: 0, leadership: Leadership { seat: Arc::default(), env, tally: Arc::default() } }
    }

    /// The value by which others see it.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Begins the next term.
    pub fn begin(&mut self, ends: Option<Ends>) -> Term {
        self.terms += 1;
        let term = Term { number: self.terms, ends };
        self.leadership.seat.change(Some(term));
        term
    }

    /// Prolongs the term that runs. One that is over stays over.
    pub fn prolong(&self, ends: Ends) -> bool {
        match self.leadership.term() {
            Some(term) => {
                self.leadership.seat.change(Some(Term { ends: Some(ends), ..term }));
                true
            }
            None => false,
        }
    }

    /// Ends the term: from now on nothing is written.
    pub fn resign(&self) {
        self.leadership.seat.change(None);
    }

    /// Whether no write can take effect any more.
    pub fn is_settled(&self) -> bool {
        let tally = self.leadership.tally();
        let can_land = |sent: Timestamp| self.leadership.env.now().duration_since(sent) < MAY_LAND;
        tally.under_way == 0 && !tally.unanswered.is_some_and(can_land)
    }
}

#[cfg(test)]
mod tests;
