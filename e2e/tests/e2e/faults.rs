//! The operator behind a proxy that injects faults, while random users are at work. Afterwards the sets converge.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::proxy::{Fault, Fault::*, Proxy};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::{Instant, sleep};

use crate::churn::{Churn, seed};

/// A create without an answer delays the replacement of its pod by 60 s.
const CONVERGES: Duration = Duration::from_secs(120);

/// Within this time every fault strikes: after a create without an answer a set continues after 60 s.
const STRIKES: Duration = Duration::from_secs(90);

pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, faults: &'static [Fault], seconds| {
        let run = move |t| one_by_one(t, faults, Duration::from_secs(seconds));
        Scenario::new(name, run).with_processes()
    };
    vec![
        Scenario::new("fault_after_fault", all_without_a_rest).with_processes(),
        scenario("fault_connections", &[Away, Silent, AnswersLost], 12),
        scenario("fault_creates_late", &[CreatesLate], 15),
        scenario("fault_watches", &[WatchesHeld, WatchesReplayed], 15),
    ]
}

/// After each fault, all sets come to rest. The set `quiet` is scaled once, when the fault has begun, so that one pod too many shows.
async fn one_by_one(t: Arc<Scene>, faults: &[Fault], each: Duration) -> Result<()> {
    let proxy = t.proxy(seed()).await?;
    let mut operator = t.run(t.settings().behind(&proxy)).await?;
    t.create_set("quiet", 1).await?;
    let mut dice = Churn::begin(&t).await?.end(CONVERGES).await?;
    for (fault, quiet) in faults.iter().zip([9, 2].into_iter().cycle()) {
        let users = Churn::go_on(&t, dice);
        tokio::try_join!(biased; inject(&t, &proxy, *fault, each), t.scale("quiet", quiet))?;
        proxy.heal().await;
        dice = users.end(CONVERGES).await?;
        t.all_settle(&["quiet"], quiet as usize, CONVERGES).await?;
        operator.is_running()?;
        t.bound_held().await?;
    }
    Ok(())
}

/// Every fault, one right after the other, in an order that the seed decides.
async fn all_without_a_rest(t: Arc<Scene>) -> Result<()> {
    let proxy = t.proxy(seed()).await?;
    let mut operator = t.run(t.settings().behind(&proxy)).await?;
    let users = Churn::begin(&t).await?;
    let mut order = [Away, Silent, AnswersLost, CreatesLate, WatchesHeld, WatchesReplayed];
    order.shuffle(&mut StdRng::seed_from_u64(seed()));
    for fault in order {
        inject(&t, &proxy, fault, Duration::from_secs(8)).await?;
    }
    proxy.heal().await;
    users.end(CONVERGES).await?;
    operator.is_running()
}

/// Injects a fault for this time, or longer if it has not struck yet.
async fn inject(t: &Scene, proxy: &Proxy, fault: Fault, time: Duration) -> Result<()> {
    t.log(&format!("{fault:?} begins"));
    proxy.inject(fault);
    let end = Instant::now() + STRIKES;
    sleep(time).await;
    while proxy.strikes() == 0 {
        ensure!(Instant::now() < end, "{fault:?} never struck");
        sleep(Duration::from_millis(200)).await;
    }
    t.log(&format!("{fault:?} has struck {} times", proxy.strikes()));
    Ok(())
}
