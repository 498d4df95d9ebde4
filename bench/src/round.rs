//! One contestant with one load, phase by phase.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::iter::repeat_n;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::account::Account;
use e2e::audit::Requests;
use e2e::operator::Operator;
use e2e::rights::HOME;
use e2e::scene::PATIENCE;
use e2e::types::{Pod, uid};
use futures::{StreamExt, TryStreamExt};
use http::Method;
use kube::api::ApiResource;
use kube::{Client, Resource, ResourceExt};
use procfs::process::Process;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::contestant;
use crate::judge::{Goal, set_of};
use crate::place::{NAMESPACE, PEER, Place, TENANTS};
use crate::records::{Contestant, Kind, Load, Measured, Phase};
use crate::watcher::Watcher;

/// Requests that the benchmark sends at the same time. Of 32, 64 and 128, each was once the fastest for bare requests.
const PARALLEL: usize = 64;

/// One request: method, path and body.
type Request = (Method, String, Option<Value>);

/// A contestant at work.
pub struct Round<'a> {
    place: &'a Place,
    contestant: Contestant,
    load: Load,
    number: u32,
    /// Prefix of the names of its sets.
    name: String,
    sets: Option<ApiResource>,
    /// The leader comes first.
    processes: Vec<Operator>,
    user: Client,
    watcher: Watcher,
    /// The API server's audit log, which has only the requests of contestants.
    log: File,
    /// The last line that was read, if it was half written.
    unread: Vec<u8>,
    /// Replicas of each set.
    wanted: usize,
}

impl<'a> Round<'a> {
    /// Starts the contestant, and creates and deletes one small set so that caches are filled and connections open.
    pub async fn begin(place: &'a mut Place, contestant: Contestant, load: Load, number: u32) -> Result<Self> {
        place.rounds += 1;
        let (place, cluster) = (&*place, &*place.cluster);
        let sets = contestant::sets(contestant);
        let user = match contestant {
            // A new token for each round, because a token does not last as long as a benchmark.
            Contestant::Floor => Account::existing(cluster, NAMESPACE, PEER).await?.client(cluster).await?,
            _ => cluster.client.clone(),
        };
        let mut log = File::open(&cluster.audit_log).context("opening the audit log")?;
        log.seek(SeekFrom::End(0))?;
        let mut round = Self {
            place,
            contestant,
            load: Load { sets: 1, pods: 10, ..load },
            number,
            name: format!("r{}-first", place.rounds),
            watcher: Watcher::start(&cluster.client, sets.as_ref()),
            sets,
            processes: Vec::new(),
            user,
            log,
            unread: Vec::new(),
            wanted: 0,
        };
        round.start(Phase::Create).await?;
        for phase in [Phase::Create, Phase::Delete] {
            round.phase(phase).await?;
        }
        (round.load, round.name) = (load, format!("r{}", place.rounds));
        Ok(round)
    }

