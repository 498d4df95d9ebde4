//! The API server cannot be reached, or not be heard, by the leader alone.

use std::sync::Arc;

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
