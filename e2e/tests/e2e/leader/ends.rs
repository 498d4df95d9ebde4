//! The leader ends: asked to, asked twice, killed; and frozen, which it cannot tell from being awake.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fleet::Fleet;
use e2e::operator::Election;
use e2e::proxy::Fault;
use e2e::scene::Scene;
use futures::future::try_join_all;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;

use super::{END, Reign};
use crate::stir::seed;

/// It does what it has in hand, gives the Lease back, and ends; another one leads within a second of that.
pub async fn asked_to_end(t: Arc<Scene>) -> Result<()> {
    let mut reign = Reign::begin(&t, Election::DEFAULT).await?;
    for _ in 0..2 {
        let leader = reign.fleet.leader().await?;
        let operator = reign.fleet.operator(&leader)?;
        let user = operator.user().to_owned();
        operator.ask_to_end()?;
        let asked = Timestamp::now();
        let status = reign.fleet.has_ended(&leader, Duration::from_secs(15)).await?;
        ensure!(status.code() == Some(0), "asked to end, {leader} ended with {status}");
        let next = reign.fleet.another_leads(&leader, Duration::from_secs(20)).await?;
        let released = t.history()?.released(&user).with_context(|| format!("{leader} did not give the Lease back"))?;
        t.tell(&format!("the Lease was given back after {:#}", released.duration_since(asked)));
        let took = reign.fleet.next_term_after(released).await?;
        ensure!(took <= SignedDuration::from_secs(1), "{next} led {took:#} after the Lease was given back");
        reign.goes_on(3).await;
    }
    reign.ends().await
}

/// It has asked for pods and waits in vain for the answers: nobody may lead before those requests can have no effect any
/// more. So it does not give the Lease back when it ends, and the Lease runs out.
pub async fn asked_to_end_without_answers(t: Arc<Scene>) -> Result<()> {
    let (mut fleet, leader) = waits_in_vain(&t, "web").await?;
    let user = fleet.operator(&leader)?.user().to_owned();
    fleet.operator(&leader)?.ask_to_end()?;
    let status = fleet.has_ended(&leader, Duration::from_secs(20)).await?;
    ensure!(status.code() == Some(0), "asked to end, {leader} ended with {status}");
    fleet.another_leads(&leader, Duration::from_secs(15)).await?;
    ensure!(t.history()?.released(&user).is_none(), "{leader} gave the Lease back with creates unanswered");
    t.until("5 pods", |seen| seen.at_rest("web", 5)).await?;
    fleet.ends_well().await?;
    t.one_writer()
}

/// While it waits a second signal ends it on the spot.
pub async fn asked_twice_to_end(t: Arc<Scene>) -> Result<()> {
    for (second, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let set = format!("web-{code}");
        let (mut fleet, leader) = waits_in_vain(&t, &set).await?;
        let operator = fleet.operator(&leader)?;
        let user = operator.user().to_owned();
        operator.ask_to_end()?;
        let early = operator.ended(Duration::from_millis(500)).await;
        ensure!(early.is_err(), "{leader} did not wait for its answers: it ended with {early:?}");
        operator.signal(second)?;
        let status = fleet.has_ended(&leader, END).await?;
        ensure!(status.code() == Some(code), "a second signal ended {leader} with {status}, not {code}");
        fleet.another_leads(&leader, Duration::from_secs(15)).await?;
        ensure!(t.history()?.released(&user).is_none(), "{leader} gave the Lease back with creates unanswered");
        t.until("5 pods", |seen| seen.at_rest(&set, 5)).await?;
        fleet.ends_well().await?;
    }
    t.one_writer()
}

/// Two replicas, the leader of which has asked for the pods of a new set and gets no answer; the leader's name.
async fn waits_in_vain(t: &Arc<Scene>, set: &str) -> Result<(Fleet, String)> {
    let mut fleet = Fleet::start_behind_proxies(t, 2, &t.settings().elected(Election::SHORT)).await?;
    let leader = fleet.leader().await?;
    fleet.proxy(&leader)?.torment(Fault::CreatesUnanswered);
    t.create_set(set, 5).await?;
    t.until("a pod of which nobody was told", |seen| match seen.live(set)?.len() {
        0 => Err("no pod".to_owned()),
        _ => Ok(()),
    })
    .await?;
    Ok((fleet, leader))
}

/// Nobody gives the Lease back: another one leads when it has run out.
pub async fn killed(t: Arc<Scene>, election: Election, times: usize) -> Result<()> {
    let mut reign = Reign::begin(&t, election).await?;
    for left in (0..times).rev() {
        let leader = reign.fleet.leader().await?;
        let when = reign.fleet.kill(&leader).await?;
        reign.is_taken_over(&leader, when).await?;
        if left > 0 {
            reign.gets_another().await?;
        }
    }
    reign.ends().await
}

/// Its time stands still in the middle of many creates, some of which are between the question whether it leads and the
/// socket. When its time goes on another one leads, and nothing of what it had begun leaves it any more.
pub async fn frozen_in_the_middle_of_creates(t: Arc<Scene>) -> Result<()> {
    let mut reign = Reign::begin(&t, Election::SHORT).await?;
    let mut dice = StdRng::seed_from_u64(seed());
    for round in 0..3 {
        let leader = reign.fleet.leader().await?;
        // So many at once that it needs new connections for them, which take their time.
        let burst: Vec<String> = (0..16).map(|n| format!("burst-{round}-{n}")).collect();
        try_join_all(burst.iter().map(|set| t.create_set(set, 10))).await?;
        let some = dice.random_range(1..=20);
        t.until(&format!("{some} pods of a burst"), |seen| {
            let there = burst.iter().filter_map(|set| seen.live(set).ok()).map(|pods| pods.len()).sum::<usize>();
            if there >= some { Ok(()) } else { Err(format!("{there} pods")) }
        })
        .await?;
        reign.fleet.operator(&leader)?.freeze()?;
        let when = Timestamp::now();
        reign.is_taken_over(&leader, when).await?;
        reign.goes_on(1).await;
        reign.fleet.operator(&leader)?.thaw()?;
        reign.ends_for_want_of_the_lease(&leader, END).await?;
        let whole = "10 pods in each set of the burst";
        t.until(whole, |seen| burst.iter().try_for_each(|set| seen.at_rest(set, 10).map(drop))).await?;
        try_join_all(burst.iter().map(|set| t.delete_set(set))).await?;
        if round < 2 {
            reign.gets_another().await?;
        }
    }
    reign.ends().await
}
