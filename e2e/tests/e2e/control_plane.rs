//! A part of the control plane dies and comes back. The operator waits for them, and in the end all is as it should be.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use e2e::scene::Scene;
use kube::ResourceExt;
use tokio::time::sleep;

const SETS: [&str; 3] = ["red", "green", "blue"];

/// A create that was under way may have landed or not: its name counts as a pod for 60 s.
const CONVERGES: Duration = Duration::from_secs(150);

pub async fn api_server_restarts(t: Arc<Scene>) -> Result<()> {
    dies_and_comes_back(&t, "kube-apiserver").await
}

async fn dies_and_comes_back(t: &Scene, part: &str) -> Result<()> {
    t.excuses_refusals();
    let mut operator = t.operator().await?;
    for set in SETS {
        t.create_set(set, 3).await?;
    }
    all(t, "3 pods in each set", 3).await?;
    let parts = t.cluster().parts();
    for (wanted, away) in [(10, 0), (5, 12)] {
        for set in SETS {
            t.scale(set, wanted).await?;
        }
        // In the middle of it: some are there, or gone, and others are not.
        t.until("the first of the pods", |seen| {
            let live = seen.pods.all().filter(|pod| pod.is_live()).count();
            let some = if wanted == 10 { live > 9 } else { live < 30 };
            if some { Ok(()) } else { Err(format!("{live} live pods")) }
        })
        .await?;
        t.tell(&format!("{part} is killed"));
        parts.kill(part).await?;
        sleep(Duration::from_secs(away)).await;
        operator.is_running()?;
        parts.heal().await?;
        t.tell(&format!("{part} is back"));
        // KWOK, unlike a kubelet, does not try again what failed meanwhile; but it looks at a pod that changes.
        t.kubectl()
            .run(&["annotate", "pods", "--all", "--overwrite", &format!("example.com/look-again={wanted}")])
            .await?;
        all(t, &format!("{wanted} pods in each set"), wanted).await?;
    }
    // It works as before.
    let victim = t.look(|seen| seen.live("red").map(|pods| pods[0].name_any())).map_err(anyhow::Error::msg)?;
    t.delete_pod(&victim).await?;
    all(t, "5 pods in each set again", 5).await?;
    operator.is_running()
}

async fn all(t: &Scene, what: &str, pods: i64) -> Result<()> {
    t.within(CONVERGES, what, |seen| SETS.iter().try_for_each(|set| seen.at_rest(set, pods as usize).map(drop))).await
}
