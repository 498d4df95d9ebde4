//! Starts of the operator: from exec to the first reconcile, and from the Lease to the first write.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::audit::Tail;
use e2e::scene::make_namespace;
use e2e::types::PodSet;
use futures::future::try_join_all;
use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, ListParams};
use serde_json::json;
use tokio::time::sleep;

use crate::contestant::{end, path, set, start_operator, user};
use crate::place::{NAMESPACE, Place};
use crate::records::{Contestant, Record, Start};
use crate::requests::{Request, send_all};
use crate::results::Results;
use crate::spread::brief;

const NAMESPACES: usize = 100;
const OF_EACH: usize = 10;

/// The set that gets one more replica before each start.
const WAITING: &str = "waiting";

/// Enough to create ten thousand pods on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// Measures starts with 0, 1,000 and 10,000 pods in the cluster.
pub async fn measure(place: &mut Place, rounds: u32, results: &mut Results) -> Result<()> {
    let namespaces = (0..NAMESPACES).map(|number| format!("start-{number}")).collect::<Vec<_>>();
    try_join_all(namespaces.iter().map(|name| make_namespace(&place.cluster, name))).await?;
    let mut wanted = 0;
    let mut there = 0;
    for pods in [0, 1_000, 10_000] {
        if pods > there {
            println!("bench: start: creating {} pods", pods - there);
            place.rounds += 1;
            let operator = start_operator(place, None).await?;
            send_all(place.client(), 32, (there / OF_EACH..pods / OF_EACH).map(|number| of_crowd(number, &namespaces)))
                .await?;
            are_ready(place, pods + wanted).await?;
            end(Contestant::Operator, operator).await?;
            there = pods;
        }
        for round in 1..=rounds {
            wanted += 1;
            let mut start = start(place, wanted).await?;
            (start.pods, start.round) = (pods, round);
            println!(
                "bench: start with {pods} pods: {} ms to the first reconcile, {} to the Lease, {} from there to the first write",
                brief(start.reconcile),
                brief(start.lease),
                brief(start.write)
            );
            results.add(Record::Start(start))?;
        }
    }
    Ok(())
}

/// Scales the waiting set to `wanted`, and starts the operator.
async fn start(place: &mut Place, wanted: usize) -> Result<Start> {
    let resource = ApiResource::erase::<PodSet>(&());
    let path = path(&resource, NAMESPACE);
    let request = if wanted == 1 {
        (Method::POST, path, Some(set(&resource, WAITING, 1)))
    } else {
        (Method::PATCH, format!("{path}/{WAITING}"), Some(json!({"spec": {"replicas": wanted}})))
    };
    send_all(place.client(), 1, std::iter::once(request)).await?;
    let mut log = Tail::follow(place.cluster.audit_log()?)?;
    place.rounds += 1;
    let operator = start_operator(place, Some("debug")).await?;
    let began = operator.began();
    let waiting: Api<PodSet> = Api::namespaced(place.client().clone(), NAMESPACE);
    let limit = Instant::now() + PATIENCE;
    while waiting.get(WAITING).await?.state().ready_replicas != wanted as i64 {
        if Instant::now() > limit {
            bail!("{WAITING} got no pod: see {}", operator.log().display());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let requests = log.since_last(&user(Contestant::Operator))?.0;
    let mut writes = requests.iter().filter(|request| request.took_effect());
    let lease =
        writes.find(|write| write.kind().ends_with(" leases")).context("the operator has not acquired the Lease")?;
    let write = writes.find(|write| !write.kind().ends_with(" leases")).context("the operator has not written")?;
    let lines = operator.said(" reconciling ");
    let line = lines.first().context("the log has no reconcile")?;
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

fn of_crowd(number: usize, namespaces: &[String]) -> Request {
    let resource = ApiResource::erase::<PodSet>(&());
    let path = path(&resource, &namespaces[number % namespaces.len()]);
    (Method::POST, path, Some(set(&resource, &format!("crowd-{number}"), OF_EACH)))
}

/// Waits until the statuses of all sets show this number of ready pods in total.
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
