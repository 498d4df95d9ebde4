//! People at work, and what they do follows from a seed: sets are scaled, pods killed, labels taken away, sets made anew.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use kube::ResourceExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const LABEL: &str = "app.kubernetes.io/managed-by";

const SETS: [&str; 3] = ["red", "green", "blue"];

/// The seed: `E2E_SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("E2E_SEED").map_or(1, |seed| seed.parse().expect("E2E_SEED is a number"))
}

/// Makes the sets.
pub async fn create_sets(t: &Scene) -> Result<()> {
    for set in SETS {
        t.create_set(set, 3).await?;
    }
    Ok(())
}

/// Every set has what its spec wants, and a status that says so.
pub fn are_at_rest(seen: &View) -> Seen {
    SETS.iter().try_for_each(|set| {
        let wanted = seen.set(set)?.spec.replicas;
        seen.at_rest(set, wanted as usize).map(drop)
    })
}

/// Stirs for so long.
pub async fn stir(t: &Scene, dice: &mut StdRng, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        stir_once(t, dice).await?;
    }
    Ok(())
}

async fn stir_once(t: &Scene, dice: &mut StdRng) -> Result<()> {
    let set = SETS.choose(dice).expect("there are sets");
    match dice.random_range(0..100) {
        0..45 => t.scale(set, dice.random_range(1..=10)).await?,
        45..90 => {
            for pod in some_pods(t, dice, set) {
                // It may be gone by now.
                let _ = t.delete_pod(&pod).await;
            }
        }
        90..96 => {
            for pod in some_pods(t, dice, set).iter().take(1) {
                let _ = t.patch_pod(pod, json!({"metadata": {"labels": {LABEL: null}}})).await;
            }
        }
        _ => {
            t.delete_set(set).await?;
            t.create_set(set, dice.random_range(1..=10)).await?;
        }
    }
    sleep(Duration::from_millis(dice.random_range(100..900))).await;
    Ok(())
}

/// The names of up to three live pods of the set.
fn some_pods(t: &Scene, dice: &mut StdRng, set: &str) -> Vec<String> {
    let live = t.look(|seen| seen.live(set).map(|pods| pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>()));
    let count = dice.random_range(1..=3);
    live.unwrap_or_default().sample(dice, count).cloned().collect()
}

/// Stirs until it is told to stop, or dropped.
pub struct Stirring {
    t: Arc<Scene>,
    stop: oneshot::Sender<()>,
    work: JoinSet<Result<()>>,
}

impl Stirring {
    /// Makes the sets and begins.
    pub async fn begin(t: &Arc<Scene>) -> Result<Self> {
        create_sets(t).await?;
        let (stop, mut stopped) = oneshot::channel();
        let scene = t.clone();
        let mut work = JoinSet::new();
        work.spawn(async move {
            let mut dice = StdRng::seed_from_u64(seed());
            while stopped.try_recv().is_err() {
                stir_once(&scene, &mut dice).await?;
            }
            Ok(())
        });
        Ok(Self { t: t.clone(), stop, work })
    }

    /// Stops, and waits until every set is at rest, so long at most.
    pub async fn end(mut self, limit: Duration) -> Result<()> {
        // The receiver is gone only where the work has failed, which is told next.
        let _ = self.stop.send(());
        self.work.join_next().await.context("nobody was at work")???;
        let what = format!("all sets to come to rest (E2E_SEED={})", seed());
        self.t.within(limit, &what, are_at_rest).await
    }
}
