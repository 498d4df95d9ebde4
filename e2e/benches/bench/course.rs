//! One contestant with one load, from its start to its end, phase by phase.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::account::Account;
use e2e::audit::Tail;
use e2e::bench::judge::{Goal, Marks};
use e2e::bench::records::{Contestant, Load, Measured, Part, Phase, Rest};
use e2e::bench::usage::{Usage, forget_peak};
use e2e::operator::Operator;
use http::Method;
use kube::Client;
use kube::api::ApiResource;
use serde_json::json;
use tokio::time::sleep;

use crate::contestant;
use crate::eyes::Eyes;
use crate::hands::{Deed, send_all};
use crate::place::{FLOOR, NAMESPACE, Place};

/// Sets are created, changed and deleted over so many connections, whoever works on them.
const USERS: usize = 32;

const PODS: &str = "/api/v1/namespaces/bench/pods";

/// A contestant at work.
pub struct Course<'a> {
    place: &'a Place,
    contestant: Contestant,
    load: Load,
    name: String,
    sets: Option<ApiResource>,
    process: Option<Operator>,
    hands: Client,
    eyes: Eyes,
    log: Tail,
    /// Pods that each set wants.
    wanted: usize,
    /// Bare pods by name, and how many there ever were.
    bare: (Vec<String>, usize),
}

impl<'a> Course<'a> {
    /// Starts the contestant, and lets it do a little before anything is measured.
    pub async fn begin(place: &'a mut Place, contestant: Contestant, load: Load) -> Result<Self> {
        place.courses += 1;
        let mut course = Self::open(place, contestant, load).await?;
        course.start().await?;
        Ok(course)
    }

    async fn open(place: &'a Place, contestant: Contestant, load: Load) -> Result<Self> {
        let sets = contestant::sets(contestant);
        let hands = match contestant {
            // A token of its own for each course: none lasts as long as a benchmark.
            Contestant::Floor => {
                Account::existing(place.client(), NAMESPACE, FLOOR).await?.client(&place.cluster).await?
            }
            _ => place.client().clone(),
        };
        Ok(Self {
            place,
            contestant,
            load,
            name: format!("c{}", place.courses),
            eyes: Eyes::open(place.client(), NAMESPACE, sets.as_ref()),
            sets,
            process: None,
            hands,
            log: Tail::follow(place.cluster.audit_log()?)?,
            wanted: 0,
            bare: (Vec::new(), 0),
        })
    }

    /// Starts its process, and waits until a small set came and went: then caches are filled and connections made.
    pub async fn start(&mut self) -> Result<()> {
        self.process = contestant::start(self.place, self.contestant).await?;
        let (load, wanted, name) = (self.load, self.wanted, self.name.clone());
        if wanted > 0 {
            return Ok(()); // there is enough that it had to look at
        }
        self.name.push_str("-first");
        self.load = Load { sets: 1, pods: 10 };
        for phase in [Phase::Create, Phase::Delete] {
            self.phase(Part::Short, 0, phase).await?;
        }
        (self.load, self.name) = (load, name);
        Ok(())
    }

    /// Lets it happen, and measures until all is at rest.
    pub async fn phase(&mut self, part: Part, round: usize, phase: Phase) -> Result<Measured> {
        let before = self.wanted;
        self.wanted = match phase {
            Phase::Create | Phase::Refill => self.load.pods,
            Phase::Up => 2 * before,
            Phase::Repair => before,
            Phase::Down => 1,
            Phase::Delete => 0,
        };
        let victims: Vec<(String, String)> = match phase {
            Phase::Repair => {
                self.eyes.judge().tenth().into_iter().map(|pod| (pod.uid.clone(), pod.name.clone())).collect()
            }
            _ => Vec::new(),
        };
        let deeds = self.deeds(phase, before, &victims);
        self.requests()?;
        let cpu = self.usage()?.map(|usage| usage.cpu);
        let began = Instant::now();
        self.eyes.judge().begin(self.goal(before, &victims), began);
        for (width, deeds) in deeds {
            send_all(&self.hands, width, deeds.into_iter()).await?;
        }
        self.comes_to_rest().await.with_context(|| format!("{}: {}", self.title(), phase.title()))?;
        let usage = self.usage()?;
        let (Marks { pods, status, ready }, faults, gaps) = self.eyes.verdict();
        let seconds = |mark: Option<Instant>| mark.map(|mark| (mark - began).as_secs_f64());
        let with_status = |mark| seconds(mark).filter(|_| self.sets.is_some());
        Ok(Measured {
            part,
            contestant: self.contestant,
            load: self.load,
            round,
            phase,
            pods: seconds(pods).context("at rest, and the pods are not as wanted")?,
            status: with_status(status),
            ready: with_status(ready),
            touched: victims.len().max(self.load.sets * before.abs_diff(self.wanted)),
            requests: self.requests()?,
            cpu: usage.zip(cpu).map(|(after, before)| after.cpu - before),
            peak: usage.map(|usage| usage.peak),
            excess: faults.0,
            over_deleted: faults.1,
            gaps,
        })
    }

