//! The operator behind a proxy that torments it, one fault at a time, while sets are scaled and pods die. The bound
//! holds at every event, and when the fault ends the sets converge and their status is right.
//!
//! What is done, and when, follows from a seed: `E2E_SEED` sets another one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::operator::Operator;
use e2e::proxy::{Fault, Proxy};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::{Instant, sleep};

use crate::stir::{are_at_rest, create_sets, seed, stir};

/// A create that was never answered holds its pod's replacement back for 60 s, and may land 20 s late.
const CONVERGES: Duration = Duration::from_secs(120);

/// Within this time every fault meets what it strikes: sets go on after a create without an answer in 60 s.
const STRIKES: Duration = Duration::from_secs(90);

pub fn scenarios() -> Vec<Scenario> {
    use Fault::*;
    let seconds = Duration::from_secs;
    vec![
        Scenario::new("fault_after_fault", move |t| without_a_rest(t, seconds(5))),
        Scenario::new("fault_creates_late", move |t| under(t, &[CreatesLate], seconds(30))),
        Scenario::new("fault_create_lands_after_its_pod_died", lands_after_its_pod_died),
        Scenario::new("fault_creates_cut", move |t| under(t, &[CreatesCut], seconds(15))),
        Scenario::new("fault_writes_done_but_failed", move |t| under(t, &[WritesDoneButFailed], seconds(15))),
        Scenario::new("fault_writes_done_but_refused", move |t| under(t, &[WritesDoneButRefused], seconds(15))),
        Scenario::new("fault_writes_refused", move |t| under(t, &[WritesRefused, Away], seconds(12))),
        Scenario::new("fault_watches_held_and_late", move |t| under(t, &[WatchesHeld, WatchesLate], seconds(15))),
        Scenario::new("fault_watches_replayed_and_ended", move |t| {
            under(t, &[WatchesReplayed, WatchesEnded], seconds(15))
        }),
    ]
}

/// These faults, for so long each, and after each of them the operator has to bring everything into order.
async fn under(t: Arc<Scene>, faults: &'static [Fault], each: Duration) -> Result<()> {
    let mut torment = Torment::begin(&t).await?;
    for fault in faults {
        torment.by(*fault, each).await?;
        torment.ends(&format!("after {fault:?}")).await?;
    }
    Ok(())
}

/// Every fault, for so long each, in an order that the seed decides, and one right after the other.
async fn without_a_rest(t: Arc<Scene>, each: Duration) -> Result<()> {
    let mut torment = Torment::begin(&t).await?;
    let mut order = Fault::ALL;
    order.shuffle(&mut torment.dice);
    for fault in order {
        torment.by(fault, each).await?;
    }
    torment.ends(&format!("after {order:?}")).await
}

/// The first create of a pod is on its way for long; a second one of the same name makes the pod, which dies; and when
/// it has been replaced, the first create lands.
async fn lands_after_its_pod_died(t: Arc<Scene>) -> Result<()> {
    let proxy = t.proxy(1).await?;
    proxy.torment(Fault::FirstCreatesLate);
    let mut operator = t.operator_behind(&proxy).await?;
    let sets: Vec<String> = (0..8).map(|n| format!("set-{n}")).collect();
    for set in &sets {
        t.create_set(set, 1).await?;
    }
    for set in &sets {
        let pods = t.until("the pod that was asked for twice", |seen| seen.has_live(set, 1)).await?;
        t.delete_pod(&pods[0]).await?;
    }
    ensure!(proxy.strikes() >= sets.len(), "{} creates were late, too few", proxy.strikes());
    let both_are_there = Duration::from_secs(45);
    sleep(both_are_there).await;
    proxy.relent();
    operator.is_running()?;
    t.within(CONVERGES, "1 pod in each set", |seen| sets.iter().try_for_each(|set| seen.at_rest(set, 1).map(drop)))
        .await
}

/// An operator behind its proxy, some sets, and the dice that decide what happens to them.
struct Torment<'t> {
    t: &'t Scene,
    proxy: Proxy,
    operator: Operator,
    dice: StdRng,
    seed: u64,
}

impl<'t> Torment<'t> {
    async fn begin(t: &'t Scene) -> Result<Self> {
        let seed = seed();
        let proxy = t.proxy(seed).await?;
        let operator = t.operator_behind(&proxy).await?;
        create_sets(t).await?;
        let mut begun = Self { t, proxy, operator, dice: StdRng::seed_from_u64(seed), seed };
        begun.ends("before any fault").await?;
        Ok(begun)
    }

    /// Lets the fault strike for so long, while people are at work; for longer if it has not struck by then: the operator may
    /// still wait for what a former fault held back.
    async fn by(&mut self, fault: Fault, time: Duration) -> Result<()> {
        self.t.tell(&format!("{fault:?} begins"));
        self.proxy.torment(fault);
        let end = Instant::now() + STRIKES;
        stir(self.t, &mut self.dice, time).await?;
        while self.proxy.strikes() == 0 && Instant::now() < end {
            stir(self.t, &mut self.dice, time).await?;
        }
        let strikes = self.proxy.strikes();
        self.t.tell(&format!("{fault:?} has struck {strikes} times"));
        ensure!(strikes > 0, "{fault:?} never struck: it proves nothing");
        self.operator.is_running()
    }

    /// No fault any more: every set comes to rest at what its spec wants, with a status that says so.
    async fn ends(&mut self, when: &str) -> Result<()> {
        self.proxy.relent();
        let what = format!("all sets to come to rest {when} (E2E_SEED={})", self.seed);
        self.t.within(CONVERGES, &what, are_at_rest).await?;
        self.operator.is_running()?;
        self.t.bound_held().await.map(drop)
    }
}
