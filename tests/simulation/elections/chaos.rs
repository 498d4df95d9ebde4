//! Three replicas, and a seed that decides what happens to them: they are killed, ended, cut off, frozen, and the Lease is
//! edited, while their sets are scaled and the pods killed. Whatever happens, one writes, no set has too many pods, and
//! when it is over every set converges.
//!
//! `CHAOS_SEEDS=200..300 cargo test --test simulation elections::chaos` tries other seeds.

use std::ops::Range;

use serde_json::json;

use super::*;
use crate::{
    apiserver::{Fault, Requests, Status},
    chaos::{Dice, is_right, play_seeds},
    replica::LEASE,
};

const SEEDS: Range<u64> = 0..16;
const SETS: [&str; 2] = ["red", "green"];

/// The durations that replicas may have: those of one run may differ, as in a rollout.
const TIMINGS: [(u64, u64, u64); 3] = [(15, 10, 2), (6, 4, 1), (3, 2, 1)];

/// How late a request may be executed whose connection broke: as long as bytes may lie unacknowledged.
const IN_THE_KERNEL: u64 = 500;

struct Run {
    server: ApiServer,
    dice: Dice,
    replicas: Vec<Replica>,
    started: usize,
    /// Whether people edit the Lease. Then no replica is cut off meanwhile: both together are beyond the promise.
    is_edited: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let server = ApiServer::new(seed);
        server.settings(|settings| {
            settings.jitter = Duration::from_millis(30);
            settings.request_latency = Duration::from_millis(20);
        });
        for set in SETS {
            server.create_podset(NS, set, 5);
        }
        let mut run =
            Run { server, dice: Dice(seed), replicas: Vec::new(), started: 0, is_edited: seed.is_multiple_of(3) };
        for _ in 0..3 {
            run.start();
        }
        run
    }

    fn start(&mut self) {
        let timing = *self.dice.pick(&TIMINGS).unwrap();
        let name = format!("replica-{}", self.started);
        self.started += 1;
        self.replicas.push(Replica::start(&self.server, &name, Model { timing, ..Model::default() }));
    }

    /// Who died is started again, as a Deployment would.
    fn restart(&mut self) {
        let before = self.replicas.len();
        self.replicas.retain(|replica| !replica.has_ended());
        for _ in self.replicas.len()..before {
            self.start();
        }
    }

    /// One of them; the leader as often as all others together.
    fn one(&mut self) -> usize {
        let leader = self.replicas.iter().position(Replica::leads);
        match leader.filter(|_| self.dice.below(2) == 0) {
            Some(leader) => leader,
            None => usize::try_from(self.dice.below(self.replicas.len() as u64)).unwrap(),
        }
    }

    async fn play(&mut self) {
        for _ in 0..150 {
            let pause = self.dice.millis(1_000);
            sleep(pause).await;
            self.restart();
            match self.dice.below(14) {
                0..=6 => self.user(),
                7 => self.end_one(),
                8 => {
                    let one = self.one();
                    self.replicas.remove(one).kill();
                    self.start();
                }
                9 if self.is_edited => self.edit(),
                9 => self.cut_off(),
                10 if !self.is_edited => self.watches(),
                11 => {
                    let (one, time) = (self.one(), self.dice.millis(20_000));
                    self.replicas[one].freeze_writes(time);
                }
                12 => self.requests(),
                _ => self.server.heal(),
            }
        }
    }

    fn user(&mut self) {
        let set = *self.dice.pick(&SETS).unwrap();
        let live = self.server.live_pods(NS, set);
        match (self.dice.below(4), self.dice.pick(&live)) {
            (0, _) => self.server.scale(NS, set, 1 + self.dice.below(10).cast_signed()),
            (1, Some(pod)) => self.server.delete_pod(NS, pod),
            (_, Some(pod)) => self.server.kill_pod(NS, pod),
            _ => {}
        }
    }

    fn end_one(&mut self) {
        let one = self.one();
        let replica = self.replicas.remove(one);
        tokio::spawn(replica.end());
        self.start();
    }

    fn edit(&mut self) {
        // As by one who sees what he does: nobody is out of reach.
        self.server.heal();
        let is_there = !self.server.with(|state| state.get(&crate::apiserver::LEASES, LEASE.0, LEASE.1).is_none());
        let spec = match self.dice.below(4) {
            _ if !is_there => return,
            0 => return self.server.delete_lease(LEASE.0, LEASE.1),
            1 => json!({}),
            2 => json!({ "holderIdentity": "", "leaseDurationSeconds": 1 }),
            _ => json!({ "holderIdentity": "somebody", "leaseDurationSeconds": 5 }),
        };
        self.server.overwrite_lease(LEASE.0, LEASE.1, spec);
    }

    fn cut_off(&mut self) {
        let one = self.one();
        let name = self.replicas[one].name().to_owned();
        let all = Requests::all().from(&name);
        match self.dice.below(5) {
            0 => drop(self.server.partition(&name)),
            1 => drop(self.server.fault(all, Fault::CutBefore)),
            2 => drop(self.server.fault(all, Fault::ExecuteThenCut)),
            3 => drop(self.server.fault(all.of("leases"), Fault::ExecuteThenCut)),
            _ => drop(self.server.fault(all.of("leases"), Fault::CutBefore)),
        }
    }

    fn watches(&mut self) {
        let one = self.one();
        let watches = self.server.watches().of(self.replicas[one].name());
        match self.dice.below(6) {
            0 => watches.stall(),
            1 => watches.on("leases").stall(),
            2 => watches.delay(self.dice.millis(5_000)),
            3 => watches.replay(usize::try_from(1 + self.dice.below(20)).unwrap()),
            4 => watches.gone(),
            _ => watches.cut(),
        }
    }

    fn requests(&mut self) {
        let code = *self.dice.pick(&[409, 429, 500, 503]).unwrap();
        let delay = self.dice.millis(12_000);
        let late = self.dice.millis(IN_THE_KERNEL);
        let fault = match self.dice.below(5) {
            0 => Fault::Refuse(Status::of_code(code)),
            1 => Fault::ExecuteThenError(code),
            2 => Fault::ExecuteThenCut,
            3 => Fault::ExecuteLate(late),
            _ => Fault::Delay(delay),
        };
        let requests = match self.dice.below(3) {
            0 => Requests::all().of("leases"),
            1 => Requests::creates("pods"),
            _ => Requests::mutating(),
        };
        self.server.fault(requests.first(usize::try_from(1 + self.dice.below(6)).unwrap()), fault);
    }

    /// It is over: one leads, and every set converges.
    async fn converge(&mut self) {
        self.server.heal();
        for _ in 0..240 {
            self.restart();
            sleep(seconds(1)).await;
        }
        assert_eq!(self.replicas.iter().filter(|replica| replica.leads()).count(), 1, "one leads");
        for set in SETS {
            assert!(is_right(&self.server, set), "{set}: {}", self.server.podset(NS, set));
        }
    }
}

#[test]
fn whatever_happens_one_writes() {
    play_seeds(SEEDS, |seed| async move {
        let mut run = Run::new(seed);
        run.play().await;
        run.server.check();
        run.converge().await;
        run.server.check();
    });
}
