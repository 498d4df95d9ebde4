//! The operator ends: in the middle of its work, killed; and in an orderly way, asked to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::observe::view::View;
use e2e::proxy::Fault;
use e2e::scene::Scene;
use futures::future::try_join_all;
use tokio::time::sleep;

const SETS: usize = 10;

pub async fn in_the_middle(t: Arc<Scene>) -> Result<()> {
    let sets = names();
    let mut operator = t.operator().await?;
    try_join_all(sets.iter().map(|set| t.create_set(set, 10))).await?;
    for some in [5, 30, 60] {
        t.until(&format!("{some} pods"), |seen| at_least(seen, some)).await?;
        operator.kill().await?;
        operator = t.operator().await?;
    }
    t.until("10 pods in each set", |seen| all_at_rest(seen, 10)).await?;

    try_join_all(sets.iter().map(|set| t.scale(set, 2))).await?;
    t.until("the first pods to go", |seen| at_most(seen, 90)).await?;
    operator.kill().await?;
    try_join_all(sets.iter().take(5).map(|set| t.scale(set, 7))).await?;
    let _operator = t.operator().await?;
    t.until("7 pods in half of the sets, 2 in the others", |seen| {
        let wanted = sets.iter().enumerate().map(|(n, set)| (set, if n < 5 { 7 } else { 2 }));
        wanted.into_iter().try_for_each(|(set, n)| seen.at_rest(set, n).map(drop))
    })
    .await
}

/// Creates of a killed operator land long after its successor has begun: both ask for the same names.
pub async fn while_creates_are_late(t: Arc<Scene>) -> Result<()> {
    let proxy = t.proxy(1).await?;
    let mut operator = t.operator_behind(&proxy).await?;
    for set in names() {
        t.create_set(&set, 1).await?;
    }
    t.until("1 pod in each set", |seen| all_at_rest(seen, 1)).await?;
    proxy.torment(Fault::CreatesLate);
    for (round, wanted) in [4, 7, 10].into_iter().enumerate() {
        for set in names() {
            t.scale(&set, wanted).await?;
        }
        t.until("creates to be on their way", |seen| at_least(seen, SETS + (round + 1) * 5)).await?;
        t.tell(&format!("{} creates are late", proxy.strikes()));
        ensure!(proxy.strikes() > 0, "no create is late: it proves nothing");
        operator.kill().await?;
        operator = t.operator_behind(&proxy).await?;
    }
    proxy.relent();
    t.until("10 pods in each set", |seen| all_at_rest(seen, 10)).await?;
    // The last of the late ones lands within 20 s.
    sleep(Duration::from_secs(20)).await;
    t.until("still 10 pods in each set", |seen| all_at_rest(seen, 10)).await
}

pub async fn in_an_orderly_way(t: Arc<Scene>) -> Result<()> {
    let sets = names();
    let operator = t.operator().await?;
    try_join_all(sets.iter().map(|set| t.create_set(set, 10))).await?;
    t.until("the first pods", |seen| at_least(seen, 5)).await?;
    let end = operator.terminate(Duration::from_secs(20)).await?;
    ensure!(end.code() == Some(0), "at work, SIGTERM ended it with {end}");

    let operator = t.operator().await?;
    t.until("10 pods in each set", |seen| all_at_rest(seen, 10)).await?;
    let began = Instant::now();
    let end = operator.terminate(Duration::from_secs(20)).await?;
    ensure!(end.code() == Some(0), "at rest, SIGTERM ended it with {end}");
    ensure!(began.elapsed() < Duration::from_secs(3), "at rest, it took {:?} to end", began.elapsed());
    Ok(())
}

fn names() -> Vec<String> {
    (0..SETS).map(|n| format!("set-{n}")).collect()
}

fn all_at_rest(seen: &View, pods: usize) -> Result<(), String> {
    names().iter().try_for_each(|set| seen.at_rest(set, pods).map(drop))
}

fn at_least(seen: &View, pods: usize) -> Result<(), String> {
    let there = live(seen);
    if there >= pods { Ok(()) } else { Err(format!("{there} live pods")) }
}

fn at_most(seen: &View, pods: usize) -> Result<(), String> {
    let there = live(seen);
    if there <= pods { Ok(()) } else { Err(format!("{there} live pods")) }
}

fn live(seen: &View) -> usize {
    seen.pods.all().filter(|pod| pod.is_live()).count()
}
