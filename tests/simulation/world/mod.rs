//! The whole operator in one process, with all faults, on virtual time: three replicas with election and all
//! controllers, users and nodes. One seed determines a world.
//!
//! `make simulate SEEDS=1000` runs many seeds. `make simulate SEED=7` repeats one of them and prints everything.

mod actions;
mod combinations;
pub mod dice;
mod end;
mod faults;
pub mod mutants;
mod play;
mod users;

use std::{collections::BTreeMap, time::Duration};

use futures::FutureExt as _;
use podset_operator::manager::Failure;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use self::{
    actions::{Action, Kind},
    dice::Dice,
    play::Tally,
};
use crate::{
    apiserver::{
        ApiServer, Fault, FaultRule, LABEL, LEASES, MYCUSTOMRESOURCES, NAMESPACES, PODS, PODSETS, PodScript, REVISIONS,
        Requests, Status, Verb, WatchControl, has_template, is_as_requested, object, pod,
    },
    replica::{LEASE, Model, Replica},
};

/// The sets: namespace and name. Most worlds have the first [`FEW`].
const SETS: [(&str, &str); 12] = [
    ("default", "red"),
    ("default", "green"),
    ("other", "blue"),
    ("other", "cyan"),
    ("other", "gold"),
    ("default", "grey"),
    ("third", "lime"),
    ("third", "navy"),
    ("third", "pink"),
    ("third", "plum"),
    ("third", "teal"),
    ("third", "rose"),
];
const FEW: usize = 3;

/// Lease duration, renew deadline and retry period in seconds. Those of one world may differ, as during a rollout.
const TIMINGS: [(u64, u64, u64); 4] = [(15, 10, 2), (6, 5, 1), (3, 2, 1), (4, 2, 1)];

