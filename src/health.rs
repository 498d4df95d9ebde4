//! How the process feels: named checks of readiness and of liveness, which others put here and the probes ask.
//!
//! It does no I/O. What is *ready* has what it needs to do its work (its caches, say); what is *live* turns: a loop has a
//! [`Pulse`] and beats with each turn, and a loop that no longer does has its check fail. That the API server is away is no
//! failure of liveness: a restart would not bring it back.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::{SignedDuration, Timestamp};
use tokio_util::task::AbortOnDropHandle;

use leadership::env::Env;

/// How often a loop that has nothing to do must turn within its limit.
const TURNS_WITHIN_LIMIT: i32 = 4;

/// The check that says whether the process works, as opposed to starting or ending.
const PROCESS: &str = "process";

/// The check of the runtime that does the process's work.
const RUNTIME: &str = "main-runtime";

/// What a check answers: all is well, or the sentence that says why not and what is waited for.
pub type Verdict = Result<(), String>;

type Check = Arc<dyn Fn() -> Verdict + Send + Sync>;

/// The verdicts of a number of checks, by name.
pub type Report = BTreeMap<String, Verdict>;

/// The checks of this process. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Health {
    env: Env,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    readiness: BTreeMap<String, Check>,
    /// Each with the number of the pulse that put it here.
    liveness: BTreeMap<String, (u64, Check)>,
}

#[derive(Clone, Copy, Default)]
enum Phase {
    #[default]
    Starting,
    Working,
    Ending,
}

impl Health {
    /// A process that starts: live, and not ready before [`Health::started`].
    pub fn new(env: Env) -> Self {
        Health { env, state: Arc::default() }
    }

    /// Everything is started: from now on the checks decide whether the process is ready.
    pub fn started(&self) {
        self.lock().phase = Phase::Working;
    }

    /// The process begins to end: it is not ready any more.
    pub fn ending(&self) {
        self.lock().phase = Phase::Ending;
    }

    /// Adds a check of readiness, in place of any of the same name.
    pub fn ready_when(&self, name: impl Into<String>, check: impl Fn() -> Verdict + Send + Sync + 'static) {
        self.lock().readiness.insert(name.into(), Arc::new(check));
    }

    /// Judges the runtime in which this is called: the process is neither live nor ready while this runtime has not run a task for
    /// longer than `limit`. The probes are answered by another runtime, so they need to see that. The check ends with what is returned.
    pub fn judge_runtime(&self, limit: SignedDuration) -> AbortOnDropHandle<()> {
        let (pulse, health) = (Pulse::new(self, RUNTIME, limit), self.clone());
        self.ready_when(RUNTIME, move || health.liveness().remove(RUNTIME).unwrap_or(Ok(())));
        AbortOnDropHandle::new(tokio::spawn(async move { pulse.during(std::future::pending()).await }))
    }

    /// The verdict of every check of readiness.
    pub fn readiness(&self) -> Report {
        let (phase, checks) = {
            let state = self.lock();
            (state.phase, state.readiness.clone())
        };
        let process = match phase {
            Phase::Starting => Err("the process is starting".to_owned()),
            Phase::Working => Ok(()),
            Phase::Ending => Err("the process is ending: it takes no new work".to_owned()),
        };
        let mut report: Report = checks.into_iter().map(|(name, check)| (name, check())).collect();
        report.insert(PROCESS.to_owned(), process);
        report
    }

    /// The verdict of every check of liveness.
    pub fn liveness(&self) -> Report {
        let checks = self.lock().liveness.clone();
        let mut report: Report = checks.into_iter().map(|(name, (_, check))| (name, check())).collect();
        // Whoever gets this answer has met a process that answers.
        report.insert(PROCESS.to_owned(), Ok(()));
        report
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("ready", &self.readiness()).field("live", &self.liveness()).finish()
    }
}

/// The pulse of a loop: a check of liveness that fails when the loop has not turned for longer than its limit. A loop that
/// ends drops its pulse, and the check goes with it.
#[derive(Debug)]
pub struct Pulse {
    health: Health,
    name: String,
    number: u64,
    limit: SignedDuration,
    last: Arc<Mutex<Timestamp>>,
}

