//! The operator behind a proxy that torments it, one fault at a time, while sets are scaled and pods die. The bound
//! holds at every event, and when the fault ends the sets converge and their status is right.
//!
//! What is done, and when, follows from a seed: `E2E_SEED` sets another one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::proxy::{Fault, Proxy};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use kube::ResourceExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep};

/// A create that was never answered holds its pod's replacement back for 60 s, and may land 20 s late.
const CONVERGES: Duration = Duration::from_secs(120);

const SETS: [&str; 3] = ["red", "green", "blue"];

pub fn scenarios() -> Vec<Scenario> {
    use Fault::*;
    vec![
        Scenario::new("fault_creates_late", |t| {
            under(t, &[CreatesLate], Duration::from_secs(30))
        }),
        Scenario::new("fault_creates_cut", |t| {
            under(t, &[CreatesCut], Duration::from_secs(15))
        }),
        Scenario::new("fault_writes_done_but_failed", |t| {
            under(t, &[WritesDoneButFailed], Duration::from_secs(15))
        }),
        Scenario::new("fault_writes_done_but_refused", |t| {
            under(t, &[WritesDoneButRefused], Duration::from_secs(15))
        }),
        Scenario::new("fault_writes_refused", |t| {
            under(t, &[WritesRefused], Duration::from_secs(15))
        }),
        Scenario::new("fault_watches", |t| {
            under(
                t,
                &[WatchesHeld, WatchesLate, WatchesReplayed, WatchesEnded],
                Duration::from_secs(12),
            )
        }),
        Scenario::new("fault_after_fault", |t| under(t, &Fault::ALL, Duration::from_secs(6))),
    ]
}

/// Each of the faults in turn, in an order that the seed decides, for so long.
async fn under(t: Arc<Scene>, faults: &'static [Fault], each: Duration) -> Result<()> {
    let seed = std::env::var("E2E_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut dice = StdRng::seed_from_u64(seed);
    let proxy = Proxy::start(t.cluster().config().await?, seed).await?;
    let mut operator = t.operator_at(&proxy.write_kubeconfig(&t.file("proxy.yaml"))?, &[t.namespace()])?;
    for set in SETS {
        t.create_set(set, 3).await?;
    }
    converge(&t, "before any fault").await?;
    let mut order = faults.to_vec();
    order.shuffle(&mut dice);
    for fault in order {
        proxy.torment(fault);
        stir(&t, &mut dice, each).await?;
        proxy.relent();
        let strikes = proxy.strikes();
        operator.is_running()?;
        ensure!(strikes > 0, "{fault:?} never struck: it proves nothing");
        let what = format!("after {fault:?}, which struck {strikes} times (E2E_SEED={seed})");
        converge(&t, &what).await.with_context(|| what)?;
        t.bound_held().await?;
    }
    Ok(())
}

/// Scales the sets and deletes pods for so long.
async fn stir(t: &Scene, dice: &mut StdRng, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let set = SETS.choose(dice).expect("there are sets");
        if dice.random_bool(0.5) {
            t.scale(set, dice.random_range(1..=10)).await?;
        } else {
            let live = t.look(|seen| {
                seen.live(set)
                    .map(|pods| pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>())
            });
            if let Some(pod) = live.map_err(anyhow::Error::msg)?.choose(dice) {
                // It may be gone by now.
                let _ = t.delete_pod(pod).await;
            }
        }
        sleep(Duration::from_millis(dice.random_range(100..900))).await;
    }
    Ok(())
}

/// Every set comes to rest at what its spec wants, with a status that says so.
async fn converge(t: &Scene, when: &str) -> Result<()> {
    t.within(CONVERGES, &format!("all sets to come to rest {when}"), |seen| {
        SETS.iter().try_for_each(|set| {
            let wanted = seen.set(set)?.spec.replicas;
            seen.at_rest(set, wanted as usize).map(drop)
        })
    })
    .await
}
