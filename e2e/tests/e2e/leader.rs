//! Three replicas, one leader, and random users. After each fault of the leader or of its Lease, another replica takes
//! over in time, one replica at a time writes, and the sets converge.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fleet::Fleet;
use e2e::operator::Times;
use e2e::proxy::Fault;
use e2e::rights::LEASE;
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;
use futures::future::try_join_all;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::churn::Churn;

/// A create without an answer delays the replacement of its pod by 60 s.
const CONVERGES: Duration = Duration::from_secs(120);

/// How much a busy machine may exceed a promised time.
const SLACK: Duration = Duration::from_secs(1);

/// A process that has lost its Lease exits within this time, with code 1.
const EXITS: Duration = Duration::from_secs(5);

pub fn scenarios() -> Vec<Scenario> {
    let scenarios = vec![
        Scenario::new("leader_cut_off_silently", |t| cut_off(t, Fault::Silent)),
        Scenario::new("leader_cut_off_from_its_answers", |t| cut_off(t, Fault::AnswersLost)),
        Scenario::new("leader_cut_off_with_every_connection", |t| cut_off(t, Fault::Away)),
        Scenario::new("leader_frozen_during_creates", frozen_during_creates),
        Scenario::new("leader_lease_edited_by_hand", lease_edited_by_hand),
        Scenario::new("leader_killed", killed),
        Scenario::new("leader_terminated", terminated),
    ];
    scenarios.into_iter().map(|scenario| scenario.with_processes().by_the_clock()).collect()
}

/// A leader that is cut off exits, and another replica takes over.
async fn cut_off(t: Arc<Scene>, fault: Fault) -> Result<()> {
    let mut election = Election::begin(&t, Times::SHORT, true).await?;
    let leader = election.fleet.leader().await?;
    let cut = Timestamp::now();
    election.fleet.proxy(&leader)?.inject(fault);
    t.log(&format!("{leader} is cut off: {fault:?}"));
    let next = election.is_taken_over(&leader, cut, cut).await?;
    ensure!(election.fleet.proxy(&leader)?.strikes() > 0, "{fault:?} never struck");
    // If the old leader still runs, its requests get through again.
    election.fleet.proxy(&leader)?.heal().await;
    election.fleet.exits_with(1, &leader, EXITS).await?;
    sleep(Duration::from_secs(3)).await;
    ensure!(election.fleet.leader().await? == next, "{next} does not lead any more");
    election.ends().await
}

/// The leader freezes during many creates, some of which are between the check of leadership and the socket. After it
/// continues, none of these takes effect.
async fn frozen_during_creates(t: Arc<Scene>) -> Result<()> {
    let mut election = Election::begin(&t, Times::SHORT, false).await?;
    for (round, some) in [3, 11, 19].into_iter().enumerate() {
        let leader = election.fleet.leader().await?;
        // So many at once that it needs new connections, which take some time.
        let burst: Vec<String> = (0..16).map(|n| format!("burst-{round}-{n}")).collect();
        try_join_all(burst.iter().map(|set| t.create_set(set, 10))).await?;
        t.until(&format!("{some} pods of a burst"), |seen| {
            let pods: usize = burst.iter().filter_map(|set| seen.live(set).ok()).map(|pods| pods.len()).sum();
            if pods >= some { Ok(()) } else { Err(format!("{pods} pods")) }
        })
        .await?;
        election.fleet.operator(&leader)?.signal(Signal::STOP)?;
        let frozen = Timestamp::now();
        election.is_taken_over(&leader, frozen, frozen).await?;
        sleep(Duration::from_secs(1)).await;
        election.fleet.operator(&leader)?.signal(Signal::CONT)?;
        election.fleet.exits_with(1, &leader, EXITS).await?;
        t.all_settle(&burst, 10, 2 * PATIENCE).await?; // a node with real containers starts only a few pods a second
        try_join_all(burst.iter().map(|set| t.delete_set(set))).await?;
        election.adds_a_replica().await?;
    }
    election.ends().await
}

