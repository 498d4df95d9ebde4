//! The operator ends: in the middle of its work, killed; and in an orderly way, asked to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::observe::view::View;
use e2e::scene::Scene;
use futures::future::try_join_all;

const SETS: usize = 10;

pub async fn in_the_middle(t: Arc<Scene>) -> Result<()> {
    let sets = names();
    let mut operator = t.operator()?;
    try_join_all(sets.iter().map(|set| t.create_set(set, 10))).await?;
    for some in [5, 30, 60] {
        t.until(&format!("{some} pods"), |seen| at_least(seen, some)).await?;
        operator.kill().await?;
        operator = t.operator()?;
    }
    t.until("10 pods in each set", |seen| {
        sets.iter().try_for_each(|set| seen.at_rest(set, 10).map(drop))
    })
    .await?;

    try_join_all(sets.iter().map(|set| t.scale(set, 2))).await?;
    t.until("the first pods to go", |seen| at_most(seen, 90)).await?;
    operator.kill().await?;
    try_join_all(sets.iter().take(5).map(|set| t.scale(set, 7))).await?;
    let _operator = t.operator()?;
    t.until("7 pods in half of the sets, 2 in the others", |seen| {
        let wanted = sets.iter().enumerate().map(|(n, set)| (set, if n < 5 { 7 } else { 2 }));
        wanted
            .into_iter()
            .try_for_each(|(set, n)| seen.at_rest(set, n).map(drop))
    })
    .await
}

pub async fn in_an_orderly_way(t: Arc<Scene>) -> Result<()> {
    let sets = names();
    let operator = t.operator()?;
    try_join_all(sets.iter().map(|set| t.create_set(set, 10))).await?;
    t.until("the first pods", |seen| at_least(seen, 5)).await?;
    let end = operator.terminate(Duration::from_secs(20)).await?;
    ensure!(end.code() == Some(0), "at work, SIGTERM ended it with {end}");

    let operator = t.operator()?;
    t.until("10 pods in each set", |seen| {
        sets.iter().try_for_each(|set| seen.at_rest(set, 10).map(drop))
    })
    .await?;
    let began = Instant::now();
    let end = operator.terminate(Duration::from_secs(20)).await?;
    ensure!(end.code() == Some(0), "at rest, SIGTERM ended it with {end}");
    ensure!(
        began.elapsed() < Duration::from_secs(3),
        "at rest, it took {:?} to end",
        began.elapsed()
    );
    Ok(())
}

fn names() -> Vec<String> {
    (0..SETS).map(|n| format!("set-{n}")).collect()
}

fn at_least(seen: &View, pods: usize) -> Result<(), String> {
    let there = live(seen);
    if there >= pods {
        Ok(())
    } else {
        Err(format!("{there} live pods"))
    }
}

fn at_most(seen: &View, pods: usize) -> Result<(), String> {
    let there = live(seen);
    if there <= pods {
        Ok(())
    } else {
        Err(format!("{there} live pods"))
    }
}

fn live(seen: &View) -> usize {
    seen.pods.all().filter(|pod| pod.is_live()).count()
}