/// A later step, and the action that it belongs to.
type Later = (&'static str, Box<dyn FnOnce(&mut World)>);

/// An outage, during which users and nodes do nothing: its end, and the call that ends it.
type Outage = (Instant, fn(&ApiServer));

struct World {
    server: ApiServer,
    sets: &'static [(&'static str, &'static str)],
    dice: Dice,
    /// The rules and settings of the replicas, except for those that the world draws for each.
    variant: Model,
    actions: Vec<&'static Action>,
    later: BTreeMap<(Instant, u64), Later>,
    scheduled: u64,
    outage: Option<Outage>,
    replicas: Vec<Replica>,
    ending: Vec<(String, JoinHandle<Result<(), Failure>>)>,
    started: u64,
    timings: Vec<(u64, u64, u64)>,
    panicked: Option<String>,
    tally: Tally,
    story: Vec<(Duration, String)>,
}

struct Outcome {
    /// The violation, if any.
    broken: Option<String>,
    tally: Tally,
    /// What happened, line by line; empty if it was not requested.
    chronicle: Vec<String>,
    /// A hash of all requests and all changes, the same for the same seed; 0 if it was not requested.
    fingerprint: u64,
}

impl Outcome {
    fn first_line(&self) -> &str {
        self.broken.as_deref().and_then(|broken| broken.lines().next()).unwrap_or_default()
    }
}

impl World {
    fn new(seed: u64, variant: Model) -> Self {
        let server = ApiServer::new(seed);
        let mut dice = Dice::new(seed);
        let actions = actions::drawn(&mut dice);
        server.settings(|settings| {
            settings.jitter = dice.millis(0..40);
            settings.request_latency = dice.millis(1..30);
            // Without timeouts, a request may be executed long after its client gave up.
            settings.honour_timeout = !actions.iter().any(|action| action.kind == Kind::Late);
            settings.page = dice.one(&[2, 5, 500]);
        });
        let sets = if dice.one_in(12) { &SETS[..] } else { &SETS[..FEW] };
        // In every second world, all replicas have the same durations.
        let first = dice.one(&TIMINGS);
        let timings = if dice.one_in(2) { TIMINGS.into() } else { vec![first] };
        let mut world = World {
            server,
            sets,
            dice,
            variant,
            actions,
            later: BTreeMap::new(),
            scheduled: 0,
            panicked: None,
            outage: None,
            replicas: Vec::new(),
            ending: Vec::new(),
            started: 0,
            timings,
            tally: Tally::default(),
            story: Vec::new(),
        };
        for (namespace, set) in sets {
            let replicas = world.dice.within(1..11).cast_signed();
            world.server.create_podset(namespace, set, replicas);
            if world.dice.one_in(3) {
                world.server.wait_for_termination(namespace, set);
            }
        }
        for _ in 0..3 {
            world.start_replica();
        }
        world
    }

    /// Runs a random number of actions, or until a violation.
    async fn play(&mut self) {
        let users: Vec<_> = self.actions.iter().copied().filter(|action| action.kind == Kind::User).collect();
        let others: Vec<_> = self.actions.iter().copied().filter(|action| action.kind != Kind::User).collect();
        let actions = self.dice.within(45..125);
        let mut next = Instant::now();
        for _ in 0..actions {
            next += self.dice.millis(0..1_400);
            self.until(next).await;
            next = Instant::now();
            if self.broken().is_some() {
                return;
            }
            self.replace_the_dead();
            let is_user = others.is_empty() || self.dice.below(5) < 3;
            let action = if is_user { self.dice.one(&users) } else { self.dice.one(&others) };
            self.server.with(|state| state.coverage.begin(action.name));
            if (action.act)(self) {
                self.server.with(|state| state.coverage.finish());
                self.tell(action.name);
            }
        }
    }

    /// Lets time pass, and runs the later steps that become due.
    async fn until(&mut self, time: Instant) {
        loop {
            self.sit_out().await;
            let Some(later) = self.later.first_entry().filter(|later| later.key().0 <= time) else { break };
            let at = later.key().0;
            let (action, act) = later.remove();
            sleep_until(at).await;
            self.server.with(|state| state.coverage.begin(action));
            act(self);
        }
        sleep_until(time).await;
    }

    /// Waits for the end of an outage. Users and nodes do nothing in this time.
    async fn sit_out(&mut self) {
        let Some((until, end)) = self.outage.take() else { return };
        while Instant::now() < until {
            sleep_until(until.min(Instant::now() + Duration::from_secs(10))).await;
            self.replace_the_dead();
        }
        end(&self.server);
    }

    fn broken(&self) -> Option<String> {
        let violation = self.server.first_violation();
        self.panicked.clone().or(violation)
    }

    fn tell(&mut self, what: &str) {
        self.story.push((self.server.with(|state| state.clock.elapsed()), what.to_owned()));
    }

    /// The actions, requests and changes, in chronological order.
    fn chronicle(&self) -> Vec<String> {
        let story = self.story.iter().map(|(at, what)| (*at, format!("{:>10.3}s -- {what}", at.as_secs_f64())));
        let mut all: Vec<_> = story.collect();
        self.server.with(|state| {
            let changes = state.history.iter().filter(|change| *change.kind != LEASES);
            all.extend(changes.map(|change| (change.at, change.to_string())));
            let requests = state.log.iter().filter(|entry| *entry.request.kind != LEASES);
            all.extend(requests.map(|entry| (entry.at, entry.line())));
        });
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, line)| line).collect()
    }

    fn later(&mut self, after: Duration, act: impl FnOnce(&mut World) + 'static) {
        self.scheduled += 1;
        let action = self.server.with(|state| state.coverage.action);
        self.later.insert((Instant::now() + after, self.scheduled), (action, Box::new(act)));
    }

    /// Shuts the replica at this index down after this time, and starts another one.
    fn shut_down(&mut self, place: usize, after: Duration) {
        let replica = self.replicas.remove(place);
        let name = replica.name.clone();
        let ending = async move {
            tokio::time::sleep(after).await;
            replica.end().await
        };
        self.ending.push((name, tokio::spawn(ending)));
        self.start_replica();
    }

    /// A random time for which a write may be in transit: less than the margin of the shortest lease.
    fn time_in_transit(&mut self) -> Duration {
        let margin = |(lease, deadline, _): &(u64, u64, u64)| ((lease - deadline) * 500).min(2_000);
        let margin = self.timings.iter().map(margin).min().unwrap_or_default();
        self.dice.millis(10..margin * 9 / 10)
    }

    fn start_replica(&mut self) {
        let name = format!("replica-{}", self.started);
        self.started += 1;
        let model = Model {
            timing: self.dice.one(&self.timings),
            wall_offset: self.dice.below(1_200).cast_signed() - 600,
            seed: self.dice.below(u64::MAX),
            ..self.variant
        };
        self.replicas.push(Replica::start(&self.server, &name, model));
    }

    /// Replaces replicas that have exited, like a Deployment.
    fn replace_the_dead(&mut self) {
        let (dead, alive): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.replicas).into_iter().partition(Replica::has_ended);
        self.replicas = alive;
        for replica in dead {
            let name = replica.name.clone();
            let end = replica.ended().now_or_never();
            self.tell(&format!("{name} exited by itself: {end:?}"));
            let is_undisturbed = self.actions.iter().all(|action| action.kind == Kind::User);
            if is_undisturbed || matches!(end, Some(Err(Failure::Panicked { .. }))) {
                self.panicked = Some(format!("{name} exited by itself: {end:?}"));
            }
            self.tally.count(play::EXITED);
            self.start_replica();
        }
    }

    /// The index of the leader, if any.
    fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(Replica::leads)
    }

    /// The index of a random replica; in at least half of the cases the leader.
    fn any(&mut self) -> usize {
        match self.leader().filter(|_| self.dice.one_in(2)) {
            Some(leader) => leader,
            None => usize::try_from(self.dice.below(self.replicas.len() as u64)).unwrap_or(0),
        }
    }

    fn any_name(&mut self) -> String {
        let place = self.any();
        self.replicas[place].name.clone()
    }

    fn outcome(mut self, end: Result<(), String>, is_told: bool) -> Outcome {
        let broken = self.broken().or(end.err());
        self.tally.of_requests(&self.server);
        let fingerprint = if is_told { play::fingerprint(&self.server) } else { 0 };
        let chronicle = if is_told { self.chronicle() } else { Vec::new() };
        Outcome { broken, tally: self.tally, chronicle, fingerprint }
    }
}

async fn run(seed: u64, variant: Model, is_told: bool) -> Outcome {
    let mut world = World::new(seed, variant);
    world.play().await;
    let end = match world.broken() {
        Some(_) => Ok(()),
        None => end::converges(&mut world).await,
    };
    world.outcome(end, is_told)
}
