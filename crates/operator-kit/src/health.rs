//! Named readiness and liveness checks, for the probes. No I/O.
//!
//! A process is ready when it has what its work needs, such as synced caches. It is live while its loops turn: each loop has a [`Pulse`],
//! which beats on every turn, or each time that the loop is polled while it waits. An unreachable API server does not fail liveness, because
//! a restart would not help.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, Weak},
};

use jiff::{SignedDuration, Timestamp};
use tokio_util::task::AbortOnDropHandle;

use crate::lock;
use leadership::env::Env;

/// How many times an idle loop turns within its limit.
const TURNS_WITHIN_LIMIT: i32 = 4;

/// The readiness check that fails while the process starts or ends. The liveness check of this name always passes.
const PROCESS: &str = "process";

/// The check of the runtime that the controllers and the election run on.
const RUNTIME: &str = "main-runtime";

/// The result of a check: `Ok`, or the reason for the failure.
pub type Verdict = Result<(), String>;

type Check = Arc<dyn Fn() -> Verdict + Send + Sync>;

/// The verdicts of checks, by name.
pub type Report = BTreeMap<String, Verdict>;

/// The checks of this process. Clones share them.
#[derive(Clone)]
pub struct Health {
    env: Env,
    readiness: Arc<Mutex<BTreeMap<String, Check>>>,
    /// The running loops, by name. A loop owns its pulse, so its check ends with the loop.
    loops: Arc<Mutex<BTreeMap<String, Weak<Pulse>>>>,
}

impl Health {
    /// A starting process: live, and not ready before [`Health::started`].
    pub fn new(env: Env) -> Self {
        let health = Health { env, readiness: Arc::default(), loops: Arc::default() };
        health.ready_when(PROCESS, || Err("the process is starting".to_owned()));
        health
    }

    /// The start is over. From now on the checks decide whether the process is ready.
    pub fn started(&self) {
        self.ready_when(PROCESS, || Ok(()));
    }

    /// The process begins to shut down, and is no longer ready.
    pub fn ending(&self) {
        self.ready_when(PROCESS, || Err("the process is shutting down: it takes no new work".to_owned()));
    }

    /// Adds a readiness check, or replaces the one of this name.
    pub fn ready_when(&self, name: impl Into<String>, check: impl Fn() -> Verdict + Send + Sync + 'static) {
        lock(&self.readiness).insert(name.into(), Arc::new(check));
    }

    /// Watches the current runtime: if it runs no task for longer than `limit`, the process is neither live nor ready. The probes run on
    /// another runtime and would not notice. The watch ends when the returned handle is dropped.
    pub fn watch_runtime(&self, limit: SignedDuration) -> AbortOnDropHandle<()> {
        let pulse = Pulse::new(self, RUNTIME, limit);
        let check = Arc::downgrade(&pulse);
        self.ready_when(RUNTIME, move || check.upgrade().map_or(Ok(()), |pulse| pulse.verdict()));
        AbortOnDropHandle::new(tokio::spawn(async move { pulse.during(std::future::pending()).await }))
    }

    /// The verdict of every readiness check.
    pub fn readiness(&self) -> Report {
        // The checks run without the lock, because a check may need it.
        let checks = lock(&self.readiness).clone();
        checks.into_iter().map(|(name, check)| (name, check())).collect()
    }

    /// The verdict of every liveness check.
    pub fn liveness(&self) -> Report {
        let verdict = |(name, pulse): (&String, &Weak<Pulse>)| Some((name.clone(), pulse.upgrade()?.verdict()));
        let mut report: Report = lock(&self.loops).iter().filter_map(verdict).collect();
        // A process that answers is alive.
        report.insert(PROCESS.to_owned(), Ok(()));
        report
    }
}

/// The liveness check of a loop. It fails when the loop has not turned for longer than its limit. When the loop ends, it drops its pulse,
/// which removes the check.
#[derive(Debug)]
pub struct Pulse {
    env: Env,
    limit: SignedDuration,
    last: Mutex<Timestamp>,
}

impl Pulse {
    /// The pulse of a loop that begins now and must turn within `limit` each time. It replaces an older one of this name.
    pub fn new(health: &Health, name: impl Into<String>, limit: SignedDuration) -> Arc<Self> {
        let env = health.env.clone();
        let pulse = Arc::new(Pulse { limit, last: Mutex::new(env.now()), env });
        lock(&health.loops).insert(name.into(), Arc::downgrade(&pulse));
        pulse
    }

    fn verdict(&self) -> Verdict {
        let idle = self.env.now().duration_since(*lock(&self.last));
        if idle <= self.limit {
            Ok(())
        } else {
            Err(format!("the loop has not turned for {} s, limit {:#}", idle.as_secs(), self.limit))
        }
    }

    /// Call this on every turn of the loop.
    pub fn beat(&self) {
        *lock(&self.last) = self.env.now();
    }

    /// Waits for a future of any duration, and beats meanwhile. A blocked thread or a task that never yields still stops the pulse.
    pub async fn during<F: Future>(&self, wait: F) -> F::Output {
        let mut wait = std::pin::pin!(wait);
        loop {
            self.beat();
            tokio::select! {
                biased;
                output = &mut wait => return output,
                () = self.env.sleep_until(self.env.now() + self.limit / TURNS_WITHIN_LIMIT) => {}
            }
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
        assert_eq!(failing(health.readiness()), because("the process is shutting down: it takes no new work"));
        assert_eq!(failing(health.liveness()), [], "the process stays live while it ends");
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
        let stuck = ("slow".to_owned(), "the loop has not turned for 61 s, limit 1m".to_owned());
        assert_eq!(failing(health.liveness()), [stuck]);
        slow.beat();
        assert_eq!(failing(health.liveness()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_ended_is_no_longer_checked() {
        let health = Health::new(leadership::env::testing::virtual_env());
        let first = Pulse::new(&health, "loop", LIMIT);
        let second = Pulse::new(&health, "loop", LIMIT);
        drop(first);
        assert!(health.liveness().contains_key("loop"), "the name belongs to the second loop now");
        drop(second);
        assert!(!health.liveness().contains_key("loop"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_task_beats() {
        let health = Health::new(leadership::env::testing::virtual_env());
        let pulse = Pulse::new(&health, "loop", LIMIT);
        pulse.during(tokio::time::sleep(Duration::from_secs(1000))).await;
        assert_eq!(failing(health.liveness()), []);
        let mut waiting = tokio_test::task::spawn(pulse.during(std::future::pending::<()>()));
        tokio_test::assert_pending!(waiting.poll());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(failing(health.liveness()).len(), 1, "a task that is not polled does not beat");
        tokio_test::assert_pending!(waiting.poll());
        assert_eq!(failing(health.liveness()), []);
    }
}
