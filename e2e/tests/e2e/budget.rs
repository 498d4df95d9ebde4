//! What a scale costs, counted in the API server's audit log: creates, status patches, events; and nothing at rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::audit::{Request, Requests};
use e2e::scene::Scene;
use futures::future::{try_join, try_join_all};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

const SIZE: usize = 10;

pub async fn one_set(t: Arc<Scene>) -> Result<()> {
    let operator = t.operator().await?;
    t.create_set("web", SIZE as i64).await?;
    t.until("10 pods", |seen| seen.at_rest("web", SIZE)).await?;
    is_quiet_for(&t, Duration::from_secs(20)).await?;
    within_budget(&t, &["web".to_owned()])?;
    t.bound_held().await?;
    drop(operator);
    Ok(())
}

pub async fn hundred_sets(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator_for(&[]).await?;
    let sets: Vec<String> = (0..100).map(|n| format!("set-{n:02}")).collect();
    try_join_all(sets.iter().map(|set| t.create_set(set, SIZE as i64))).await?;
    let limit = Duration::from_secs(180);
    t.within(limit, "10 pods for each of 100 sets", |seen| {
        sets.iter().try_for_each(|set| seen.at_rest(set, SIZE).map(drop))
    })
    .await?;
    is_quiet_for(&t, Duration::from_secs(60)).await?;
    within_budget(&t, &sets)?;
    let judged = t.bound_held().await?;
    ensure!(judged >= 1_000, "the bound was checked after {judged} events only");
    Ok(())
}

/// Pods die all the time: each replacement is a scale of its own, and the status keeps up with all of them.
pub async fn under_churn(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", SIZE as i64).await?;
    t.until("10 pods", |seen| seen.at_rest("web", SIZE)).await?;
    let before = Timestamp::now();
    let (began, mut deleted) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(20) {
        if let Ok(pods) = t.look(|seen| seen.has_live("web", SIZE)) {
            deleted += 1;
            t.delete_pod(&pods[deleted * 3 % SIZE]).await?;
        }
        status_keeps_up_for(&t, Duration::from_millis(700)).await?;
    }
    t.until("10 pods again", |seen| seen.at_rest("web", SIZE)).await?;
    let requests = t.requests()?.received_in(before..Timestamp::MAX);
    let (created, patched) = (requests.of("create pods").len(), requests.of("patch podsets/status").len());
    ensure!(created == deleted, "{deleted} pods were deleted and {created} creates sent");
    ensure!(patched <= 2 * deleted, "{patched} status patches for {deleted} replacements");
    Ok(())
}

/// Nothing is scaled, and the readiness of pods comes and goes: one status patch in five seconds is enough.
pub async fn under_flapping(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    t.until("the event of 3 pods", |seen| match seen.events_about("web").len() {
        1 => Ok(()),
        other => Err(format!("{other} events")),
    })
    .await?;
    let (before, began) = (Timestamp::now(), Instant::now());
    let flapping = async {
        for flap in 0..40 {
            let status = if flap % 2 == 0 { "False" } else { "True" };
            t.patch_pod_status(&pods[flap % 3], json!({"conditions": [{"type": "Ready", "status": status}]})).await?;
            sleep(Duration::from_millis(500)).await;
        }
        anyhow::Ok(())
    };
    try_join(flapping, status_keeps_up_for(&t, Duration::from_secs(20))).await?;
    let requests = t.requests()?.received_in(before..Timestamp::MAX);
    let seconds = began.elapsed().as_secs() as usize;
    let patched = requests.of("patch podsets/status").len();
    ensure!(patched <= seconds / 5 + 2, "{patched} status patches in {seconds} s in which nothing was scaled");
    let rest = requests.but_watches().len() - patched;
    ensure!(rest == 0, "{rest} other requests: {:#?}", requests.but_watches());
    Ok(())
}

/// For so long the status is never wrong for longer than five seconds; and a second and a half, for what lies between
/// the cluster and these eyes.
async fn status_keeps_up_for(t: &Scene, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        t.within(Duration::from_millis(6_500), "the status to be right", |seen| seen.status_is_right("web")).await?;
        sleep_until(end.min(Instant::now() + Duration::from_millis(200))).await;
    }
    Ok(())
}

/// Nothing but watches is asked for so long, beginning when what was under way is done.
async fn is_quiet_for(t: &Scene, rest: Duration) -> Result<()> {
    sleep(Duration::from_secs(5)).await;
    let began = Timestamp::now();
    sleep(rest + Duration::from_secs(1)).await;
    let asked = t.requests()?.received_in(began..began + rest).but_watches();
    ensure!(asked.is_empty(), "{} requests in {} s at rest: {asked:#?}", asked.len(), rest.as_secs());
    Ok(())
}

fn within_budget(t: &Scene, sets: &[String]) -> Result<()> {
    let requests = t.requests()?;
    let creates = count(&requests, "create pods", |pod| pod.rsplit_once("-pod").map_or(pod, |(set, _)| set));
    let patches = count(&requests, "patch podsets/status", |set| set);
    let patched_last = |set: &str| {
        let patches = requests.of("patch podsets/status").into_iter().filter(|patch| patch.name() == set);
        patches.map(Request::received).max()
    };
    for set in sets {
        let created = creates.get(set).copied().unwrap_or(0);
        ensure!(created == SIZE, "{set} cost {created} creates of pods");
        let began = t.look(|seen| seen.set(set).ok()?.creation_timestamp());
        let allowed = allowed_patches(began.map(|time| time.0), patched_last(set));
        let patched = patches.get(set).copied().unwrap_or(0);
        ensure!(patched <= allowed, "{set} cost {patched} status patches, {allowed} are allowed");
        let events = t.look(|seen| seen.events_about(set));
        ensure!(events.len() == 1 && events[0].starts_with("ScaledUp"), "{set} has the events {events:?}");
    }
    let events = requests.0.iter().filter(|request| request.kind().ends_with(" events")).count();
    ensure!(events == sets.len(), "{events} requests for the events of {} sets", sets.len());
    let rest: Vec<_> =
        requests.0.iter().map(|request| request.kind()).filter(|kind| !EXPECTED.contains(&kind.as_str())).collect();
    ensure!(rest.is_empty(), "requests that a scale up does not need: {rest:?}");
    Ok(())
}

/// Two where all was told within five seconds, else one more for each five seconds. How long there was something to tell,
/// the last patch shows: a watch that lags brings the news of a pod long after it. Whoever patched on when all was told is
/// found by [`is_quiet_for`]. Creation times have whole seconds.
fn allowed_patches(began: Option<Timestamp>, patched_last: Option<Timestamp>) -> usize {
    let seconds = match (began, patched_last) {
        (Some(began), Some(last)) => (last.as_second() - began.as_second()).max(0) as usize,
        _ => 0,
    };
    2 + (seconds + 1) / 5
}

/// Reads at the start, then writes; watches always.
const EXPECTED: [&str; 10] = [
    "create pods",
    "patch podsets/status",
    "create events",
    "patch events",
    "list podsets",
    "list pods",
    "list mycustomresources",
    "watch podsets",
    "watch pods",
    "watch mycustomresources",
];

fn count(requests: &Requests, kind: &str, set_of: impl Fn(&str) -> &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests.of(kind) {
        *counts.entry(set_of(request.name()).to_owned()).or_default() += 1;
    }
    counts
}
