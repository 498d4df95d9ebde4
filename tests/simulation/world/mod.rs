//! The whole operator in one process, under every fault, on virtual time: three replicas with election and all controllers,
//! users, nodes, and whatever else happens, all drawn from one seed.
//!
//! `make simulate SEEDS=1000` plays many seeds, `make simulate SEED=7` one of them again and tells its story.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | one world: how it begins, what happens when, how it ends |
//! | `deeds` | the list of all that can happen |
//! | `users`, `faults`, `plots` | what happens: by people and nodes, to requests and replicas, and in ways that fit together |
//! | `end` | what must be true when it is over |
//! | `play` | many seeds at once, and what is told of them |
//! | `shortest` | of a seed that went wrong, the least that must happen for it |
//! | `mutants` | the same with one mechanism of the operator taken out: something must go wrong |

mod deeds;
pub mod dice;
mod end;
mod faults;
mod lease_edits;
mod mutants;
mod play;
mod plots;
mod shortest;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::FutureExt as _;
use podset_operator::{manager::Failure, podset};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use self::{
    deeds::{Deed, Kind},
    dice::Dice,
    play::Tally,
};
use crate::{
    apiserver::{ApiServer, LEASES},
    replica::{Model, Replica},
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

/// The durations that replicas may have, in seconds: those of one world may differ, as in a rollout.
const TIMINGS: [(u64, u64, u64); 4] = [(15, 10, 2), (6, 5, 1), (3, 2, 1), (4, 2, 1)];

/// What a replica is, beside what chance makes of it.
#[derive(Clone, Copy)]
struct Variant {
    podset: podset::promise::Rules,
    leader: leadership::promise::Rules,
    is_bounded: bool,
}

impl Default for Variant {
    fn default() -> Self {
        Variant {
            podset: podset::promise::Rules::default(),
            leader: leadership::promise::Rules::default(),
            is_bounded: true,
        }
    }
}

/// What was set going, and the deed that did.
type Later = (&'static str, Box<dyn FnOnce(&mut World)>);

/// A time at which users and nodes reach nothing: until when, and what ends it.
type Outage = (Instant, fn(&ApiServer));

/// One world.
struct World {
    server: ApiServer,
    sets: &'static [(&'static str, &'static str)],
    dice: Dice,
    variant: Variant,
    /// What can happen in it.
    deeds: Vec<&'static Deed>,
    /// What was set going and is still to come.
    later: BTreeMap<(Instant, u64), Later>,
    set_going: u64,
    outage: Option<Outage>,
    replicas: Vec<Replica>,
    /// The replicas that were asked to end.
    ending: Vec<(String, JoinHandle<Result<(), Failure>>)>,
    started: u64,
    /// Which timings its replicas have.
    timings: Vec<(u64, u64, u64)>,
    /// What a part of a replica said when it panicked.
    panicked: Option<String>,
    tally: Tally,
    story: Vec<(Duration, String)>,
}

/// What a world is made from.
#[derive(Clone)]
struct Seed {
    /// All chance follows from it.
    number: u64,
    /// Of the deeds, counted from 0, those that are not done: how little is enough?
    left_out: BTreeSet<u64>,
}

impl From<u64> for Seed {
    fn from(number: u64) -> Self {
        Seed { number, left_out: BTreeSet::new() }
    }
}

/// What became of a world.
struct Outcome {
    /// What went wrong, with the end of its history.
    broken: Option<String>,
    tally: Tally,
    /// How many deeds were tried.
    deeds: u64,
    /// What happened, line by line; empty where nothing went wrong and nobody asked.
    chronicle: Vec<String>,
    /// Of all requests and all changes: the same for the same seed. 0 where nobody asked.
    fingerprint: u64,
}

impl World {
    fn new(seed: u64, variant: Variant) -> Self {
        let server = ApiServer::new(seed);
        let mut dice = Dice::new([seed, 0]);
        let deeds = deeds::drawn(&mut dice);
        server.settings(|settings| {
            settings.jitter = dice.millis(0..40);
            settings.request_latency = dice.millis(1..30);
            // Then a request may be executed long after its sender gave up.
            settings.honour_timeout = !deeds.iter().any(|deed| deed.kind == Kind::Late);
            settings.page = dice.one(&[2, 5, 500]);
        });
        let sets = if dice.one_in(12) { &SETS[..] } else { &SETS[..FEW] };
        // In one world of two all have the same durations.
        let first = dice.one(&TIMINGS);
        let timings = if dice.one_in(2) { TIMINGS.into() } else { vec![first] };
        let mut world = World {
            server,
            sets,
            dice,
            variant,
            deeds,
            later: BTreeMap::new(),
            set_going: 0,
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

    /// Lets things happen, until something is broken or it has been enough. What a deed draws changes nothing for the
    /// next one, so that one can be left out. Returns how many were tried.
    async fn play(&mut self, seed: &Seed) -> u64 {
        let users: Vec<_> = self.deeds.iter().copied().filter(|deed| deed.kind == Kind::User).collect();
        let others: Vec<_> = self.deeds.iter().copied().filter(|deed| deed.kind != Kind::User).collect();
        let deeds = self.dice.within(45..125);
        let mut next = Instant::now();
        for number in 0..deeds {
            self.dice = Dice::new([seed.number, number + 1]);
            next += self.dice.millis(0..1_400);
            self.until(next).await;
            next = Instant::now();
            if self.broken().is_some() {
                return number;
            }
            self.replace_the_dead();
            let is_user = others.is_empty() || self.dice.below(5) < 3;
            let deed = if is_user { self.dice.one(&users) } else { self.dice.one(&others) };
            if seed.left_out.contains(&number) {
                continue;
            }
            self.server.with(|state| state.met.begin(deed.name));
            if (deed.act)(self) {
                self.server.with(|state| state.met.done());
                self.tell(deed.name);
            }
        }
        deeds
    }

    /// Lets time pass, and what was set going go on.
    async fn until(&mut self, time: Instant) {
        loop {
            self.sit_out().await;
            let Some(later) = self.later.first_entry().filter(|later| later.key().0 <= time) else { break };
            let at = later.key().0;
            let (deed, act) = later.remove();
            sleep_until(at).await;
            self.server.with(|state| state.met.begin(deed));
            act(self);
        }
        sleep_until(time).await;
    }

    /// Lets an outage pass: only replicas do something meanwhile.
    async fn sit_out(&mut self) {
        let Some((until, end)) = self.outage.take() else { return };
        while Instant::now() < until {
            sleep_until(until.min(Instant::now() + Duration::from_secs(10))).await;
            self.replace_the_dead();
        }
        end(&self.server);
    }

    /// The first thing that went wrong.
    fn broken(&self) -> Option<String> {
        self.panicked.clone().or_else(|| self.server.broken())
    }

    fn tell(&mut self, what: &str) {
        self.story.push((self.server.with(|state| state.clock.elapsed()), what.to_owned()));
    }

    /// What happened, what was asked for, and what changed, in the order of time.
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

    /// Does it after this time.
    fn later(&mut self, after: Duration, act: impl FnOnce(&mut World) + 'static) {
        self.set_going += 1;
        let deed = self.server.with(|state| state.met.deed);
        self.later.insert((Instant::now() + after, self.set_going), (deed, Box::new(act)));
    }

    /// Asks the replica at this place to end, after this time, and starts another one.
    fn ask_to_end(&mut self, place: usize, after: Duration) {
        let replica = self.replicas.remove(place);
        let name = replica.name().to_owned();
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
        let Variant { podset, leader: rules, is_bounded } = self.variant;
        let model = Model {
            timing: self.dice.one(&self.timings),
            rules,
            podset,
            is_bounded,
            wall_offset: self.dice.below(1_200).cast_signed() - 600,
            seed: self.dice.below(u64::MAX),
            ..Model::default()
        };
        self.replicas.push(Replica::start(&self.server, &name, model));
    }

    /// Who has ended is started again, as by a Deployment.
    fn replace_the_dead(&mut self) {
        let (dead, alive): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.replicas).into_iter().partition(Replica::has_ended);
        self.replicas = alive;
        for replica in dead {
            let name = replica.name().to_owned();
            let end = replica.ended().now_or_never();
            self.tell(&format!("{name} had ended by itself: {end:?}"));
            if let Some(Err(panic @ Failure::Panicked { .. })) = end {
                self.panicked = Some(format!("{name}: {panic}"));
            }
            self.tally.count(play::ENDED);
            self.start_replica();
        }
    }

    /// The place of the leader, if somebody leads.
    fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(Replica::leads)
    }

    /// The place of one replica; the leader as often as all others together.
    fn any(&mut self) -> usize {
        match self.leader().filter(|_| self.dice.one_in(2)) {
            Some(leader) => leader,
            None => usize::try_from(self.dice.below(self.replicas.len() as u64)).unwrap_or(0),
        }
    }

    /// The name of one replica.
    fn any_name(&mut self) -> String {
        let place = self.any();
        self.replicas[place].name().to_owned()
    }

    fn outcome(mut self, deeds: u64, end: Result<(), String>, is_told: bool) -> Outcome {
        let broken = self.broken().or(end.err());
        self.tally.of_requests(&self.server);
        let fingerprint = if is_told { play::fingerprint(&self.server) } else { 0 };
        let chronicle = if is_told || broken.is_some() { self.chronicle() } else { Vec::new() };
        Outcome { broken, tally: self.tally, deeds, chronicle, fingerprint }
    }
}

/// Plays one world to its end.
async fn run(seed: &Seed, variant: Variant, is_told: bool) -> Outcome {
    let mut world = World::new(seed.number, variant);
    let deeds = world.play(seed).await;
    let end = match world.broken() {
        Some(_) => Ok(()),
        None => end::reached(&mut world).await,
    };
    world.outcome(deeds, end, is_told)
}
