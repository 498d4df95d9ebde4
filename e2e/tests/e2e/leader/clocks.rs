//! Clocks of the day that are minutes apart: nobody takes a Lease that lives, and one that is dead is taken in time.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::fleet::Fleet;
use e2e::operator::{Election, Settings, build_wall_clock};
use e2e::scene::Scene;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Reign;

/// Seconds by which the three clocks are ahead.
const AHEAD: [i64; 3] = [300, -300, 0];

pub async fn apart(t: Arc<Scene>) -> Result<()> {
    let library = build_wall_clock(&t.file("")).await?;
    let mut fleet = Fleet::new(&t);
    for seconds in AHEAD {
        let ahead = Some((seconds, library.clone()));
        let name = fleet.add(Settings { ahead, ..t.settings().elected(Election::SHORT) }).await?;
        fleet.is_complete().await?;
        reads_another_time(&mut fleet, &name, seconds)?;
    }
    let mut reign = Reign::of(&t, fleet, Election::SHORT).await?;
    for _ in 0..2 {
        let leader = reign.fleet.leader().await?;
        reign.goes_on(2 * Election::SHORT.lease_duration).await;
        ensure!(reign.fleet.leader().await? == leader, "{leader} lost a Lease that it renewed");
        let when = reign.fleet.kill(&leader).await?;
        reign.is_taken_over(&leader, when).await?;
    }
    reign.ends().await
}

/// The times in its log are those of its own clock.
fn reads_another_time(fleet: &mut Fleet, name: &str, seconds: i64) -> Result<()> {
    let log = fleet.operator(name)?.said("begins");
    let time = log.first().and_then(|line| line.split_whitespace().next()).context("the log has no first line")?;
    let ahead = time.parse::<Timestamp>()?.duration_since(Timestamp::now());
    let off = ahead - SignedDuration::from_secs(seconds);
    ensure!(off.abs() < SignedDuration::from_secs(60), "the clock of {name} is {ahead:#} ahead, not {seconds} s");
    Ok(())
}