    /// Starts a phase and measures until everything is at rest.
    pub async fn phase(&mut self, phase: Phase) -> Result<Measured> {
        if matches!(phase, Phase::Term | Phase::Kill) {
            // The standby, which is at rest after this time.
            self.start(phase).await?;
            sleep(Duration::from_secs(15)).await;
        }
        let before = self.wanted;
        self.wanted = match phase {
            Phase::Create => self.load.pods,
            Phase::Up => 2 * before,
            Phase::Down => 1,
            Phase::Delete => 0,
            _ => before,
        };
        let victims = self.victims(phase);
        let batches = self.batches(phase, before, &victims)?;
        self.requests()?;
        // The CPU time of a process that ends is not counted.
        let ending = usize::from(matches!(phase, Phase::Restart | Phase::Term | Phase::Kill | Phase::Shards));
        let (cpu_before, _) = usage(&mut self.processes[ending..])?;
        let began = Instant::now();
        self.watcher.judge().begin(Goal {
            sets: if self.wanted == 0 { 0 } else { self.load.sets },
            pods: self.wanted,
            most: self.wanted.max(before),
            victims: victims.iter().map(|pod| uid(&pod.metadata)).collect(),
            rolls: matches!(phase, Phase::Roll | Phase::RollShards),
            has_status: self.sets.is_some(),
        });
        match phase {
            Phase::Kill => self.processes.remove(0).kill().await?,
            Phase::Restart | Phase::Term | Phase::Shards => drop(self.processes.remove(0).terminate(PATIENCE).await?),
            _ => {}
        }
        for requests in batches {
            let send = |request| send(&self.user, request);
            futures::stream::iter(requests).map(send).buffer_unordered(PARALLEL).try_collect::<()>().await?;
        }
        match phase {
            Phase::Restart | Phase::Shards => self.start(phase).await?,
            Phase::Rest => sleep(Duration::from_secs(60)).await,
            _ => {}
        }
        let what = || format!("{}, {}: {}", self.load, self.contestant.title(), phase.title());
        let limit = Duration::from_secs(300) + Duration::from_millis(50) * self.load.all_pods() as u32;
        let ([pods, status], oldest) =
            self.watcher.until_at_rest(limit, &mut self.processes).await.with_context(what)?;
        let (cpu, peak) = usage(&mut self.processes)?;
        let has_gap = self.watcher.judge().has_gap;
        // Rounded to milliseconds, so that records that are read again have the same values.
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        let since = |mark: Option<Instant>| mark.map(|mark| seconds(mark - began));
        let has_process = !self.processes.is_empty();
        Ok(Measured {
            contestant: self.contestant,
            load: self.load,
            round: self.number,
            phase,
            pods: since(pods).context("at rest, but the pods are not as wanted")?,
            status: since(status).filter(|_| self.sets.is_some()),
            requests: self.requests()?,
            cpu: has_process.then_some(cpu - cpu_before),
            peak: has_process.then_some(peak),
            excess: self.watcher.judge().excess(),
            // After a gap, the ages from before it are unknown.
            oldest: (self.load.kind == Kind::Scale && !has_gap).then_some(seconds(oldest)),
        })
    }

    /// Starts a process of the contestant, if it has any, or an operator for each tenant, for this phase.
    async fn start(&mut self, phase: Phase) -> Result<()> {
        let homes: &[_] = if phase == Phase::Shards { &TENANTS } else { &[HOME] };
        for (number, home) in homes.iter().enumerate() {
            let name = format!("{:?}-{}-{phase:?}-{number}", self.contestant, self.place.rounds).to_lowercase();
            self.processes.extend(contestant::start(self.place, self.contestant, name, home).await?);
        }
        Ok(())
    }

    /// Deletes the sets and terminates the contestant's processes.
    pub async fn end(mut self) -> Result<()> {
        self.phase(Phase::Delete).await?;
        for process in self.processes {
            process.terminate(PATIENCE).await?;
        }
        Ok(())
    }

    /// The contestant's requests since the last call, by verb and resource.
    fn requests(&mut self) -> Result<BTreeMap<String, usize>> {
        self.log.read_to_end(&mut self.unread)?;
        let end = self.unread.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<_> = self.unread.drain(..end).collect();
        Ok(Requests::parse(std::str::from_utf8(&lines)?)?.kinds())
    }

    /// The sets that a phase changes: namespace and name.
    fn changed(&self, phase: Phase) -> impl Iterator<Item = (&'static str, String)> {
        let is_scale = self.load.kind == Kind::Scale;
        let namespaces: &[_] = if is_scale { &TENANTS } else { &[NAMESPACE] };
        let step = if is_scale && matches!(phase, Phase::Roll | Phase::RollShards) { 10 } else { 1 };
        let set = |number| (namespaces[number % namespaces.len()], format!("{}-{number}", self.name));
        (0..self.load.sets).step_by(step).map(set)
    }

