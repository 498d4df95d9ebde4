//! A set grows, a set shrinks: the pods that are there are left alone, and what was done is told once.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use kube::ResourceExt;

pub async fn up(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 1).await?;
    let one = t.until("1 pod", |seen| seen.at_rest("web", 1)).await?;
    t.scale("web", 10).await?;
    let ten = t.until("10 pods", |seen| seen.at_rest("web", 10)).await?;
    ensure!(ten.contains(&one[0]), "scaling {one:?} up made {ten:?}: the pod was replaced");
    tells(&t, &["ScaledUp", "ScaledUp"]).await
}

pub async fn down(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 10).await?;
    let ten = t.until("10 pods", |seen| seen.at_rest("web", 10)).await?;
    let uids: Vec<_> = t.look(|seen| seen.pods.all().map(|pod| pod.uid()).collect());
    t.scale("web", 3).await?;
    let three = t.until("3 of the 10 pods", |seen| seen.at_rest("web", 3)).await?;
    ensure!(three.iter().all(|pod| ten.contains(pod)), "scaling {ten:?} down left {three:?}: pods were replaced");
    for pod in &three {
        ensure!(uids.contains(&t.stored_pod(pod).await?.uid()), "{pod} is another pod of the same name");
    }
    tells(&t, &["ScaledUp", "ScaledDown"]).await
}

async fn tells(t: &Scene, reasons: &[&str]) -> Result<()> {
    t.until(&format!("the events {reasons:?}"), |seen| {
        let told = seen.events_about("web");
        let are: Vec<_> = told.iter().filter_map(|event| event.split(':').next()).collect();
        if are == reasons { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
}
