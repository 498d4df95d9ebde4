//! Three replicas, one leader, and people at work all the while. Whatever happens to the leader or to its Lease: one replica
//! at a time writes, another one leads in time, and the sets converge.

mod clocks;
mod cut_off;
mod edits;
mod ends;
mod rest;
mod rollout;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::fleet::Fleet;
use e2e::operator::Election;
use e2e::proxy::Fault;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use crate::stir::Stirring;

/// A create that was never answered holds its pod's replacement back for 60 s.
const CONVERGES: Duration = Duration::from_secs(120);

/// What a busy machine may add to a time that is promised.
const SLACK: Duration = Duration::from_secs(1);

/// How long a process may take to end that has lost its Lease.
const END: Duration = Duration::from_secs(5);

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("leader_cut_off_silently", |t| cut_off::by(t, Fault::Silent)),
        Scenario::new("leader_cut_off_from_its_answers", |t| cut_off::by(t, Fault::AnswersLost)),
        Scenario::new("leader_cut_off_with_every_connection", |t| cut_off::by(t, Fault::Away)),
        Scenario::new("leader_frozen_in_the_middle_of_creates", ends::frozen_in_the_middle_of_creates),
        Scenario::new("leader_lease_edited_by_hand", edits::by_hand),
        Scenario::new("leader_of_a_rollout", rollout::with_other_times),
        Scenario::new("leader_cut_off_from_the_answers_to_its_writes", cut_off::from_the_answers_to_its_writes),
        Scenario::new("leader_cut_off_from_what_it_watches", cut_off::from_what_they_watch),
        Scenario::new("leader_killed", |t| ends::killed(t, Election::SHORT, 3)),
        Scenario::new("leader_killed_with_default_times", |t| ends::killed(t, Election::DEFAULT, 1)),
        Scenario::new("leader_asked_to_end", ends::asked_to_end),
        Scenario::new("leader_asked_to_end_without_answers", ends::asked_to_end_without_answers),
        Scenario::new("leader_asked_twice_to_end", ends::asked_twice_to_end),
        Scenario::new("leader_out_of_reach_for_a_moment", cut_off::for_a_moment),
        Scenario::new("leader_with_another_clock", clocks::apart),
        Scenario::new("leader_and_standbys_at_rest", rest::nothing_is_asked),
    ]
}

/// Three replicas, and people at work.
struct Reign {
    t: Arc<Scene>,
    fleet: Fleet,
    stirring: Stirring,
    election: Election,
}

impl Reign {
    /// Every replica reaches the API server directly.
    async fn begin(t: &Arc<Scene>, election: Election) -> Result<Self> {
        let fleet = Fleet::start(t, 3, &t.settings().elected(election)).await?;
        Self::of(t, fleet, election).await
    }

    /// Every replica has a proxy of its own.
    async fn begin_behind_proxies(t: &Arc<Scene>, election: Election) -> Result<Self> {
        let fleet = Fleet::start_behind_proxies(t, 3, &t.settings().elected(election)).await?;
        Self::of(t, fleet, election).await
    }

    async fn of(t: &Arc<Scene>, fleet: Fleet, election: Election) -> Result<Self> {
        let stirring = Stirring::begin(t).await?;
        let begun = Self { t: t.clone(), fleet, stirring, election };
        begun.goes_on(2).await;
        Ok(begun)
    }

    /// For so many seconds nothing happens but what people do.
    async fn goes_on(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    /// Somebody else leads, in the time within which the Lease of a leader that is gone is taken; its name.
    async fn is_taken_over(&mut self, from: &str, since: Timestamp) -> Result<String> {
        self.is_taken_over_between(from, since, since).await
    }

    /// The same after something that happened at some time between `since` and `until`.
    async fn is_taken_over_between(&mut self, from: &str, since: Timestamp, until: Timestamp) -> Result<String> {
        let promised = Duration::from_secs(self.election.lease_duration + self.election.retry_period);
        let next = self.fleet.another_leads(from, promised + SLACK + END).await?;
        let took = self.fleet.next_term_after(since).await? - until.duration_since(since);
        ensure!(took <= signed(promised + SLACK), "{next} took {took:#} to take over, {promised:?} are promised");
        Ok(next)
    }

    /// A replica that lost its Lease ends with exit code 1.
    async fn ends_for_want_of_the_lease(&mut self, name: &str, limit: Duration) -> Result<()> {
        let status = self.fleet.has_ended(name, limit).await?;
        ensure!(status.code() == Some(1), "without its Lease, {name} ended with {status}");
        Ok(())
    }

    /// One more replica, in place of one that is gone.
    async fn gets_another(&mut self) -> Result<()> {
        self.fleet.add(self.t.settings().elected(self.election)).await?;
        self.fleet.is_complete().await
    }

    /// Nobody is at work any more: the sets come to rest, the replicas end in order, and one at a time has written.
    async fn ends(self) -> Result<()> {
        self.stirring.end(CONVERGES).await?;
        self.fleet.ends_well().await?;
        self.t.one_writer()
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
