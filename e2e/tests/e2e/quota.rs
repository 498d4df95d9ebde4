//! A namespace whose quota allows fewer pods than a set wants.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::scene::Scene;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

pub async fn refuses_and_grows(t: Arc<Scene>) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(t.client(), t.namespace());
    let two: ResourceQuota =
        serde_json::from_value(json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}))?;
    quotas.create(&PostParams::default(), &two).await?;
    tokio::time::timeout(Duration::from_secs(60), is_known(&quotas)).await.context("the quota is never counted")??;

    let _operator = t.operator().await?;
    t.create_set("web", 5).await?;
    t.until("2 pods and the refusal in the conditions", |seen| {
        seen.has_live("web", 2)?;
        let expected = [
            ("Ready", "False/PodsNotReady"),
            ("Reconciling", "True/Retrying"),
            ("ReplicaFailure", "True/FailedCreate"),
        ];
        seen.conditions("web", &expected)?;
        seen.status_is_right("web")
    })
    .await?;
    let message = t.look(|seen| seen.message("web", "ReplicaFailure")).map_err(anyhow::Error::msg)?;
    ensure!(
        message.contains("exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"),
        "it says: {message}"
    );
    // The stem of the names is the same each time; the five characters after it are not.
    let changing = message.split("web-pod").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
    ensure!(!changing, "the message changes with each pod's name: {message}");

    backs_off(&t).await?;
    one_failure_is_told(&t)?;
    kubectl_tells_why(&t).await?;

    let five = json!({"spec": {"hard": {"pods": "5"}}});
    quotas.patch("few", &PatchParams::default(), &Patch::Merge(five)).await?;
    t.until("5 pods by themselves once the quota allows them", |seen| seen.at_rest("web", 5)).await?;
    one_failure_is_told(&t)
}

/// Whoever looks at the set alone finds the reason: in one line of `get`, and under the events of `describe`.
async fn kubectl_tells_why(t: &Scene) -> Result<()> {
    let wide = t.kubectl().run(&["get", "podset", "--output=wide"]).await?;
    let row = wide.lines().nth(1).unwrap_or_default();
    let says_why = row.contains("PodsNotReady")
        && row.contains("2 of 5 pods are ready: pods \"web-pod\" is forbidden: exceeded quota");
    ensure!(wide.contains("MESSAGE") && says_why, "kubectl get podset -o wide shows\n{wide}");
    let described = t.kubectl().run(&["describe", "podset", "web"]).await?;
    let events = described.split("\nEvents:").nth(1).unwrap_or_default();
    let tells = |reason: &str, words: &str| events.lines().any(|line| line.contains(reason) && line.contains(words));
    ensure!(tells("ScaledUp", "Scaled up from 0 to 2"), "kubectl describe shows the events{events}");
    ensure!(
        tells("FailedCreate", "Pods are refused: pods \"web-pod\" is forbidden"),
        "kubectl describe shows the events{events}"
    );
    Ok(())
}

/// Before a quota was counted for the first time, every pod is refused for another reason.
async fn is_known(quotas: &Api<ResourceQuota>) -> Result<()> {
    let mut events = Box::pin(quotas.watch(&WatchParams::default(), "0").await?);
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(quota) | WatchEvent::Modified(quota) = event
            && quota.status.is_some_and(|status| status.hard.is_some())
        {
            return Ok(());
        }
    }
    bail!("the watch ended")
}

fn one_failure_is_told(t: &Scene) -> Result<()> {
    let told = t.look(|seen| seen.events_about("web"));
    let failures = told.iter().filter(|event| event.starts_with("FailedCreate")).count();
    ensure!(failures == 1, "{failures} events FailedCreate: {told:?}");
    Ok(())
}

/// Rounds of refused creates come after 1, 2, 4 and 8 seconds, and up to a tenth more. A round is what was sent with less than
/// 0.8 seconds between one and the next: slow start ends it with its first refusals.
async fn backs_off(t: &Scene) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    let rounds = loop {
        let requests = t.requests()?;
        let refused = requests.of("create pods").into_iter().filter(|create| create.code() == 403);
        let mut sent: Vec<f64> = refused.map(|r| r.received().as_microsecond() as f64 / 1e6).collect();
        sent.sort_by(f64::total_cmp);
        let rounds: Vec<Vec<f64>> =
            sent.chunk_by(|earlier, later| later - earlier < 0.8).map(<[f64]>::to_vec).collect();
        // The first round has seen creates succeed and has three under way; the others begin with one.
        ensure!(
            sent.len() <= rounds.len() + 2,
            "{} creates were sent to learn {} times that the quota is full",
            sent.len(),
            rounds.len()
        );
        if rounds.len() >= 5 {
            break rounds;
        }
        ensure!(Instant::now() < end, "waited 60 s for 5 rounds of refused creates, last seen: at {rounds:?}");
        // The audit log is a file: it cannot be watched.
        sleep(Duration::from_millis(500)).await;
    };
    let waits: Vec<f64> = rounds.windows(2).map(|pair| pair[1][0] - pair[0][pair[0].len() - 1]).collect();
    for (wait, least) in waits.iter().zip([0.85, 1.7, 3.4, 6.8]) {
        ensure!(*wait >= least && *wait <= least * 1.5 + 2.0, "refused creates come after {waits:?} seconds");
    }
    Ok(())
}
