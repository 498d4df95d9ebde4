//! The API server cannot be reached, or not be heard, by the leader alone.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::operator::Election;
use e2e::proxy::Fault;
use e2e::scene::Scene;
use k8s_openapi::jiff::Timestamp;

use super::{END, Reign};

/// For good: it stops by itself, and another one leads.
pub async fn by(t: Arc<Scene>, fault: Fault) -> Result<()> {
    let mut reign = Reign::begin_behind_proxies(&t, Election::SHORT).await?;
    let leader = reign.fleet.leader().await?;
    let cut = Timestamp::now();
    reign.fleet.proxy(&leader)?.torment(fault);
    t.tell(&format!("{leader} is cut off: {fault:?}"));
    let next = reign.is_taken_over(&leader, cut).await?;
    let strikes = reign.fleet.proxy(&leader)?.strikes();
    ensure!(strikes > 0, "{fault:?} never struck: it proves nothing");
    // What is left of it, if anything is, goes on where it was.
    reign.fleet.proxy(&leader)?.relent();
    reign.ends_for_want_of_the_lease(&leader, END).await?;
    reign.goes_on(3).await;
    ensure!(reign.fleet.leader().await? == next, "{next} does not lead any more");
    reign.ends().await
}

/// It is heard and hears nothing of what becomes of its writes, renewals too: it stops as if none of them had arrived, while
/// the others see its Lease renewed until it does.
pub async fn from_the_answers_to_its_writes(t: Arc<Scene>) -> Result<()> {
    let mut reign = Reign::begin_behind_proxies(&t, Election::SHORT).await?;
    let leader = reign.fleet.leader().await?;
    reign.fleet.proxy(&leader)?.torment(Fault::WritesUnanswered);
    let deadline = Duration::from_secs(Election::SHORT.renew_deadline);
    reign.ends_for_want_of_the_lease(&leader, deadline + END).await?;
    let ended = Timestamp::now();
    reign.is_taken_over(&leader, ended).await?;
    reign.ends().await
}

/// What they watch stands still, comes late, comes again, or ends: the Lease as they see it is not the Lease as it is.
/// Whoever leads leads on, and nobody believes that a Lease has run out which is renewed.
pub async fn from_what_they_watch(t: Arc<Scene>) -> Result<()> {
    let mut reign = Reign::begin_behind_proxies(&t, Election::SHORT).await?;
    let leader = reign.fleet.leader().await?;
    for fault in [Fault::WatchesHeld, Fault::WatchesLate, Fault::WatchesReplayed, Fault::WatchesEnded] {
        for name in reign.fleet.names() {
            reign.fleet.proxy(&name)?.torment(fault);
        }
        reign.goes_on(2 * Election::SHORT.lease_duration).await;
        ensure!(reign.fleet.leader().await? == leader, "under {fault:?}, {leader} lost a Lease that it renewed");
    }
    for name in reign.fleet.names() {
        reign.fleet.proxy(&name)?.relent();
    }
    reign.ends().await
}

/// Shorter than the renew deadline: it leads on.
pub async fn for_a_moment(t: Arc<Scene>) -> Result<()> {
    let mut reign = Reign::begin_behind_proxies(&t, Election::DEFAULT).await?;
    let leader = reign.fleet.leader().await?;
    for fault in [Fault::Away, Fault::Silent, Fault::AnswersLost] {
        reign.fleet.proxy(&leader)?.torment(fault);
        reign.goes_on(3).await;
        reign.fleet.proxy(&leader)?.relent();
        reign.goes_on(5).await;
        reign.fleet.operator(&leader)?.is_running()?;
    }
    let terms = t.history()?.terms().len();
    ensure!(terms == 1, "there were {terms} terms");
    reign.ends().await
}
