//! Users, faults and hand-overs drawn by a seed: whatever happens, the bound holds; and when the faults are over, every
//! set converges, its status is right, and nothing more is asked for but watches.
//!
//! `CHAOS_SEEDS=200..300 cargo test --test simulation chaos` tries other seeds; a failing one prints its number.

use std::{ops::Range, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;
use podset_operator::controllers::podset::locks::Locks;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    apiserver::{ApiServer, Fault, FaultRule, PODSETS, PodScript, Requests, Status, Verb, object},
    operator::Operator,
};

const NS: &str = "default";
const SETS: [&str; 3] = ["red", "green", "blue"];
const SEEDS: Range<u64> = 0..40;

/// A draw of chance: SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let length = u64::try_from(of.len()).unwrap();
        (length > 0).then(|| &of[usize::try_from(self.below(length)).unwrap()])
    }

    pub fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}

/// One run.
struct Run {
    server: ApiServer,
    dice: Dice,
    rules: Vec<FaultRule>,
    /// Whether requests may be executed long after their sender gave up; then nobody takes over.
    is_late: bool,
    leader: Operator,
    leaders: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let server = ApiServer::new(seed);
        let is_late = seed.is_multiple_of(2);
        server.settings(|settings| {
            settings.honour_timeout = !is_late;
            settings.jitter = Duration::from_millis(30);
        });
        let leader = Operator::leader(&server, "operator-0", Locks::default());
        Run { server, dice: Dice(seed), rules: Vec::new(), is_late, leader, leaders: 1 }
    }

    async fn play(&mut self) {
        for set in SETS {
            self.server.create_podset(NS, set, 3);
        }
        for _ in 0..80 {
            let pause = self.dice.millis(2_500);
            sleep(pause).await;
            match self.dice.below(10) {
                0..=4 => self.user(),
                5 => self.request_fault(),
                6 => self.watch_fault(),
                7 => self.surroundings(),
                8 => self.end_a_fault(),
                _ => self.hand_over().await,
            }
        }
    }

    fn user(&mut self) {
        let Run { server, dice, .. } = self;
        let set = *dice.pick(&SETS).unwrap();
        if server.podset(NS, set).is_null() {
            let replicas = 1 + dice.below(10).cast_signed();
            server.create_podset(NS, set, replicas);
            return;
        }
        let live = server.live_pods(NS, set);
        let running: Vec<_> =
            live.iter().filter(|name| object::phase(&server.pod(NS, name)) == "Running").cloned().collect();
        match (dice.below(12), dice.pick(&live), dice.pick(&running)) {
            (0..=3, ..) => server.scale(NS, set, 1 + dice.below(10).cast_signed()),
            (4, Some(pod), _) => server.kill_pod(NS, pod),
            (5 | 6, Some(pod), _) => server.delete_pod(NS, pod),
            (7, Some(pod), _) => server.strip_label(NS, pod, "app.kubernetes.io/managed-by"),
            (8, _, Some(pod)) => server.fail_pod(NS, pod),
            (9, _, Some(pod)) => server.set_ready(NS, pod, false),
            (10, ..) => {
                server.patch(&PODSETS, NS, set, json!({ "metadata": { "labels": { "n": dice.below(9).to_string() } } }))
            }
            (11, ..) if dice.below(3) == 0 && !object::is_terminating(&server.podset(NS, set)) => {
                server.delete_podset(NS, set);
            }
            _ => {}
        }
    }

    fn request_fault(&mut self) {
        let dice = &mut self.dice;
        let requests = match dice.below(6) {
            0 | 1 => Requests::creates("pods"),
            2 => Requests::deletes("pods"),
            3 => Requests::status_patches("podsets"),
            4 => Requests::all().verb(Verb::Get),
            _ => Requests::mutating(),
        };
        let code = *dice.pick(&[409, 429, 500, 503, 504]).unwrap();
        let late = dice.millis(if self.is_late { 45_000 } else { 3_000 });
        let fault = match dice.below(9) {
            0 => Fault::Refuse(Status::of_code(code)),
            1 | 2 => Fault::ExecuteThenError(code),
            3 | 4 => Fault::ExecuteThenCut,
            5 => Fault::ExecuteThenGarble,
            6 => Fault::CutBefore,
            7 if self.is_late => Fault::ExecuteLate(late),
            8 if self.is_late => Fault::ExecuteUnanswered(late),
            _ => Fault::Delay(late),
        };
        let requests = requests.first(usize::try_from(1 + dice.below(8)).unwrap());
        self.rules.push(self.server.fault(requests, fault));
    }

    fn watch_fault(&mut self) {
        let dice = &mut self.dice;
        let plural = *dice.pick(&["pods", "podsets"]).unwrap();
        let watches = self.server.watches().on(plural);
        match dice.below(8) {
            0 | 1 => watches.hold(),
            2 => watches.delay(dice.millis(8_000)),
            3 => watches.replay(usize::try_from(1 + dice.below(20)).unwrap()),
            4 => watches.gone(),
            5 => watches.cut(),
            6 => watches.end(),
            _ => {
                self.server.compact();
                watches.end();
            }
        }
    }

    fn surroundings(&mut self) {
        match self.dice.below(6) {
            0 => self.server.set_quota(NS, "tight", 8),
            1 => self.server.lift_quota(NS),
            2 => self.server.set_webhook(|pod| {
                pod["metadata"]["ownerReferences"] = json!([]);
                Ok(())
            }),
            3 => self.server.lift_webhook(),
            4 => self.server.pods_live(PodScript { gone_after: Some(Duration::from_secs(20)), ..PodScript::default() }),
            _ => self.server.pods_live(PodScript::default()),
        }
    }

    fn end_a_fault(&mut self) {
        for plural in ["pods", "podsets"] {
            self.server.watches().on(plural).release();
        }
        for rule in self.rules.drain(..) {
            rule.release();
        }
    }

    /// Another instance takes over: after the requests of the former have ended, as a lease would have it.
    async fn hand_over(&mut self) {
        if self.is_late {
            return;
        }
        let name = format!("operator-{}", self.leaders);
        self.leaders += 1;
        let mut next = Operator::standby(&self.server, &name, Locks::default());
        let pause = self.dice.millis(3_000);
        sleep(pause).await;
        self.leader.resign();
        sleep(Duration::from_secs(11)).await;
        next.lead();
        std::mem::replace(&mut self.leader, next).kill();
    }

    /// The faults are over: every set converges.
    async fn converge(&mut self) {
        self.server.heal();
        self.server.lift_quota(NS);
        self.server.lift_webhook();
        self.server.pods_live(PodScript::default());
        let unready = |s: &ApiServer, set: &str| -> Vec<String> {
            let live = s.live_pods(NS, set);
            live.into_iter().filter(|name| object::phase(&s.pod(NS, name)) == "Running").collect()
        };
        for set in SETS {
            for pod in unready(&self.server, set) {
                self.server.set_ready(NS, &pod, true);
            }
        }
        self.server.wait_until(|s| SETS.iter().all(|set| is_right(s, set)), Duration::from_secs(600)).await;
        sleep(Duration::from_secs(90)).await;
        let mark = self.server.mark();
        sleep(Duration::from_secs(200)).await;
        let lines: Vec<_> = self.server.requests_since(mark).iter().map(|entry| entry.line()).collect();
        assert_eq!(lines, Vec::<String>::new(), "at rest");
        assert!(SETS.iter().all(|set| is_right(&self.server, set)));
    }
}