    /// Nothing shall happen for so long; what it costs all the same.
    pub async fn rest(&mut self, part: Part, round: usize, time: Duration) -> Result<Option<Rest>> {
        self.requests()?;
        let (Some(before), began) = (self.usage()?, Instant::now()) else { return Ok(None) };
        sleep(time).await;
        let after = self.usage()?.context("it has no process any more")?;
        Ok(Some(Rest {
            part,
            contestant: self.contestant,
            load: self.load,
            round,
            seconds: began.elapsed().as_secs_f64(),
            requests: self.requests()?,
            cpu: after.cpu - before.cpu,
            resident: after.resident,
        }))
    }

    /// What a standby costs for so long, while the contestant leads that is an operator; and the requests of both.
    pub async fn rest_of_standby(&mut self, part: Part, time: Duration) -> Result<Rest> {
        let mut standby = Some(contestant::start_operator(self.place, "standby", None).await?);
        // For its caches.
        sleep(time / 4).await;
        std::mem::swap(&mut self.process, &mut standby);
        let rest = self.rest(part, 1, time).await;
        std::mem::swap(&mut self.process, &mut standby);
        if let Some(standby) = standby {
            contestant::end(self.contestant, standby).await?;
        }
        rest?.context("it has no process")
    }

    /// Processor time so far, and the memory of its process. The most of it is forgotten.
    pub fn usage(&mut self) -> Result<Option<Usage>> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let id = process.id()?;
        let usage = Usage::of(id)?;
        forget_peak(id)?;
        Ok(Some(usage))
    }

    /// Waits until all is as wanted.
    pub async fn comes_to_rest(&mut self) -> Result<()> {
        let limit = Duration::from_secs(300) + Duration::from_millis(50) * self.load.all_pods() as u32;
        let process = &mut self.process;
        self.eyes.until_at_rest(limit, || process.as_mut().map_or(Ok(()), Operator::is_running)).await
    }

    /// Ends the contestant's process.
    pub async fn end(&mut self) -> Result<()> {
        match self.process.take() {
            Some(process) => contestant::end(self.contestant, process).await,
            None => Ok(()),
        }
    }

    /// Whose course it is, in words.
    pub fn title(&self) -> String {
        format!("{}, {}", self.load, self.contestant.title())
    }

    /// Its requests since it was asked last.
    fn requests(&mut self) -> Result<BTreeMap<String, usize>> {
        Ok(self.log.since_last(&contestant::user(self.contestant))?.kinds())
    }

    fn goal(&self, before: usize, victims: &[(String, String)]) -> Goal {
        let (most, least) = (self.wanted.max(before), self.wanted.min(before));
        let victims_names = victims.iter().map(|(_, name)| name.clone()).collect();
        let victims = victims.iter().map(|(uid, _)| uid.clone()).collect::<HashSet<_>>();
        let sets = if self.wanted == 0 { 0 } else { self.load.sets };
        let goal = Goal { sets, pods: self.wanted, most, least, victims, victims_names, has_status: true };
        if self.sets.is_some() {
            return goal;
        }
        // To the judge, pods that have no set have one that is none.
        let of_all = |pods| pods * self.load.sets;
        let (most, least) = (of_all(goal.most), of_all(goal.least));
        Goal { sets: sets.min(1), pods: of_all(goal.pods), most, least, has_status: false, ..goal }
    }

    /// What has to be done for a phase to begin; in steps, each with the number of its connections.
    fn deeds(&mut self, phase: Phase, before: usize, victims: &[(String, String)]) -> Vec<(usize, Vec<Deed>)> {
        let killed = || victims.iter().map(|(_, name)| (Method::DELETE, format!("{PODS}/{name}"), None)).collect();
        let Some(resource) = &self.sets else {
            return self.bare_deeds(before, victims, killed());
        };
        let path = contestant::path(resource, NAMESPACE);
        let set = |number: usize| {
            let (name, replicas) = (format!("{}-{number}", self.name), self.wanted);
            match phase {
                Phase::Create => (Method::POST, path.clone(), Some(contestant::set(resource, &name, replicas))),
                Phase::Delete => (Method::DELETE, format!("{path}/{name}?propagationPolicy=Background"), None),
                _ => (Method::PATCH, format!("{path}/{name}"), Some(json!({"spec": {"replicas": replicas}}))),
            }
        };
        let deeds = if phase == Phase::Repair { killed() } else { (0..self.load.sets).map(set).collect() };
        vec![(USERS, deeds)]
    }

    /// What nobody does for bare pods is done by hand.
    fn bare_deeds(
        &mut self,
        before: usize,
        victims: &[(String, String)],
        killed: Vec<Deed>,
    ) -> Vec<(usize, Vec<Deed>)> {
        let (create, delete) = self.place.connections;
        let (names, ever) = &mut self.bare;
        let more = self.load.sets * self.wanted.saturating_sub(before) + victims.len();
        let made: Vec<_> = (*ever..*ever + more).map(|number| format!("{}-pod{number:05}", self.name)).collect();
        *ever += more;
        let fewer = self.load.sets * before.saturating_sub(self.wanted);
        let went = names.split_off(names.len() - fewer);
        let victims: HashSet<_> = victims.iter().map(|(_, name)| name).collect();
        names.retain(|name| !victims.contains(name));
        names.extend(made.iter().cloned());
        let manifest = |name: &String| (Method::POST, PODS.to_owned(), Some(contestant::pod(&self.name, name)));
        let gone = went.iter().map(|name| (Method::DELETE, format!("{PODS}/{name}"), None));
        vec![(delete, killed), (delete, gone.collect()), (create, made.iter().map(manifest).collect())]
    }
}
