//! One contestant with one load, phase by phase.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::account::Account;
use e2e::audit::Tail;
use e2e::operator::Operator;
use e2e::usage::{Usage, forget_peak};
use http::Method;
use kube::Client;
use kube::api::ApiResource;
use serde_json::json;

use crate::contestant;
use crate::judge::Goal;
use crate::place::{FLOOR, NAMESPACE, Place};
use crate::records::{Contestant, Load, Measured, Phase};
use crate::requests::{Request, send_all};
use crate::watcher::{Marks, Watcher};

/// Connections over which the sets are created, changed and deleted.
const USERS: usize = 32;

const PODS: &str = "/api/v1/namespaces/bench/pods";

/// A pod by UID and name.
type Victim = (String, String);

/// A contestant at work.
pub struct Round<'a> {
    place: &'a Place,
    contestant: Contestant,
    load: Load,
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
    /// Names of the bare pods, and how many were ever created.
    bare: (Vec<String>, usize),
}

impl<'a> Round<'a> {
    /// Starts the contestant, and creates and deletes one small set so that caches are filled and connections open.
    pub async fn begin(place: &'a mut Place, contestant: Contestant, load: Load, number: u32) -> Result<Self> {
        place.rounds += 1;
        let place = &*place;
        let sets = contestant::sets(contestant);
        let user = match contestant {
            // A new token for each round, because a token does not last as long as a benchmark.
            Contestant::Floor => {
                Account::existing(&place.cluster, NAMESPACE, FLOOR).await?.client(&place.cluster).await?
            }
            _ => place.client().clone(),
        };
        let mut round = Self {
            place,
            contestant,
            load: Load { sets: 1, pods: 10 },
            number,
            name: format!("r{}-first", place.rounds),
            watcher: Watcher::start(place.client(), NAMESPACE, sets.as_ref()),
            sets,
            process: contestant::start(place, contestant).await?,
            user,
            log: Tail::follow(place.cluster.audit_log())?,
            wanted: 0,
            bare: (Vec::new(), 0),
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
            Phase::Repair => before,
            Phase::Down => 1,
            Phase::Delete => 0,
        };
        let victims: Vec<Victim> = match phase {
            Phase::Repair => self.watcher.judge().tenth(),
            _ => Vec::new(),
        };
        let steps = self.steps(phase, before, &victims)?;
        self.requests()?;
        let cpu = self.usage()?.map(|usage| usage.cpu);
        let began = Instant::now();
        self.watcher.judge().begin(self.goal(before, &victims));
        for (width, requests) in steps {
            send_all(&self.user, width, requests.into_iter()).await?;
        }
        let what = || format!("{}, {}: {}", self.load, self.contestant.title(), phase.title());
        let limit = Duration::from_secs(300) + Duration::from_millis(50) * self.load.all_pods() as u32;
        let process = &mut self.process;
        let at_rest = self.watcher.until_at_rest(limit, || process.as_mut().map_or(Ok(()), Operator::is_running)).await;
        let Marks { pods, status, ready } = at_rest.with_context(what)?;
        let usage = self.usage()?;
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
            cpu: usage.zip(cpu).map(|(after, before)| after.cpu - before),
            peak: usage.map(|usage| usage.peak),
            excess,
            gaps,
        })
    }

    /// Ends the contestant's process.
    pub async fn end(self) -> Result<()> {
        match self.process {
            Some(process) => contestant::end(self.contestant, process).await,
            None => Ok(()),
        }
    }

    /// CPU time so far, and the peak memory since the last call.
    fn usage(&mut self) -> Result<Option<Usage>> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let id = process.id()?;
        let usage = Usage::of(id)?;
        forget_peak(id)?;
        Ok(Some(usage))
    }

    /// The contestant's requests since the last call.
    fn requests(&mut self) -> Result<BTreeMap<String, usize>> {
        Ok(self.log.since_last(&contestant::user(self.contestant))?.kinds())
    }

    fn goal(&self, before: usize, victims: &[Victim]) -> Goal {
        let most = self.wanted.max(before);
        let names_of_victims = victims.iter().map(|(_, name)| name.clone()).collect();
        let victims = victims.iter().map(|(uid, _)| uid.clone()).collect::<HashSet<_>>();
        let sets = if self.wanted == 0 { 0 } else { self.load.sets };
        let goal = Goal { sets, pods: self.wanted, most, victims, names_of_victims, has_status: true };
        if self.sets.is_some() {
            return goal;
        }
        // The judge sees all bare pods as the pods of one set without a name.
        let pods = goal.pods * self.load.sets;
        Goal { sets: sets.min(1), pods, most: most * self.load.sets, has_status: false, ..goal }
    }

    /// The requests that start a phase, in steps, each with its number of connections.
    fn steps(&mut self, phase: Phase, before: usize, victims: &[Victim]) -> Result<Vec<(usize, Vec<Request>)>> {
        let kills = || victims.iter().map(|(_, name)| (Method::DELETE, format!("{PODS}/{name}"), None)).collect();
        let Some(resource) = &self.sets else {
            return self.bare_steps(before, victims, kills());
        };
        let path = contestant::path(resource, NAMESPACE);
        let set = |number: usize| {
            let (name, replicas) = (format!("{}-{number}", self.name), self.wanted);
            Ok(match phase {
                Phase::Create => (Method::POST, path.clone(), Some(contestant::set(resource, &name, replicas)?)),
                Phase::Delete => (Method::DELETE, format!("{path}/{name}?propagationPolicy=Background"), None),
                _ => (Method::PATCH, format!("{path}/{name}"), Some(json!({"spec": {"replicas": replicas}}))),
            })
        };
        let requests =
            if phase == Phase::Repair { kills() } else { (0..self.load.sets).map(set).collect::<Result<_>>()? };
        Ok(vec![(USERS, requests)])
    }

    /// Without a controller, the benchmark creates and deletes the pods.
    fn bare_steps(
        &mut self,
        before: usize,
        victims: &[Victim],
        kills: Vec<Request>,
    ) -> Result<Vec<(usize, Vec<Request>)>> {
        let (create, delete) = self.place.connections;
        let more = self.load.sets * self.wanted.saturating_sub(before) + victims.len();
        let fewer = self.load.sets * before.saturating_sub(self.wanted);
        let (names, ever) = &mut self.bare;
        let deletes = names.split_off(names.len() - fewer).into_iter();
        let deletes = deletes.map(|name| (Method::DELETE, format!("{PODS}/{name}"), None)).collect();
        names.retain(|name| !victims.iter().any(|(_, victim)| victim == name));
        let mut creates = Vec::new();
        for number in *ever..*ever + more {
            let name = format!("{}-pod{number:05}", self.name);
            creates.push((Method::POST, PODS.to_owned(), Some(contestant::pod(&self.name, &name)?)));
            names.push(name);
        }
        *ever += more;
        Ok(vec![(delete, kills), (delete, deletes), (create, creates)])
    }
}