    /// The pods that a phase deletes or replaces, if it does not change the number of pods.
    fn victims(&self, phase: Phase) -> Vec<Pod> {
        let mut live = self.watcher.judge().live();
        match phase {
            Phase::Repair => live.into_iter().step_by(10).collect(),
            Phase::Restart | Phase::Term | Phase::Kill => live.into_iter().take(1).collect(),
            // One in each namespace.
            Phase::Shards => {
                live.into_iter().map(|pod| (pod.namespace(), pod)).collect::<HashMap<_, _>>().into_values().collect()
            }
            Phase::Roll | Phase::RollShards => {
                let names: HashSet<_> = self.changed(phase).map(|(_, name)| name).collect();
                live.retain(|pod| names.contains(set_of(pod)));
                live
            }
            _ => Vec::new(),
        }
    }

    /// The requests that start a phase, one batch after the other.
    fn batches(&self, phase: Phase, before: usize, victims: &[Pod]) -> Result<Vec<Vec<Request>>> {
        let (rolls, wanted) = (self.load.kind != Kind::Replicas, self.wanted);
        let path = |pod: &Pod| format!("{}/{}", Pod::url_path(&(), pod.namespace().as_deref()), pod.name_any());
        let delete = |pod: &Pod| (Method::DELETE, path(pod), None);
        let changed = self.changed(phase);
        let Some(resource) = &self.sets else {
            // Without a controller, the benchmark creates and deletes the pods.
            let live = self.watcher.judge().live();
            let surplus = live.iter().enumerate().filter(|(number, _)| number % before >= wanted).map(|(_, pod)| pod);
            let deletes = victims.iter().chain(surplus).map(delete).collect();
            let lost = victims.iter().map(|pod| set_of(pod).to_owned());
            let missing = changed.flat_map(|(_, name)| repeat_n(name, wanted.saturating_sub(before)));
            let post =
                |set: String| Ok((Method::POST, Pod::url_path(&(), Some(NAMESPACE)), Some(contestant::pod(&set)?)));
            return Ok(vec![deletes, lost.chain(missing).map(post).collect::<Result<_>>()?]);
        };
        let restart = contestant::restart();
        let request = |(namespace, name): (_, String)| {
            let path = format!("/apis/{}/namespaces/{namespace}/{}", resource.api_version, resource.plural);
            let patch = |patch| (Method::PATCH, format!("{path}/{name}"), Some(patch));
            Ok(match phase {
                Phase::Create => (Method::POST, path, Some(contestant::set(resource, &name, wanted, rolls)?)),
                Phase::Delete => (Method::DELETE, format!("{path}/{name}?propagationPolicy=Background"), None),
                Phase::Roll | Phase::RollShards => patch(restart.clone()),
                _ => patch(json!({"spec": {"replicas": wanted}})),
            })
        };
        Ok(vec![match phase {
            Phase::Rest => Vec::new(),
            Phase::Repair | Phase::Restart | Phase::Term | Phase::Kill | Phase::Shards => {
                victims.iter().map(delete).collect()
            }
            _ => changed.map(request).collect::<Result<_>>()?,
        }])
    }
}

/// CPU time of the processes so far, in ms, and the peak memory of the largest one since the last call, in MiB.
fn usage(processes: &mut [Operator]) -> Result<(f64, f64)> {
    let (mut cpu, mut most) = (0.0, 0.0);
    for process in processes {
        let id = process.id()?;
        let process = Process::new(id.cast_signed())?;
        let (stat, peak) = (process.stat()?, process.status()?.vmhwm.context("/proc/PID/status without VmHWM")?);
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").context("resetting the peak memory")?;
        cpu += (stat.utime + stat.stime) as f64 * 1_000.0 / procfs::ticks_per_second() as f64;
        most = f64::max(most, peak as f64 / 1_024.0);
    }
    Ok((cpu, most))
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