impl Pulse {
    /// The pulse of a loop that begins now and must turn within `limit` each time.
    pub fn new(health: &Health, name: impl Into<String>, limit: SignedDuration) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (name, number) = (name.into(), NUMBERS.fetch_add(1, Ordering::Relaxed));
        let env = health.env.clone();
        let last = Arc::new(Mutex::new(env.now()));
        let beats = last.clone();
        let check = move || {
            let still = env.now().duration_since(*beats.lock().unwrap_or_else(PoisonError::into_inner));
            let seconds = still.as_secs();
            if still <= limit { Ok(()) } else { Err(format!("it has not turned for {seconds} s, limit {limit:#}")) }
        };
        health.lock().liveness.insert(name.clone(), (number, Arc::new(check)));
        Pulse { health: health.clone(), name, number, limit, last }
    }

    /// The loop turns.
    pub fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.health.env.now();
    }

    /// Waits for as long as a loop that has nothing to do may rest before it turns again.
    pub async fn rest(&self) {
        let env = &self.health.env;
        env.sleep_until(env.now() + self.limit / TURNS_WITHIN_LIMIT).await;
    }

    /// Waits for something that may take any time without anything being wrong, and beats meanwhile. What blocks the
    /// thread, or never yields, still stops the pulse.
    pub async fn during<F: Future>(&self, wait: F) -> F::Output {
        let mut wait = std::pin::pin!(wait);
        loop {
            self.beat();
            tokio::select! {
                biased;
                output = &mut wait => return output,
                () = self.rest() => {}
            }
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let mut state = self.health.lock();
        // A later pulse may have taken the name over.
        if state.liveness.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            state.liveness.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMIT: SignedDuration = SignedDuration::from_secs(60);

    fn failing(report: Report) -> Vec<(String, String)> {
        report.into_iter().filter_map(|(name, verdict)| Some((name, verdict.err()?))).collect()
    }

    #[test]
    fn a_process_is_ready_between_its_start_and_its_end() {
        let health = Health::new(leadership::env::testing::virtual_env());
        let because = |sentence: &str| vec![(PROCESS.to_owned(), sentence.to_owned())];
        assert_eq!(failing(health.readiness()), because("the process is starting"));
        health.started();
        assert_eq!(failing(health.readiness()), []);
        health.ending();
        assert_eq!(failing(health.readiness()), because("the process is ending: it takes no new work"));
        assert_eq!(failing(health.liveness()), [], "it ends alive");
    }

    #[test]
    fn a_check_says_why_it_fails() {
        let health = Health::new(leadership::env::testing::virtual_env());
        health.started();
        health.ready_when("caches", || Err("pods: not listed yet".to_owned()));
        assert_eq!(failing(health.readiness()), [("caches".to_owned(), "pods: not listed yet".to_owned())]);
        health.ready_when("caches", || Ok(()));
        assert_eq!(failing(health.readiness()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_does_not_turn_is_named() {
        let health = Health::new(leadership::env::testing::virtual_env());
        let (slow, steady) = (Pulse::new(&health, "slow", LIMIT), Pulse::new(&health, "steady", LIMIT));
        tokio::time::advance(Duration::from_secs(60)).await;
        steady.beat();
        assert_eq!(failing(health.liveness()), []);
        tokio::time::advance(Duration::from_secs(1)).await;
        let stuck = ("slow".to_owned(), "it has not turned for 61 s, limit 1m".to_owned());
        assert_eq!(failing(health.liveness()), [stuck]);
        slow.beat();
        assert_eq!(failing(health.liveness()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_ended_is_not_missed() {
        let health = Health::new(leadership::env::testing::virtual_env());
        let first = Pulse::new(&health, "loop", LIMIT);
        let second = Pulse::new(&health, "loop", LIMIT);
        drop(first);
        assert!(health.liveness().contains_key("loop"), "the name is the second one's by now");
        drop(second);
        assert!(!health.liveness().contains_key("loop"));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_beats() {
        let health = Health::new(leadership::env::testing::virtual_env());
        let pulse = Pulse::new(&health, "loop", LIMIT);
        pulse.during(tokio::time::sleep(Duration::from_secs(1000))).await;
        assert_eq!(failing(health.liveness()), []);
        let mut waiting = tokio_test::task::spawn(pulse.during(std::future::pending::<()>()));
        tokio_test::assert_pending!(waiting.poll());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(failing(health.liveness()).len(), 1, "whoever is not polled does not beat");
        tokio_test::assert_pending!(waiting.poll());
        assert_eq!(failing(health.liveness()), []);
    }
}
