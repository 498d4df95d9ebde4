//! Pods that finish: replaced, ever more slowly, with the newest three kept to look at.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::scene::Scene;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

/// How long the replacement of the first, second, … pod that failed in a row is held back.
const WAITS: [i64; 6] = [0, 1, 2, 4, 8, 16];

pub async fn replaced_ever_more_slowly(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 1).await?;
    let mut known = vec![next_pod(&t, &[]).await?];
    for (failed, seconds) in WAITS.into_iter().enumerate() {
        let pod = known.last().expect("there is at least one").clone();
        let finish = fail(&t, &pod, if failed == 1 { "Succeeded" } else { "Failed" }).await?;
        if seconds >= 8 {
            // A status may be five seconds late.
            let waiting = [("Ready", "False/PodsFailing"), ("Reconciling", "True/BackingOff")];
            let limit = Duration::from_secs(7);
            t.within(limit, "the conditions of a set that backs off", |seen| seen.conditions("web", &waiting)).await?;
        }
        let next = next_pod(&t, &known).await?;
        let made = t.stored_pod(&next).await?;
        // Both times have whole seconds.
        let waited = made.creation_timestamp().context("a pod without an age")?.0.duration_since(finish).as_secs();
        let most = seconds + 4;
        ensure!(
            (seconds..=most).contains(&waited),
            "replacement {} came after {waited} s, not {seconds} s",
            failed + 1
        );
        let count = made.annotations().get("app.example.com/replacements").cloned();
        ensure!(count == Some((failed + 1).to_string()), "replacement {} is marked as {count:?}", failed + 1);
        known.push(next);
    }
    let newest = &known[known.len() - 4..known.len() - 1];
    t.until("the newest 3 finished pods to be kept and no older one", |seen| {
        let mut kept: Vec<_> = seen.pods.all().filter(|pod| pod.is_finished()).map(|pod| pod.name_any()).collect();
        kept.sort_by_key(|name| known.iter().position(|other| other == name));
        if kept == newest { Ok(()) } else { Err(format!("{kept:?} are kept of {known:?}")) }
    })
    .await?;
    t.until("a set that is well again", |seen| seen.at_rest("web", 1)).await.map(drop)
}

/// The name of the set's one live and ready pod, which is none of these.
async fn next_pod(t: &Scene, known: &[String]) -> Result<String> {
    t.until("a pod in place of the one that failed", |seen| {
        let mut live = seen.has_live("web", 1)?;
        let ready = seen.pod(&live[0])?.is_ready();
        if known.contains(&live[0]) || !ready { Err(format!("{live:?}, ready: {ready}")) } else { Ok(live.remove(0)) }
    })
    .await
}

/// What a kubelet writes when the container has ended, and when that was.
async fn fail(t: &Scene, pod: &str, phase: &str) -> Result<Timestamp> {
    let now = Timestamp::from_second(Timestamp::now().as_second())?;
    let began = t.look(|seen| seen.pod(pod).map(|pod| pod.creation_timestamp())).map_err(anyhow::Error::msg)?;
    let exit_code = if phase == "Failed" { 1 } else { 0 };
    let terminated = json!({"exitCode": exit_code, "reason": "Ended", "startedAt": began, "finishedAt": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    let status = json!({
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodFailed"}],
        "containerStatuses": [{"name": "fancy-alpine", "image": "x", "imageID": "x", "ready": false, "restartCount": 0,
            "state": {"running": null, "terminated": terminated}}]
    });
    t.patch_pod_status(pod, status).await?;
    Ok(now)
}

/// The same with pods whose life is scripted: each fails by itself, half a second after it was ready.
pub async fn by_their_own_doing(t: Arc<Scene>) -> Result<()> {
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
    t.until("a set that is well again", |seen| seen.at_rest("web", 2)).await.map(drop)
}

/// How many there ever were.
fn pods_made(t: &Scene) -> Result<usize> {
    Ok(t.requests()?.of("create pods").into_iter().filter(|create| create.code() == 201).count())
}

/// As KWOK scripts it.
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
