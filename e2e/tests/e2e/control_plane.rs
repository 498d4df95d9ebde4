//! Parts of the control plane die and come back. The operator waits for them, and in the end all is as it should be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::scene::Scene;
use kube::ResourceExt;
use tokio::time::sleep;

const SETS: [&str; 3] = ["red", "green", "blue"];

/// A create that was under way may have landed or not: its name counts as a pod for 60 s. And the API server is ready when one of its
/// connections to etcd is; it has one for each kind of object, and each waits for its own next try: up to 0.9 times as long as etcd was
/// away, half a minute on a slow machine. Whoever watches through them then waits as long once more.
const CONVERGES: Duration = Duration::from_secs(150);

pub async fn api_server_restarts(t: Arc<Scene>) -> Result<()> {
    dies_and_comes_back(&t, "kube-apiserver").await
}

pub async fn etcd_restarts(t: Arc<Scene>) -> Result<()> {
    dies_and_comes_back(&t, "etcd").await
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
        annotate_pods(t, &format!("example.com/look-again={wanted}")).await?;
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

/// Again and again: what was not answered is no reason to give up here, any more than it is for the operator.
async fn annotate_pods(t: &Scene, annotation: &str) -> Result<()> {
    let end = Instant::now() + CONVERGES;
    loop {
        let timeout = "--request-timeout=10s";
        match t.kubectl().run(&["annotate", "pods", "--all", "--overwrite", timeout, annotation]).await {
            Err(error) if Instant::now() < end => t.tell(&format!("not yet: {error}")),
            done => return done.map(drop),
        }
        sleep(Duration::from_millis(500)).await;
    }
}
