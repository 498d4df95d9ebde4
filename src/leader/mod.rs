//! Leadership as a value: who may write, and for how long.
//!
//! A [`Leadership`] is asked in two places only: the writing client asks it before each request
//! ([`crate::client::Writer`]), and the controllers' loop asks whether to work at all. Whoever holds the
//! [`Office`] decides; without election that is nobody's choice, [`Leadership::always`].

pub mod timing;

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

/// The longest that any write may take, also without election.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A term of office.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Term {
    /// Counts the terms of this process from 1.
    pub number: u64,
    /// When the term ends unless it is renewed; `None` without election.
    pub ends: Option<Instant>,
}

/// The reading side: whether this process leads.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: watch::Receiver<Option<Term>>,
}

impl Leadership {
    /// Leads for as long as the process lives: no election.
    pub fn always() -> Self {
        let (_, term) = watch::channel(Some(Term { number: 1, ends: None }));
        Leadership { term }
    }

    /// The term in which this process leads now, if it does.
    pub fn term(&self) -> Option<Term> {
        (*self.term.borrow()).filter(|term| term.ends.is_none_or(|ends| Instant::now() < ends))
    }

    /// How long a write that begins now may take; `None`: it must not begin.
    pub fn write_budget(&self) -> Option<Duration> {
        let term = self.term()?;
        let left = term.ends.map_or(WRITE_TIMEOUT, |ends| ends.saturating_duration_since(Instant::now()));
        Some(left.min(WRITE_TIMEOUT))
    }

    /// Waits until a term begins.
    pub async fn begun(&mut self) -> Term {
        loop {
            if let Some(term) = self.term() {
                return term;
            }
            if self.term.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the term of that number is over.
    pub async fn ended(&mut self, number: u64) {
        loop {
            let Some(term) = self.term().filter(|term| term.number == number) else {
                return;
            };
            let end = async {
                match term.ends {
                    Some(ends) => tokio::time::sleep_until(ends).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => {}
                changed = self.term.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
            }
        }
    }
}

/// The writing side: whoever holds it says whether this process leads.
#[derive(Debug)]
pub struct Office {
    term: watch::Sender<Option<Term>>,
    terms: u64,
}

impl Office {
    /// An office that nobody holds, and the value by which others see it.
    pub fn vacant() -> (Self, Leadership) {
        let (sender, term) = watch::channel(None);
        (Office { term: sender, terms: 0 }, Leadership { term })
    }

    /// Begins the next term, or prolongs the one that runs, until `ends`.
    pub fn lead_until(&mut self, ends: Option<Instant>) {
        let current = *self.term.borrow();
        let number = current.map_or(self.terms + 1, |term| term.number);
        self.terms = number;
        self.term.send_replace(Some(Term { number, ends }));
    }

    /// Ends the term: from now on nothing is written.
    pub fn resign(&self) {
        self.term.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_term_bounds_the_time_of_a_write() {
        let (mut office, leadership) = Office::vacant();
        assert_eq!(leadership.write_budget(), None, "nobody leads yet");

        office.lead_until(Some(Instant::now() + Duration::from_secs(15)));
        assert_eq!(leadership.write_budget(), Some(WRITE_TIMEOUT));
        tokio::time::advance(Duration::from_secs(12)).await;
        assert_eq!(leadership.write_budget(), Some(Duration::from_secs(3)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(leadership.write_budget(), None, "the term is over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_term_is_seen_by_those_who_wait() {
        let (mut office, leadership) = Office::vacant();
        let mut waiting = tokio_test::task::spawn(async { leadership.clone().begun().await.number });
        tokio_test::assert_pending!(waiting.poll());
        office.lead_until(None);
        assert!(waiting.is_woken());
        assert_eq!(tokio_test::assert_ready!(waiting.poll()), 1);

        let mut ending = tokio_test::task::spawn(async { leadership.clone().ended(1).await });
        tokio_test::assert_pending!(ending.poll());
        office.resign();
        tokio_test::assert_ready!(ending.poll());
        office.lead_until(None);
        assert_eq!(leadership.term().map(|term| term.number), Some(2), "a new term has a new number");
    }

    #[test]
    fn without_election_a_write_has_ten_seconds() {
        assert_eq!(Leadership::always().write_budget(), Some(WRITE_TIMEOUT));
    }
}
