//! One operator with very many pods, step by step. Memory, pods and the age of statuses are sampled every second.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::account::Account;
use e2e::operator::Operator;
use e2e::rights::{self, ACCOUNT, HOME};
use e2e::scene::make_namespace;
use e2e::types::{Pod, PodSet};
use http::Method;
use kube::{Resource, ResourceExt};
use procfs::process::Process;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::contestant;
use crate::judge::{Goal, Judge, set_of};
use crate::place::Place;
use crate::records::{Contestant, Load, Record, Sample, Samples, Step, append, work};
use crate::round::{Request, send_all, usage};
use crate::tail::Tail;
use crate::watcher::{Watcher, lock};

/// The sets are spread evenly over these namespaces. `audit-policy.yaml` names their ServiceAccounts.
const TENANTS: [&str; 3] = ["tenant-a", "tenant-b", "tenant-c"];

/// Maximum time of a step.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Time after which a new replica is at rest.
const SETTLED: Duration = Duration::from_secs(15);

/// The operators at work.
struct Course<'a> {
    place: &'a Place,
    load: Load,
    watcher: Watcher,
    log: Tail,
    /// The leader comes first.
    operators: Vec<Operator>,
    /// The processes of all operators, also of those that have ended.
    processes: Arc<Mutex<Vec<u32>>>,
    began: Instant,
    records: &'a Path,
}

/// Measures all steps on an empty cluster.
pub async fn measure(place: &Place, load: Load, records: &Path) -> Result<()> {
    for tenant in TENANTS {
        make_namespace(&place.cluster, tenant).await?;
        rights::grant(&place.cluster, tenant).await?;
        Account::create(&place.cluster, tenant, ACCOUNT).await?;
    }
    let sets = contestant::sets(Contestant::Operator);
    let mut course = Course {
        place,
        load,
        watcher: Watcher::start(&place.cluster.client, None, sets.as_ref()),
        log: Tail::follow(&place.cluster.audit_log)?,
        operators: Vec::new(),
        processes: Arc::default(),
        began: Instant::now(),
        records,
    };
    let samples = Arc::default();
    let mut sampler = JoinSet::new();
    let judge = course.watcher.shared();
    sampler.spawn(sample(course.began, judge, course.processes.clone(), Arc::clone(&samples)));
    course.run().await?;
    sampler.shutdown().await;
    let list = std::mem::take(&mut *lock(&samples));
    append(records, &Record::Samples(Samples { list }))
}

