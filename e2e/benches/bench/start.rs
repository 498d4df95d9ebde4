//! From exec to the first reconcile, and from the Lease to the first write: what a restart or a change of leader costs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::audit::Tail;
use e2e::bench::arguments::Measure;
use e2e::bench::records::{Contestant, Record, Start};
use e2e::bench::spread::brief;
use e2e::scene::make_namespace;
use e2e::types::{Pod, PodSet};
use futures::future::try_join_all;
use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, ListParams};
use serde_json::json;
use tokio::time::sleep;

use crate::book::Book;
use crate::contestant::{end, path, set, start_operator, user};
use crate::hands::{Deed, send_all};
use crate::place::{NAMESPACE, Place};

const NAMESPACES: usize = 100;
const OF_EACH: usize = 10;

/// The set that wants one more.
const WAITING: &str = "waiting";

/// For ten thousand pods to come, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// Starts where there are no pods, then where there are more and more.
pub async fn starts(place: &mut Place, measure: &Measure, book: &mut Book) -> Result<()> {
    let namespaces = (0..NAMESPACES).map(|number| format!("start-{number}")).collect::<Vec<_>>();
    try_join_all(namespaces.iter().map(|name| make_namespace(&place.cluster, name))).await?;
    let mut wanted = 0;
    let mut there = 0;
    for pods in [0, 1_000, 10_000] {
        if pods > there {
            println!("bench: start: making {} pods", pods - there);
            place.courses += 1;
            let operator = start_operator(place, "operator", None).await?;
            send_all(place.client(), 32, (there / OF_EACH..pods / OF_EACH).map(|number| of_crowd(number, &namespaces)))
                .await?;
            are_ready(place, pods + wanted).await?;
            end(Contestant::Operator, operator).await?;
            there = pods;
        }
        for round in 1..=measure.rounds.unwrap_or(5) {
            wanted += 1;
            let mut start = start(place, wanted).await?;
            (start.pods, start.round) = (pods, round);
            println!(
                "bench: start with {pods} pods: {} ms to the first reconcile, {} to the Lease, {} from there to the first write",
                brief(start.reconcile),
                brief(start.lease),
                brief(start.write)
            );
            book.note(Record::Start(start))?;
        }
    }
    clean_up(place, &namespaces).await
}

/// Deletes the sets, and waits until their pods are gone: what is measured next has the cluster to itself.
async fn clean_up(place: &Place, namespaces: &[String]) -> Result<()> {
    println!("bench: start: deleting all");
    for namespace in namespaces.iter().map(String::as_str).chain([NAMESPACE]) {
        let sets: Api<PodSet> = Api::namespaced(place.client().clone(), namespace);
        sets.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    }
    let pods: Api<Pod> = Api::all(place.client().clone());
    let limit = Instant::now() + PATIENCE;
    while !pods.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty() {
        if Instant::now() > limit {
            bail!("there are pods {} s after their sets were deleted", PATIENCE.as_secs());
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Lets the waiting set want so many, and starts the operator.
async fn start(place: &mut Place, wanted: usize) -> Result<Start> {
    let resource = ApiResource::erase::<PodSet>(&());
    let path = path(&resource, NAMESPACE);
    let deed = if wanted == 1 {
        (Method::POST, path, Some(set(&resource, WAITING, 1)))
    } else {
        (Method::PATCH, format!("{path}/{WAITING}"), Some(json!({"spec": {"replicas": wanted}})))
    };
    send_all(place.client(), 1, std::iter::once(deed)).await?;
    let mut log = Tail::follow(place.cluster.audit_log()?)?;
    place.courses += 1;
    let operator = start_operator(place, "operator", Some("debug")).await?;
    let began = operator.began();
    let waiting: Api<PodSet> = Api::namespaced(place.client().clone(), NAMESPACE);
    let limit = Instant::now() + PATIENCE;
    while waiting.get(WAITING).await?.state().ready_replicas != wanted as i64 {
        if Instant::now() > limit {
            bail!("{WAITING} does not get its pod: see {}", operator.log().display());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let requests = log.since_last(&user(Contestant::Operator))?.0;
    let mut writes = requests.iter().filter(|request| request.took_effect());
    let lease = writes.find(|write| write.kind().ends_with(" leases")).context("it has not taken the Lease")?;
    let write = writes.find(|write| !write.kind().ends_with(" leases")).context("it has written nothing")?;
    let lines = operator.said(" reconciling ");
    let line = lines.first().context("it has not said that it reconciles: is it another binary?")?;
    let reconcile: Timestamp = line.split_whitespace().next().unwrap_or_default().parse()?;
    let start = Start {
        pods: 0,
        round: 0,
        reconcile: milliseconds(began, reconcile),
        lease: milliseconds(began, lease.answered()),
        write: milliseconds(lease.answered(), write.received()),
    };
    end(Contestant::Operator, operator).await?;
    Ok(start)
}

fn milliseconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1_000.0
}

fn of_crowd(number: usize, namespaces: &[String]) -> Deed {
    let resource = ApiResource::erase::<PodSet>(&());
    let path = path(&resource, &namespaces[number % namespaces.len()]);
    (Method::POST, path, Some(set(&resource, &format!("crowd-{number}"), OF_EACH)))
}

/// Waits until the statuses of all sets of all namespaces tell of so many ready pods.
async fn are_ready(place: &Place, pods: usize) -> Result<()> {
    let all: Api<PodSet> = Api::all(place.client().clone());
    let limit = Instant::now() + PATIENCE;
    loop {
        let sets = all.list(&ListParams::default()).await?;
        let ready: i64 = sets.iter().map(|set| set.state().ready_replicas).sum();
        if ready == pods as i64 {
            return Ok(());
        }
        if Instant::now() > limit {
            bail!("{ready} of {pods} pods are ready after {} s", PATIENCE.as_secs());
        }
        sleep(Duration::from_secs(1)).await;
    }
}
