//! The operator behind a proxy that injects faults, while random users are at work. After each fault the sets converge.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::needs::Need::*;
use e2e::operator::Operator;
use e2e::proxy::{Fault, Proxy};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::Instant;

use crate::churn::{are_at_rest, churn, create_sets, seed};

/// A create without an answer delays the replacement of its pod by 60 s.
const CONVERGES: Duration = Duration::from_secs(120);

/// Within this time every fault strikes: after a create without an answer a set continues after 60 s.
const STRIKES: Duration = Duration::from_secs(90);

pub fn scenarios() -> Vec<Scenario> {
    use Fault::*;
    let scenario = |name, faults: &'static [Fault], seconds| {
        let run = move |t| one_by_one(t, faults, Duration::from_secs(seconds));
        Scenario::new(name, run).needs(&[Processes, SimulatedPods])
    };
    vec![
        Scenario::new("fault_after_fault", all_without_a_rest).needs(&[Processes, SimulatedPods]),
        scenario("fault_connections", &[Away, Silent, AnswersLost], 12),
        scenario("fault_creates_unanswered", &[CreatesUnanswered], 15),
        scenario("fault_watches", &[WatchesHeld, WatchesReplayed, WatchesEnded], 15),
    ]
}

/// After each fault, all sets come to rest.
async fn one_by_one(t: Arc<Scene>, faults: &[Fault], each: Duration) -> Result<()> {
    let mut injection = FaultInjection::begin(&t).await?;
    for fault in faults {
        injection.inject(*fault, each).await?;
        injection.ends(&format!("after {fault:?}")).await?;
    }
    Ok(())
}

/// Every fault, one right after the other, in an order that the seed decides.
async fn all_without_a_rest(t: Arc<Scene>) -> Result<()> {
    let mut injection = FaultInjection::begin(&t).await?;
    let mut order = Fault::ALL;
    order.shuffle(&mut injection.dice);
    for fault in order {
        injection.inject(fault, Duration::from_secs(8)).await?;
    }
    injection.ends(&format!("after {order:?}")).await
}

/// An operator behind a proxy, some sets, and the dice that decide what the users do.
struct FaultInjection<'t> {
    t: &'t Scene,
    proxy: Proxy,
    operator: Operator,
    dice: StdRng,
}

impl<'t> FaultInjection<'t> {
    async fn begin(t: &'t Scene) -> Result<Self> {
        let proxy = t.proxy(seed()).await?;
        let operator = t.run(t.settings().behind(&proxy)).await?;
        create_sets(t).await?;
        let mut begun = Self { t, proxy, operator, dice: StdRng::seed_from_u64(seed()) };
        begun.ends("before any fault").await?;
        Ok(begun)
    }

    /// Injects a fault while users are at work, until it has struck.
    async fn inject(&mut self, fault: Fault, time: Duration) -> Result<()> {
        self.t.log(&format!("{fault:?} begins"));
        self.proxy.inject(fault);
        let end = Instant::now() + STRIKES;
        churn(self.t, &mut self.dice, time).await?;
        while self.proxy.strikes() == 0 && Instant::now() < end {
            churn(self.t, &mut self.dice, time).await?;
        }
        self.t.log(&format!("{fault:?} has struck {} times", self.proxy.strikes()));
        ensure!(self.proxy.strikes() > 0, "{fault:?} never struck");
        self.operator.is_running()
    }

    /// Ends the fault. Every set comes to rest.
    async fn ends(&mut self, when: &str) -> Result<()> {
        self.proxy.heal();
        let what = format!("all sets to come to rest {when} (E2E_SEED={})", seed());
        self.t.within(CONVERGES, &what, are_at_rest).await?;
        self.operator.is_running()?;
        self.t.bound_held().await.map(drop)
    }
}