impl Course<'_> {
    async fn run(&mut self) -> Result<()> {
        self.join(HOME, &[]).await?;
        let resource = contestant::sets(Contestant::Operator).context("the operator has sets")?;
        let create = |number| {
            let set = contestant::set(&resource, &name(number), self.load.pods, true)?;
            Ok((Method::POST, PodSet::url_path(&(), Some(tenant(number))), Some(set)))
        };
        let creates = (0..self.load.sets).map(create).collect::<Result<_>>()?;
        self.step("create", &[], async |course| course.send(creates).await).await?;
        self.step("60 s at rest", &[], async |_| wait(60).await).await?;
        let lost = self.lost(1);
        self.step("restart of the operator", &lost, async |course| {
            course.end().await?;
            course.delete(&lost).await?;
            course.join(HOME, &[]).await
        })
        .await?;
        self.join_standby().await?;
        let lost = self.lost(1);
        self.step("SIGTERM to the leader", &lost, async |course| {
            course.operators.remove(0).terminate(SETTLED).await?;
            course.delete(&lost).await
        })
        .await?;
        self.join_standby().await?;
        let lost = self.lost(1);
        self.step("SIGKILL to the leader", &lost, async |course| {
            course.operators.remove(0).kill().await?;
            course.delete(&lost).await
        })
        .await?;
        self.restart_a_tenth(0, "rolling restart of 1 set in 10").await?;
        let lost = self.lost(TENANTS.len());
        self.step("start of three operators, one per namespace", &lost, async |course| {
            course.end().await?;
            course.delete(&lost).await?;
            for tenant in TENANTS {
                course.join(tenant, &[tenant]).await?;
            }
            Ok(())
        })
        .await?;
        self.restart_a_tenth(1, "rolling restart of 1 set in 10 by three operators").await?;
        self.end().await
    }

    async fn step(
        &mut self,
        title: &str,
        victims: &[Pod],
        act: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.measure(title, victims, false, act).await
    }

    /// Measures from before `act` until everything is as wanted and at rest. The `victims` must go, and if it `rolls`, all other pods
    /// must be new and ready.
    async fn measure(
        &mut self,
        title: &str,
        victims: &[Pod],
        rolls: bool,
        act: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        println!("bench: {title}");
        self.requests()?;
        let before = self.usage()?;
        let began = Instant::now();
        self.watcher.judge().begin(Goal {
            sets: self.load.sets,
            pods: self.load.pods,
            most: self.load.pods,
            victims: victims.iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect(),
            rolls,
            has_status: true,
        });
        act(self).await?;
        let at_rest = self.watcher.until_at_rest(LIMIT, &mut self.operators).await;
        let [pods, status, _] = at_rest.with_context(|| title.to_owned())?;
        let seconds =
            |mark: Option<Instant>| mark.map_or(0.0, |mark| mark.saturating_duration_since(began).as_secs_f64());
        let cpu_before = |id| before.iter().find(|(other, ..)| *other == id).map_or(0.0, |(_, cpu, _)| *cpu);
        let usage = self.usage()?;
        let (excess, gaps) = self.watcher.judge().faults();
        let [_, age] = self.watcher.judge().oldest(Instant::now());
        let step = Step {
            load: self.load,
            title: title.to_owned(),
            began: (began - self.began).as_secs_f64(),
            pods: seconds(pods),
            status: seconds(status),
            requests: self.requests()?,
            cpu: usage.iter().map(|(id, cpu, _)| (cpu - cpu_before(*id)) / 1_000.0).sum(),
            peak: usage.iter().map(|(.., peak)| *peak).fold(0.0, f64::max),
            age: age.as_secs_f64(),
            excess,
            gaps,
        };
        println!("bench:   {}", serde_json::to_string(&step)?);
        append(self.records, &Record::Step(step))
    }

    /// Changes the template of the sets with this last digit.
    async fn restart_a_tenth(&mut self, digit: usize, title: &str) -> Result<()> {
        let numbers: Vec<_> = (digit..self.load.sets).step_by(10).collect();
        let names: HashSet<_> = numbers.iter().map(|number| name(*number)).collect();
        let mut victims = self.watcher.judge().live();
        victims.retain(|pod| names.contains(set_of(pod)));
        let patch = contestant::restart();
        let path = |number| format!("{}/{}", PodSet::url_path(&(), Some(tenant(number))), name(number));
        let patches = numbers.into_iter().map(|number| (Method::PATCH, path(number), Some(patch.clone()))).collect();
        self.measure(title, &victims, true, async |course| course.send(patches).await).await
    }

    /// Starts an operator for these namespaces; for all if there are none.
    async fn join(&mut self, home: &str, namespaces: &[&str]) -> Result<()> {
        let name = format!("scale-{}", lock(&self.processes).len());
        let mut operator = contestant::start_operator(self.place, name, home, namespaces).await?;
        lock(&self.processes).push(operator.id()?);
        self.operators.push(operator);
        Ok(())
    }

    async fn join_standby(&mut self) -> Result<()> {
        self.step("start of a standby", &[], async |course| {
            course.join(HOME, &[]).await?;
            wait(SETTLED.as_secs()).await
        })
        .await
    }

    /// Terminates all operators.
    async fn end(&mut self) -> Result<()> {
        for operator in self.operators.drain(..) {
            operator.terminate(SETTLED).await?;
        }
        Ok(())
    }

    /// A pod of each of the first sets.
    fn lost(&self, sets: usize) -> Vec<Pod> {
        let mut live = self.watcher.judge().live();
        live.dedup_by(|pod, before| set_of(pod) == set_of(before));
        live.retain(|pod| (0..sets).any(|number| set_of(pod) == name(number)));
        live
    }

    async fn delete(&self, pods: &[Pod]) -> Result<()> {
        let path = |pod: &Pod| format!("{}/{}", Pod::url_path(&(), pod.namespace().as_deref()), pod.name_any());
        self.send(pods.iter().map(|pod| (Method::DELETE, path(pod), None)).collect()).await
    }

    async fn send(&self, requests: Vec<Request>) -> Result<()> {
        send_all(&self.place.cluster.client, requests).await
    }

    /// Requests of all operators since the last call, without watches and Lease traffic.
    fn requests(&mut self) -> Result<usize> {
        let mut users = contestant::users(Contestant::Operator);
        users.extend(TENANTS.map(|tenant| contestant::user(tenant, ACCOUNT)));
        Ok(work(&self.log.since_last(&users)?.kinds()))
    }

    /// Process ID, CPU time in ms, and peak memory in MiB since the last call, of each operator.
    fn usage(&mut self) -> Result<Vec<(u32, f64, f64)>> {
        let usage = |operator: &mut Operator| usage(operator).and_then(|(cpu, peak)| Ok((operator.id()?, cpu, peak)));
        self.operators.iter_mut().map(usage).collect()
    }
}

fn name(number: usize) -> String {
    format!("scale-{number:05}")
}

fn tenant(number: usize) -> &'static str {
    TENANTS[number % TENANTS.len()]
}

async fn wait(seconds: u64) -> Result<()> {
    sleep(Duration::from_secs(seconds)).await;
    Ok(())
}

/// Takes a sample every second.
async fn sample(
    began: Instant,
    judge: Arc<Mutex<Judge>>,
    processes: Arc<Mutex<Vec<u32>>>,
    samples: Arc<Mutex<Vec<Sample>>>,
) {
    let resident = |id: &u32| Process::new(id.cast_signed()).ok()?.status().ok()?.vmrss;
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        let largest = lock(&processes).iter().filter_map(resident).max().unwrap_or(0);
        let (pods, [age, _]) = {
            let judge = lock(&judge);
            (judge.count(), judge.oldest(Instant::now()))
        };
        let tenths = |number: f64| (number * 10.0).round() / 10.0;
        let at = tenths(began.elapsed().as_secs_f64());
        lock(&samples).push((at, tenths(largest as f64 / 1_024.0), pods, tenths(age.as_secs_f64())));
    }
}