/// The leader stops at once. Another replica leads when the Lease would have expired, or at once if it was released.
async fn lease_edited_by_hand(t: Arc<Scene>) -> Result<()> {
    let patch = |patch| vec!["patch", "lease", LEASE, "--type=merge", patch];
    let mut election = Election::begin(&t, Times::SHORT, false).await?;
    for (edit, command) in [
        ("deleted", vec!["delete", "lease", LEASE]),
        ("emptied", patch(r#"-p={"spec": null}"#)),
        ("overwritten", patch(r#"-p={"spec": {"holderIdentity": "somebody-else"}}"#)),
        ("released", patch(r#"-p={"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}"#)),
    ] {
        let leader = election.fleet.leader().await?;
        t.log(&format!("the Lease is {edit}"));
        let before = Timestamp::now();
        t.kubectl().run(&command).await?;
        // On a busy machine, kubectl takes a second to start.
        let after = Timestamp::now();
        election.fleet.exits_with(1, &leader, EXITS).await?;
        election.is_taken_over(&leader, before, after).await?;
        election.adds_a_replica().await?;
    }
    election.ends().await
}

/// A killed leader does not release the Lease. Another replica takes over once it has expired.
async fn killed(t: Arc<Scene>) -> Result<()> {
    let mut election = Election::begin(&t, Times::SHORT, false).await?;
    for _ in 0..3 {
        let leader = election.fleet.leader().await?;
        let when = election.fleet.kill(&leader).await?;
        election.is_taken_over(&leader, when, when).await?;
        election.adds_a_replica().await?;
    }
    election.ends().await
}

/// A terminated leader finishes its work, releases the Lease and exits. Another replica takes over within a second.
async fn terminated(t: Arc<Scene>) -> Result<()> {
    let mut election = Election::begin(&t, Times::DEFAULT, false).await?;
    for _ in 0..2 {
        let leader = election.fleet.leader().await?;
        let operator = election.fleet.operator(&leader)?;
        let user = operator.user.clone();
        operator.signal(Signal::TERM)?;
        election.fleet.exits_with(0, &leader, Duration::from_secs(15)).await?;
        let next = election.fleet.another_leads(&leader, Duration::from_secs(20)).await?;
        let released = t.history()?.released(&user).with_context(|| format!("{leader} did not release the Lease"))?;
        let took = election.fleet.next_term_after(released).await?;
        ensure!(took <= SignedDuration::from_secs(1), "{next} led {took:#} after the Lease was released");
    }
    election.ends().await
}

/// Replicas, and random users.
struct Election {
    t: Arc<Scene>,
    fleet: Fleet,
    churn: Churn,
    times: Times,
}

impl Election {
    async fn begin(t: &Arc<Scene>, times: Times, behind_proxies: bool) -> Result<Self> {
        let fleet = Fleet::start(t, 3, &t.settings().elected(times), behind_proxies).await?;
        let churn = Churn::begin(t).await?;
        sleep(Duration::from_secs(2)).await;
        Ok(Self { t: t.clone(), fleet, churn, times })
    }

    /// Waits until another replica takes over from a leader that was lost between `since` and `until`, and checks that this was in time.
    /// Returns its name.
    async fn is_taken_over(&mut self, from: &str, since: Timestamp, until: Timestamp) -> Result<String> {
        let promised = Duration::from_secs(self.times.lease_duration + self.times.retry_period);
        let next = self.fleet.another_leads(from, promised + SLACK + EXITS).await?;
        let took = self.fleet.next_term_after(since).await? - until.duration_since(since);
        let most = SignedDuration::try_from(promised + SLACK)?;
        ensure!(took <= most, "{next} took {took:#} to take over, {promised:?} are promised");
        Ok(next)
    }

    /// Replaces a replica that has exited.
    async fn adds_a_replica(&mut self) -> Result<()> {
        self.fleet.add(self.t.settings().elected(self.times)).await
    }

    /// Stops users and replicas. Checks that the sets converge, replicas exit with code 0, and one at a time wrote.
    async fn ends(self) -> Result<()> {
        self.churn.end(CONVERGES).await?;
        self.fleet.ends_well(Duration::from_secs(20)).await?;
        self.t.one_writer()
    }
}