/// Whether a set is as its spec wants it, and its status says so.
pub fn is_right(server: &ApiServer, name: &str) -> bool {
    let set = server.podset(NS, name);
    if set.is_null() {
        return true;
    }
    let (wanted, status) = (&set["spec"]["replicas"], &set["status"]);
    let live = server.live_pods(NS, name);
    let finished = server.pods(NS, name).iter().filter(|pod| object::is_finished(pod)).count();
    live.len() == wanted.as_u64().and_then(|n| n.try_into().ok()).unwrap_or(usize::MAX)
        && server.ready_pods(NS, name).len() == live.len()
        && status["podNames"] == json!(live)
        && status["readyReplicas"] == *wanted
        && status["availableReplicas"] == *wanted
        && status["observedGeneration"] == set["metadata"]["generation"]
        && object::condition(&set, "Ready").is_some_and(|held| held["status"] == "True")
        && status["conditions"].as_array().is_some_and(|held| held.len() == 1)
        && finished <= 3
}

async fn run(seed: u64) {
    let mut run = Run::new(seed);
    run.play().await;
    run.converge().await;
    run.server.check();
}

/// The seeds of `CHAOS_SEEDS`, else these.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let chosen = std::env::var("CHAOS_SEEDS").ok();
    let bounds =
        chosen.as_deref().and_then(|range| range.split_once("..")).map(|(from, to)| (from.parse(), to.parse()));
    match bounds {
        Some((Ok(from), Ok(to))) => from..to,
        _ => usual,
    }
}

/// Plays each seed in a world of its own, and fails with the numbers of those that went wrong.
pub fn play_seeds<F: Future<Output = ()>>(usual: Range<u64>, run: impl Fn(u64) -> F) {
    let mut failed = Vec::new();
    for seed in seeds(usual) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        if runtime.block_on(AssertUnwindSafe(run(seed)).catch_unwind()).is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}; see above what each found");
}

#[test]
fn whatever_happens_the_bound_holds_and_the_sets_converge() {
    play_seeds(SEEDS, run);
}
