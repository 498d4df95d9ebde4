//! One contestant with one load, phase by phase.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::account::Account;
use e2e::operator::Operator;
use e2e::types::Pod;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use kube::api::ApiResource;
use kube::{Client, ResourceExt};
use procfs::process::Process;
use serde_json::{Value, json};

use crate::contestant;
use crate::judge::Goal;
use crate::place::{FLOOR, NAMESPACE, Place};
use crate::records::{Contestant, Load, Measured, Phase};
use crate::tail::Tail;
use crate::watcher::Watcher;

/// Requests that the benchmark sends at the same time. Bare requests are not faster with more.
const PARALLEL: usize = 64;

const PODS: &str = "/api/v1/namespaces/bench/pods";

/// One request: method, path and body.
pub type Request = (Method, String, Option<Value>);

/// A contestant at work.
pub struct Round {
    contestant: Contestant,
    pub load: Load,
    number: u32,
    /// Prefix of the names of its sets.
    name: String,
    sets: Option<ApiResource>,
    process: Option<Operator>,
    user: Client,
    watcher: Watcher,
    log: Tail,
    /// Replicas of each set.
    wanted: usize,
}

impl Round {
    /// Starts the contestant, and creates and deletes one small set so that caches are filled and connections open.
    pub async fn begin(place: &mut Place, contestant: Contestant, load: Load, number: u32) -> Result<Self> {
        place.rounds += 1;
        let (place, cluster) = (&*place, &*place.cluster);
        let sets = contestant::sets(contestant);
        let user = match contestant {
            // A new token for each round, because a token does not last as long as a benchmark.
            Contestant::Floor => Account::existing(cluster, NAMESPACE, FLOOR).await?.client(cluster).await?,
            _ => cluster.client.clone(),
        };
        let mut round = Self {
            contestant,
            load: Load { sets: 1, pods: 10, ..load },
            number,
            name: format!("r{}-first", place.rounds),
            watcher: Watcher::start(&cluster.client, Some(NAMESPACE), sets.as_ref()),
            sets,
            process: contestant::start(place, contestant).await?,
            user,
            log: Tail::follow(&cluster.audit_log)?,
            wanted: 0,
        };
        for phase in [Phase::Create, Phase::Delete] {
            round.phase(phase).await?;
        }
        (round.load, round.name) = (load, format!("r{}", place.rounds));
        Ok(round)
    }

    /// Starts a phase and measures until everything is at rest.
    pub async fn phase(&mut self, phase: Phase) -> Result<Measured> {
        let before = self.wanted;
        self.wanted = match phase {
            Phase::Create | Phase::Refill => self.load.pods,
            Phase::Up => 2 * before,
            Phase::Repair | Phase::Roll => before,
            Phase::Down => 1,
            Phase::Delete => 0,
        };
        let victims: Vec<Pod> = match phase {
            Phase::Repair => self.watcher.judge().live().into_iter().step_by(10).collect(),
            Phase::Roll => self.watcher.judge().live(),
            _ => Vec::new(),
        };
        let steps = self.steps(phase, before, &victims)?;
        self.requests()?;
        let cpu = self.process.as_mut().map(usage).transpose()?.map(|(cpu, _)| cpu);
        let began = Instant::now();
        self.watcher.judge().begin(Goal {
            sets: if self.wanted == 0 { 0 } else { self.load.sets },
            pods: self.wanted,
            most: self.wanted.max(before),
            victims: victims.iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect(),
            rolls: phase == Phase::Roll,
            has_status: self.sets.is_some(),
        });
        for requests in steps {
            send_all(&self.user, requests).await?;
        }
        let what = || format!("{}, {}: {}", self.load, self.contestant.title(), phase.title());
        let limit = Duration::from_secs(300) + Duration::from_millis(50) * self.load.all_pods() as u32;
        let at_rest = self.watcher.until_at_rest(limit, self.process.as_mut_slice()).await;
        let [pods, status, ready] = at_rest.with_context(what)?;
        let usage = self.process.as_mut().map(usage).transpose()?;
        let (excess, gaps) = self.watcher.judge().faults();
        let seconds = |mark: Option<Instant>| mark.map(|mark| (mark - began).as_secs_f64());
        let with_status = |mark| seconds(mark).filter(|_| self.sets.is_some());
        Ok(Measured {
            contestant: self.contestant,
            load: self.load,
            round: self.number,
            phase,
            pods: seconds(pods).context("at rest, but the pods are not as wanted")?,
            status: with_status(status),
            ready: with_status(ready),
            touched: victims.len().max(self.load.sets * before.abs_diff(self.wanted)),
            requests: self.requests()?,
            cpu: usage.zip(cpu).map(|((after, _), before)| after - before),
            peak: usage.map(|(_, peak)| peak),
            excess,
            gaps,
        })
    }

