//! Pods that fail, as KWOK scripts it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::Wanted;
use e2e::cluster::needs::Need::*;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;
use tokio::time::Instant;

pub fn scenarios() -> Vec<Scenario> {
    let scripted = Wanted { stages: true, ..Wanted::default() };
    vec![
        Scenario::new("failing_pods_are_replaced_later_each_time", by_their_own_doing)
            .in_own_cluster(scripted)
            .needs(&[LocalCluster]),
    ]
}

/// Pods that fail half a second after they are ready are replaced later each time, and only the newest three are kept.
async fn by_their_own_doing(t: Arc<Scene>) -> Result<()> {
    t.kubectl().run_with(&["apply", "-f", "-"], FAILS).await?;
    let _operator = t.operator().await?;
    let spec = json!({"replicas": 2, "template": {"metadata": {"labels": {"fate": "fails"}}}});
    t.create_set_from("web", spec).await?;
    t.until("a set that backs off, and keeps the newest 3 finished pods", |seen| {
        let (finished, live): (Vec<_>, Vec<_>) = seen.pods.all().partition(|pod| pod.is_finished());
        if finished.len() != 3 || !live.is_empty() {
            return Err(format!("{} finished and {} other pods", finished.len(), live.len()));
        }
        seen.conditions("web", &[("Ready", "False/PodsFailing"), ("Reconciling", "True/BackingOff")])
    })
    .await?;
    let (began, before) = (Instant::now(), pods_made(&t)?);
    t.until("two more rounds", |_| match pods_made(&t) {
        Ok(made) if made >= before + 3 => Ok(()),
        made => Err(format!("{made:?} pods were made, {before} before")),
    })
    .await?;
    // Each round creates two pods. The waits before the rounds are 0 s, 1 s, 2 s, 4 s. At least one wait of 2 s lies in between.
    ensure!(
        began.elapsed() >= Duration::from_secs(2),
        "{before} pods and three more came within {:?}",
        began.elapsed()
    );

    t.kubectl().run(&["delete", "stage", "pod-fails"]).await?;
    t.settles("web", 2).await.map(drop)
}

/// How many pods were ever created.
fn pods_made(t: &Scene) -> Result<usize> {
    Ok(t.requests()?.of("create pods").into_iter().filter(|create| create.code() == 201).count())
}

const FAILS: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-fails}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {fate: fails}
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Running]}
  delay: {durationMilliseconds: 500}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Failed
      conditions:
        - {type: Ready, status: "False", reason: PodFailed, lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
        {{ range .spec.containers }}
        - name: {{ .name | Quote }}
          image: {{ .image | Quote }}
          ready: false
          restartCount: 0
          state:
            terminated: {exitCode: 1, reason: Error, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}
        {{ end }}
"#;
