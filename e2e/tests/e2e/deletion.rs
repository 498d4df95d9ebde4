//! A set is deleted with the other propagation policies: in the foreground, and so that its pods become orphans.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::observe::view::{Seen, View};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use kube::api::DeleteParams;
use serde_json::json;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("deletion_in_the_foreground", in_the_foreground),
        Scenario::new("deletion_that_orphans", that_orphans),
    ]
}

/// The set waits for its last pod, here one with a finalizer, and gets no new ones.
async fn in_the_foreground(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set("web", 3).await?;
    let pods = t.settles("web", 3).await?;
    t.patch_pod(&pods[0], json!({"metadata": {"finalizers": ["example.com/hold"]}})).await?;
    t.sets().delete("web", &DeleteParams::foreground()).await?;
    t.until("the set to wait for the pod with a finalizer", |seen| {
        seen.has_live("web", 0)?;
        seen.conditions("web", &[("Ready", "False/Deleting"), ("Reconciling", "True/Deleting")])
    })
    .await?;
    t.patch_pod(&pods[0], json!({"metadata": {"finalizers": null}})).await?;
    t.until("the set to go", is_gone).await?;
    t.has_events("web", &["ScaledUp"]).await
}

/// The pods of the deleted set stay. A new set of the same name does not adopt them.
async fn that_orphans(t: Arc<Scene>) -> Result<()> {
    t.operator().await?;
    t.create_set("web", 3).await?;
    let orphans = t.settles("web", 3).await?;
    t.sets().delete("web", &DeleteParams::orphan()).await?;
    t.until("the set to go", is_gone).await?;
    t.until("its pods to have no owner", |seen| have_no_owner(seen, &orphans)).await?;

    t.create_set("web", 2).await?;
    let two = t.settles("web", 2).await?;
    ensure!(two.iter().all(|pod| !orphans.contains(pod)), "the new set adopted some of {orphans:?}: {two:?}");
    t.scale("web", 1).await?;
    t.settles("web", 1).await?;
    t.look(|seen| have_no_owner(seen, &orphans)).map_err(anyhow::Error::msg)
}

fn is_gone(seen: &View) -> Seen {
    if seen.set("web").is_err() { Ok(()) } else { Err("the set is there".to_owned()) }
}

fn have_no_owner(seen: &View, pods: &[String]) -> Seen {
    for name in pods {
        let pod = seen.pod(name)?;
        if pod.owner().is_some() || !pod.is_live() {
            return Err(format!("{name} is owned by {:?}, live: {}", pod.owner(), pod.is_live()));
        }
    }
    Ok(())
}