    /// Terminates the contestant's process, if there is one, and waits. The operator releases its Lease.
    pub async fn end(self) -> Result<()> {
        let Some(process) = self.process else { return Ok(()) };
        let name = process.name.clone();
        let status = process.terminate(Duration::from_secs(30)).await?;
        let is_operator = self.contestant == Contestant::Operator;
        ensure!(!is_operator || status.success(), "after SIGTERM, {name} ended with {status}");
        Ok(())
    }

    /// The contestant's requests since the last call.
    fn requests(&mut self) -> Result<BTreeMap<String, usize>> {
        Ok(self.log.since_last(&contestant::users(self.contestant))?.kinds())
    }

    /// The requests that start a phase, one batch after the other.
    fn steps(&self, phase: Phase, before: usize, victims: &[Pod]) -> Result<Vec<Vec<Request>>> {
        let (rolls, wanted) = (self.load.rolls, self.wanted);
        let delete = |pod: &Pod| (Method::DELETE, format!("{PODS}/{}", pod.name_any()), None);
        let names = (0..self.load.sets).map(|number| format!("{}-{number}", self.name));
        let Some(resource) = &self.sets else {
            // Without a controller, the benchmark creates and deletes the pods.
            let live = self.watcher.judge().live();
            let surplus = live.iter().enumerate().filter(|(number, _)| number % before >= wanted).map(|(_, pod)| pod);
            let deletes = victims.iter().chain(surplus).map(delete).collect();
            let lost = victims.iter().filter_map(|pod| pod.labels().get("app").cloned());
            let missing = names.flat_map(|name| repeat_n(name, wanted.saturating_sub(before)));
            let post = |set: String| Ok((Method::POST, PODS.to_owned(), Some(contestant::pod(&set)?)));
            return Ok(vec![deletes, lost.chain(missing).map(post).collect::<Result<_>>()?]);
        };
        let path = format!("/apis/{}/namespaces/{NAMESPACE}/{}", resource.api_version, resource.plural);
        let restart = contestant::restart();
        let request = |name: String| {
            let patch = |patch| (Method::PATCH, format!("{path}/{name}"), Some(patch));
            Ok(match phase {
                Phase::Create => (Method::POST, path.clone(), Some(contestant::set(resource, &name, wanted, rolls)?)),
                Phase::Delete => (Method::DELETE, format!("{path}/{name}?propagationPolicy=Background"), None),
                Phase::Roll => patch(restart.clone()),
                _ => patch(json!({"spec": {"replicas": wanted}})),
            })
        };
        let requests = match phase {
            Phase::Repair => victims.iter().map(delete).collect(),
            _ => names.map(request).collect::<Result<_>>()?,
        };
        Ok(vec![requests])
    }
}

/// CPU time in ms so far, and the peak memory in MiB since the last call.
pub fn usage(process: &mut Operator) -> Result<(f64, f64)> {
    let id = process.id()?;
    let process = Process::new(id.cast_signed())?;
    let (stat, peak) = (process.stat()?, process.status()?.vmhwm.context("/proc/PID/status without VmHWM")?);
    std::fs::write(format!("/proc/{id}/clear_refs"), "5").context("resetting the peak memory")?;
    let cpu = (stat.utime + stat.stime) as f64 * 1_000.0 / procfs::ticks_per_second() as f64;
    Ok((cpu, peak as f64 / 1_024.0))
}

/// Sends the requests. Fails with the first error.
pub async fn send_all(client: &Client, requests: Vec<Request>) -> Result<()> {
    let send = |request| send(client, request);
    futures::stream::iter(requests).map(send).buffer_unordered(PARALLEL).try_collect().await
}

async fn send(client: &Client, (method, path, body): Request) -> Result<()> {
    let what = format!("{method} {path}");
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    // The smallest response that the API server offers.
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", content).header("accept", accept);
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    client.request_text(request.body(body)?).await.with_context(|| what).map(drop)
}
