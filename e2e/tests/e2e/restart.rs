//! The operator is killed in the middle of its work, and terminated in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;
use futures::future::try_join_all;

const SETS: usize = 10;

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("restart_in_the_middle", in_the_middle).with_processes()]
}

async fn in_the_middle(t: Arc<Scene>) -> Result<()> {
    let sets: Vec<String> = (0..SETS).map(|n| format!("set-{n}")).collect();
    let mut operator = t.run(t.settings()).await?;
    try_join_all(sets.iter().map(|set| t.create_set(set, 10))).await?;
    for some in [5, 30, 60] {
        t.until(&format!("{some} pods"), |seen| seen.live_pods_are(|pods| pods >= some)).await?;
        operator.kill().await?;
        operator = t.run(t.settings()).await?;
    }
    t.until("90 pods", |seen| seen.live_pods_are(|pods| pods >= 90)).await?;
    // The last operator may not handle signals yet. Once pods are deleted, it runs, because the others are dead.
    try_join_all(sets.iter().map(|set| t.scale(set, 8))).await?;
    t.until("less than 90 pods", |seen| seen.live_pods_are(|pods| pods < 90)).await?;
    let status = operator.terminate(Duration::from_secs(20)).await?;
    ensure!(status.code() == Some(0), "SIGTERM ended it with {status}");
    let operator = t.run(t.settings()).await?;
    t.all_settle(&sets, 8, PATIENCE).await?;

    try_join_all(sets.iter().map(|set| t.scale(set, 2))).await?;
    t.until("the first pods to go", |seen| seen.live_pods_are(|pods| pods <= 70)).await?;
    operator.kill().await?;
    try_join_all(sets.iter().map(|set| t.scale(set, 7))).await?;
    t.operator().await?;
    t.all_settle(&sets, 7, PATIENCE).await
}
