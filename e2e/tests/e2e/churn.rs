//! Random users, by a seed. They scale sets, change templates, delete pods, remove labels, and delete and create sets.

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
use tokio::time::sleep;

use crate::rollouts::template;

/// The operator finds its pods by this label.
pub const LABEL: &str = "app.kubernetes.io/managed-by";

const SETS: [&str; 4] = ["red", "green", "blue", "white"];

/// The seed: `E2E_SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("E2E_SEED").map_or(1, |seed| seed.parse().expect("E2E_SEED is a number"))
}

async fn create(t: &Scene, set: &str, replicas: i64) -> Result<()> {
    let policy = if matches!(set, "blue" | "white") { "TerminationComplete" } else { "TerminationStarted" };
    let mut template = template("first", false);
    // Real containers would take 30 s to terminate.
    template["spec"]["terminationGracePeriodSeconds"] = json!(1);
    let spec = json!({"replicas": replicas, "podReplacementPolicy": policy, "template": template});
    t.create_set_from(set, spec).await
}

/// Every set has the pods that its spec wants, of its template, and a status that says so.
fn are_at_rest(seen: &View) -> Seen {
    SETS.iter().try_for_each(|set| {
        let (wanted, updated) = (seen.set(set)?.spec.replicas, seen.set(set)?.state().updated_replicas);
        seen.at_rest(set, wanted as usize)?;
        if updated == wanted { Ok(()) } else { Err(format!("{updated} of {wanted} pods of {set} have its template")) }
    })
}

async fn act(t: &Scene, dice: &mut StdRng) -> Result<()> {
    let set = SETS.choose(dice).expect("there are sets");
    match dice.random_range(0..100) {
        0..40 => t.scale(set, dice.random_range(1..=10)).await?,
        40..46 => {
            let version = dice.random_range(0..1000).to_string();
            t.patch_set(set, json!({"spec": {"template": template(&version, false)}})).await?;
        }
        // The pods may be gone by now.
        46..90 => {
            for pod in some_pods(t, dice, set) {
                let _ = t.delete_pod(&pod).await;
            }
        }
        90..96 => {
            if let Some(pod) = some_pods(t, dice, set).first() {
                let _ = t.patch_pod(pod, json!({"metadata": {"labels": {LABEL: null}}})).await;
            }
        }
        _ => {
            t.delete_set(set).await?;
            create(t, set, dice.random_range(1..=10)).await?;
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

/// Users that act until they are stopped.
pub struct Churn {
    t: Arc<Scene>,
    stop: oneshot::Sender<()>,
    work: JoinSet<Result<StdRng>>,
}

impl Churn {
    /// Creates the sets and begins.
    pub async fn begin(t: &Arc<Scene>) -> Result<Self> {
        for set in SETS {
            create(t, set, 3).await?;
        }
        Ok(Self::go_on(t, StdRng::seed_from_u64(seed())))
    }

    /// Begins with sets that exist.
    pub fn go_on(t: &Arc<Scene>, mut dice: StdRng) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let scene = t.clone();
        let mut work = JoinSet::new();
        work.spawn(async move {
            while stopped.try_recv().is_err() {
                act(&scene, &mut dice).await?;
            }
            Ok(dice)
        });
        Self { t: t.clone(), stop, work }
    }

    /// Stops the users, and waits until every set is at rest.
    pub async fn end(mut self, limit: Duration) -> Result<StdRng> {
        // The receiver is gone only if an action has failed, which the next line reports.
        let _ = self.stop.send(());
        let dice = self.work.join_next().await.context("there are no users")???;
        let what = format!("all sets to come to rest (E2E_SEED={})", seed());
        self.t.within(limit, &what, are_at_rest).await?;
        Ok(dice)
    }
}
