//! Runs many worlds in parallel, on all cores, and reports on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{Outcome, actions::ACTIONS, run};
use crate::{
    apiserver::{ApiServer, EventType, LEASES},
    replica::Model,
};

/// How the result of a world begins if its code panicked.
pub const PANICKED: &str = "panicked: ";
/// A replica exited without a shutdown: it lost the lease.
pub const EXITED: &str = "a replica exited by itself";
const HAND_OVERS: &str = "another replica became the leader";
const CONFLICTS: &str = "requests that conflicted (409)";
const UNKNOWN: &str = "writes of unknown fate";
const LATE: &str = "requests executed more than 10 s after they were sent";

/// Counted besides actions. Each must happen as well.
const MEASURED: [&str; 5] = [EXITED, HAND_OVERS, CONFLICTS, UNKNOWN, LATE];

#[derive(Clone, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn add_all(&mut self, counts: &BTreeMap<&'static str, u64>) {
        for (what, times) in counts {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Adds the counts of the requests and changes of a world.
    pub fn of_requests(&mut self, server: &ApiServer) {
        server.with(|state| {
            self.add_all(&state.coverage.counts);
            for entry in &state.log {
                if entry.answered == Some(409) {
                    self.count(CONFLICTS);
                }
                let is_known = entry.answered.is_some_and(|code| code < 500);
                if entry.request.verb.mutates() && entry.outcome.is_some() && !is_known {
                    self.count(UNKNOWN);
                }
                if entry.executed_at.is_some_and(|at| at.as_secs() > entry.at.as_secs() + 10) {
                    self.count(LATE);
                }
            }
            let mut holder = String::new();
            for change in state.history.iter().filter(|c| *c.kind == LEASES && c.event != EventType::Deleted) {
                let now = change.object["spec"]["holderIdentity"].as_str().unwrap_or_default();
                if !now.is_empty() && now != holder {
                    self.count(HAND_OVERS);
                    now.clone_into(&mut holder);
                }
            }
        });
    }

    fn missing(&self) -> Vec<&'static str> {
        let all = ACTIONS.iter().map(|action| action.name).chain(MEASURED);
        all.filter(|name| !self.0.contains_key(name)).collect()
    }
}

pub fn fingerprint(server: &ApiServer) -> u64 {
    let mut hasher = DefaultHasher::new();
    server.with(|state| {
        for entry in &state.log {
            entry.line().hash(&mut hasher);
        }
        for change in &state.history {
            change.to_string().hash(&mut hasher);
            // The times in a Lease come from the machine's clock, because `kube-leader-election` takes no other.
            if *change.kind != LEASES {
                change.object.to_string().hash(&mut hasher);
            }
        }
    });
    hasher.finish()
}

pub fn play(seed: u64, variant: Model, is_told: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    match catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(seed, variant, is_told)))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            let broken = Some(format!("{PANICKED}{}", said.unwrap_or_default()));
            Outcome { broken, tally: Tally::default(), chronicle: Vec::new(), fingerprint: 0 }
        }
    }
}

pub struct Summary {
    pub broken: BTreeMap<u64, Outcome>,
    tally: Tally,
    pub seeds: u64,
    pub seconds: f64,
}

/// Runs these seeds on all cores. With `until_broken`, stops at the first failing seed.
pub fn play_all(seeds: Range<u64>, variant: Model, until_broken: bool) -> Summary {
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let summary = Mutex::new(Summary { broken: BTreeMap::new(), tally: Tally::default(), seeds: 0, seconds: 0.0 });
    let work = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let is_over = until_broken && !summary.lock().expect("no panic").broken.is_empty();
        if number >= seeds.end || is_over {
            return;
        }
        let outcome = play(number, variant, false);
        let mut all = summary.lock().expect("no panic");
        all.tally.add_all(&outcome.tally.0);
        if outcome.broken.is_some() {
            all.broken.insert(number, outcome);
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(100) {
            let rate = done as f64 / began.elapsed().as_secs_f64();
            eprintln!("{done} of {} seeds, {rate:.1} a second, {} broken", seeds.end - seeds.start, all.broken.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().expect("no panic");
    summary.seeds = done.into_inner();
    summary.seconds = began.elapsed().as_secs_f64();
    summary
}

impl Summary {
    fn print(&self) {
        let rate = self.seeds as f64 / self.seconds;
        eprintln!("\n{} seeds in {:.0} s, {rate:.1} a second. What happened:", self.seeds, self.seconds);
        for (what, times) in &self.tally.0 {
            eprintln!("{times:>10}  {what}");
        }
    }
}

/// The violation of each failing seed.
fn report(broken: &BTreeMap<u64, Outcome>) -> String {
    let line = |(seed, outcome): (&u64, &Outcome)| {
        format!("{}\nall of it: make simulate SEED={seed}\n", outcome.broken.as_deref().unwrap_or_default())
    };
    broken.iter().map(line).collect()
}

fn number(variable: &str) -> Option<u64> {
    let given = std::env::var(variable).ok().filter(|given| !given.is_empty())?;
    Some(given.parse().unwrap_or_else(|_| panic!("{variable}={given}: give a whole number")))
}

/// How many seeds a usual test run covers. With this many, everything must happen.
const USUAL: u64 = 200;

#[test]
fn the_promises_hold_for_every_seed() {
    if let Some(seed) = number("SIMULATION_SEED") {
        let outcome = play(seed, Model::default(), true);
        eprintln!("{}", outcome.chronicle.join("\n"));
        return assert!(outcome.broken.is_none(), "{}", outcome.broken.unwrap_or_default());
    }
    let (from, seeds) = (number("SIMULATION_FROM").unwrap_or(0), number("SIMULATION_SEEDS").unwrap_or(USUAL));
    assert!(seeds > 0, "SIMULATION_SEEDS=0 runs no world");
    let summary = play_all(from..from + seeds, Model::default(), false);
    summary.print();
    let missing = summary.tally.missing();
    assert!(summary.broken.is_empty(), "{}", report(&summary.broken));
    assert!(seeds < USUAL || missing.is_empty(), "never happened, so it was not tested: {missing:?}");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let mut fingerprints = BTreeSet::new();
    for seed in 0..8 {
        let [one, two] = [(); 2].map(|()| play(seed, Model::default(), true));
        for (one, two) in one.chronicle.iter().zip(&two.chronicle) {
            assert_eq!(one, two, "seed {seed}");
        }
        assert_eq!(one.fingerprint, two.fingerprint, "seed {seed}");
        fingerprints.insert(one.fingerprint);
    }
    assert_eq!(fingerprints.len(), 8, "different seeds give different worlds");
}
