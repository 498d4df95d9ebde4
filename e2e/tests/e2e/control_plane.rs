//! Parts of the control plane are killed and restarted. The operator keeps running, and the sets converge.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use e2e::cluster::Wanted;
use e2e::process::eventually;
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;
use tokio::time::sleep;

const SETS: [&str; 3] = ["red", "green", "blue"];

/// The name of a create without an answer counts as a pod for 60 s. The API server takes up to 0.9 times the outage of
/// etcd to reconnect, and the watches of clients take as long again.
const CONVERGES: Duration = Duration::from_secs(150);

pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, part| {
        let run = move |t| dies_and_comes_back(t, part);
        let scenario = Scenario::new(name, run).in_own_cluster(Wanted::default()).with_processes();
        scenario.local_only("it kills a part of the control plane")
    };
    vec![
        scenario("control_plane_api_server_restarts", "kube-apiserver"),
        scenario("control_plane_etcd_restarts", "etcd"),
    ]
}

async fn dies_and_comes_back(t: Arc<Scene>, part: &'static str) -> Result<()> {
    t.excuse_forbidden_requests();
    let kubectl = t.kubectl();
    let mut operator = t.run(t.settings()).await?;
    for set in SETS {
        t.create_set(set, 3).await?;
    }
    t.all_settle(&SETS, 3, CONVERGES).await?;
    for (wanted, away) in [(10, 0), (5, 12)] {
        for set in SETS {
            t.scale(set, wanted).await?;
        }
        let some = |pods| if wanted == 10 { pods > 9 } else { pods < 30 };
        t.until("some of the pods to be created or deleted", |seen| seen.live_pods_are(some)).await?;
        t.log(&format!("{part} is killed"));
        t.cluster.kill_part(part).await?;
        sleep(Duration::from_secs(away)).await;
        operator.is_running()?;
        t.cluster.heal().await?;
        t.log(&format!("{part} is back"));
        // KWOK, unlike a kubelet, does not retry; but it looks at a pod that changes.
        let note = format!("example.com/look-again={wanted}");
        let annotate = ["annotate", "pods", "--all", "--overwrite", "--request-timeout=10s", &note];
        eventually("the pods to be annotated", PATIENCE, || kubectl.run(&annotate)).await?;
        t.all_settle(&SETS, wanted as usize, CONVERGES).await?;
    }
    // The operator still works.
    let victim = t.look(|seen| seen.has_live("red", 5)).map_err(anyhow::Error::msg)?;
    t.delete_pod(&victim[0]).await?;
    t.all_settle(&SETS, 5, CONVERGES).await?;
    operator.is_running()
}
