//! The loop of leader election: stand by, lead, release the lease.
//!
//! It sees the Lease through a watch and its own operations, and updates the [`LeaderState`]. It writes only the Lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    lock,
    log_once::{LogOnce, warn_once},
    observation::{Observation, WentBack},
    operation::{Intent, OperationError, Setting},
    term::{Ends, LeaderState},
    watch::Seen,
};

/// The loop turns at least this often, also when nothing happens, because a liveness check watches it.
const LONGEST_TURN: SignedDuration = SignedDuration::from_secs(5);

/// The shortest wait after a failed renewal, and the wait after a conflict while the lease is released.
const SHORTEST_RETRY: SignedDuration = SignedDuration::from_millis(100);

/// How long a shutdown waits for an operation on the Lease.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a leader lost the lease. The process must exit. The next leader continues its work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Lost {
    /// The lease could not be renewed in time.
    #[error("lost the lease: it could not be renewed for {0} s")]
    Deadline(i64),
    /// The Lease has another holder, or none.
    #[error("lost the lease: {0}")]
    Taken(String),
    /// The Lease went back to an older version.
    #[error(transparent)]
    WentBack(#[from] WentBack),
}

/// A candidate, and perhaps the leader.
pub struct Election {
    setting: Setting,
    leader_state: LeaderState,
    observation: Arc<Mutex<Observation>>,
    turned: Arc<dyn Fn() + Send + Sync>,
}

impl Election {
    /// A candidate. `turned` is called at each turn of the loop.
    pub fn new(setting: Setting, leader_state: LeaderState, turned: Arc<dyn Fn() + Send + Sync>) -> Self {
        let observation = Observation::new(setting.identity.clone(), setting.timing.lease_duration, setting.rules.wait);
        Election { setting, leader_state, observation: Arc::new(Mutex::new(observation)), turned }
    }

    /// Stands for election once `ready`, and leads when elected. `stop` ends a candidacy at once; a leader goes on until
    /// `drained`, then releases the lease. The Lease is watched from the beginning.
    ///
    /// # Errors
    ///
    /// When the lease is lost. No write is sent after that.
    pub async fn run(
        mut self,
        ready: impl Future<Output = ()>,
        stop: CancellationToken,
        drained: CancellationToken,
    ) -> Result<(), Lost> {
        let (seen, news) = watch::channel(());
        let watching = self.watch(seen);
        tokio::select! {
            biased;
            () = watching => std::future::pending().await,
            end = self.stand(news, ready, stop, drained) => end,
        }
    }

    /// Watches the Lease, for ever.
    fn watch(&self, news: watch::Sender<()>) -> impl Future<Output = ()> + use<> {
        let (setting, observation) = (self.setting.clone(), self.observation.clone());
        async move {
            super::watch::watch(&setting, |seen, now| {
                let mut observation = lock(&observation);
                match seen {
                    Seen::Present(lease) => observation.watched(lease, now),
                    Seen::Absent(version) => observation.watched_absent(version, now),
                }
                news.send_replace(());
            })
            .await;
        }
    }

    async fn stand(
        &mut self,
        mut news: watch::Receiver<()>,
        ready: impl Future<Output = ()>,
        stop: CancellationToken,
        drained: CancellationToken,
    ) -> Result<(), Lost> {
        let mut ready = std::pin::pin!(ready);
        loop {
            (self.turned)();
            let env = &self.setting.env;
            tokio::select! {
                biased;
                () = &mut ready => break,
                () = stop.cancelled() => return Ok(()),
                () = env.sleep_until(env.now() + LONGEST_TURN) => {}
            }
        }
        let Some(since) = self.acquire(&mut news, &stop).await? else {
            return Ok(());
        };
        info!(identity = self.setting.identity, "elected: this process leads");
        let end = self.lead(since, &mut news, &drained).await;
        // This closes the gate: no write leaves from here on.
        self.leader_state.resign();
        end?;
        self.release().await;
        Ok(())
    }

    /// Waits until the Lease is free, and takes it. Returns when the term begins to count; `None` if `stop` came first.
    async fn acquire(
        &mut self,
        news: &mut watch::Receiver<()>,
        stop: &CancellationToken,
    ) -> Result<Option<Timestamp>, Lost> {
        let (env, period) = (self.setting.env.clone(), self.setting.timing.retry_period);
        let mut tries = Tries::default();
        let (mut holder, mut failures) = (String::new(), FailureLog::default());
        loop {
            (self.turned)();
            self.log_holder(&mut holder);
            let now = env.now();
            let when = tries.next_try(&lock(&self.observation), period, now);
            if now < when {
                tokio::select! {
                    biased;
                    () = env.sleep_until(when.min(now + LONGEST_TURN)) => {}
                    _ = news.changed() => {}
                    () = stop.cancelled() => return Ok(None),
                }
                continue;
            }
            if stop.is_cancelled() {
                return Ok(None);
            }
            tries.last = Tries::free_from(&lock(&self.observation), period);
            // At `stop`, let the attempt finish: a dropped write could still take the Lease, for a process that is gone.
            let taken = tokio::select! {
                biased;
                taken = self.attempt(Intent::Take) => taken,
                () = grace_after(stop) => return Ok(None),
            };
            match taken {
                Ok(Some(since)) if self.begin(since) => return Ok(Some(since)),
                Ok(_) | Err(OperationError::Conflict) => failures.recovered(),
                Err(OperationError::WentBack(went_back)) => return Err(went_back.into()),
                Err(error) => failures.log("cannot take the lease", &error),
            }
            tries.not_before = Some(env.now() + env.jittered(period, 0.2));
        }
    }

    /// Logs the holder of the Lease when it changes.
    fn log_holder(&self, logged: &mut String) {
        let holder = lock(&self.observation).holder();
        if *logged != holder {
            info!(holder, identity = self.setting.identity, "standing by");
            *logged = holder;
        }
    }

    fn begin(&mut self, since: Timestamp) -> bool {
        let ends = Ends::after(since, &self.setting.timing);
        let is_current = self.setting.env.now() < ends.gate && !(self.setting.rules.has_lost)(&lock(&self.observation));
        if is_current {
            self.leader_state.begin(Some(ends));
        }
        is_current
    }

    /// Renews the lease until `drained`.
    async fn lead(
        &mut self,
        mut since: Timestamp,
        news: &mut watch::Receiver<()>,
        drained: &CancellationToken,
    ) -> Result<(), Lost> {
        let (env, timing) = (self.setting.env.clone(), self.setting.timing);
        let (mut next, mut failures) = (since + timing.retry_period, FailureLog::default());
        loop {
            (self.turned)();
            self.check()?;
            let deadline = Ends::after(since, &timing).gate;
            let lost = || Lost::Deadline(timing.renew_deadline.as_secs());
            tokio::select! {
                biased;
                () = env.sleep_until(deadline) => return Err(lost()),
                _ = news.changed() => continue,
                () = drained.cancelled() => return Ok(()),
                () = env.sleep_until(next.min(env.now() + LONGEST_TURN)) => {}
            }
            if env.now() < next {
                continue;
            }
            next = env.now() + timing.retry_period;
            let attempt = self.attempt(Intent::Renew);
            let renewed = tokio::select! {
                biased;
                () = env.sleep_until(deadline) => return Err(lost()),
                () = self.lost(news) => continue,
                () = drained.cancelled() => return Ok(()),
                renewed = attempt => renewed,
            };
            match renewed {
                // A renewal after the deadline does not revive the term.
                Ok(Some(renewed)) if self.leader_state.prolong(Ends::after(renewed, &timing)) => {
                    since = renewed;
                    failures.recovered();
                }
                Ok(Some(_)) => return Err(lost()),
                Ok(None) => debug!("the lease was not renewed: this process does not hold it"),
                Err(OperationError::WentBack(went_back)) => return Err(went_back.into()),
                Err(error) => {
                    failures.log("cannot renew the lease", &error);
                    // A third of the remaining time leaves room for more tries before the deadline.
                    let left = deadline.duration_since(env.now());
                    next = next.min(env.now() + (left / 3).max(SHORTEST_RETRY));
                }
            }
        }
    }

    /// Waits until the lease is lost.
    async fn lost(&self, news: &mut watch::Receiver<()>) {
        while self.check().is_ok() {
            if news.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn check(&self) -> Result<(), Lost> {
        let observation = lock(&self.observation);
        if (self.setting.rules.has_lost)(&observation) {
            return Err(Lost::Taken(match observation.is_absent() {
                true => "the Lease was deleted".to_owned(),
                false => format!("{} holds it", observation.holder()),
            }));
        }
        Ok(())
    }

    /// Releases the lease, unless a write may still take effect.
    async fn release(&self) {
        if !(self.setting.rules.may_release)(&self.leader_state) {
            warn!("not releasing the lease, because a write may still take effect; the lease will expire");
            return;
        }
        let env = &self.setting.env;
        let release = async {
            loop {
                match self.setting.release(&self.observation).await {
                    // A renewal that was dropped in flight took effect in between.
                    Err(OperationError::Conflict) => env.sleep_until(env.now() + SHORTEST_RETRY).await,
                    result => return result,
                }
            }
        };
        match tokio::time::timeout(SHUTDOWN_TIMEOUT, release).await {
            Ok(Ok(())) => info!("released the lease"),
            Ok(Err(error)) => warn!(%error, "cannot release the lease; it will expire"),
            Err(_) => warn!("cannot release the lease, because the API server does not answer; it will expire"),
        }
    }

    async fn attempt(&self, intent: Intent) -> Result<Option<Timestamp>, OperationError> {
        let hold = self.setting.hold(intent, &self.observation);
        // Half of the deadline leaves time for another attempt.
        let patience = Duration::try_from(self.setting.timing.renew_deadline / 2).unwrap_or_default();
        tokio::time::timeout(patience, hold).await.unwrap_or(Err(OperationError::Timeout))
    }
}

/// The tries of a candidate to take the Lease.
#[derive(Debug, Default)]
struct Tries {
    /// When the next try may be, unless the Lease becomes free after the last try.
    not_before: Option<Timestamp>,
    /// When the Lease became free, as known at the last try.
    last: Option<Timestamp>,
}

impl Tries {
    /// When to try next; a time that has passed means now.
    fn next_try(&self, seen: &Observation, period: SignedDuration, now: Timestamp) -> Timestamp {
        let free_from = Self::free_from(seen, period);
        // A leader renews the Lease all the time. If nothing is heard of it, the watch may be dead, and a try reads the Lease.
        // The Lease does not show the holder's retry period. A third of its lease duration allows for a longer one than this process's.
        let silence = (period * 2).max(seen.written() / 3);
        let silent_at = seen.heard().map_or(now, |heard| heard + silence);
        let was_freed = free_from != self.last && free_from.is_some_and(|free| free <= now);
        let not_before = if was_freed { now } else { self.not_before.unwrap_or(now) };
        free_from.map_or(now, |free| free.min(silent_at)).max(not_before)
    }

    /// When this candidate may take the Lease. If its last write got no answer, it waits one period longer, to let others go first.
    fn free_from(seen: &Observation, period: SignedDuration) -> Option<Timestamp> {
        let handicap = if seen.is_in_doubt() { period } else { SignedDuration::ZERO };
        seen.frees_at().map(|free| free.saturating_add(handicap).unwrap_or(Timestamp::MAX))
    }
}

/// Waits for `stop`, and then for the time that an operation in flight gets to finish.
async fn grace_after(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
}

/// Logs an error as a warning once, not each time it repeats.
#[derive(Default)]
struct FailureLog(LogOnce);

impl FailureLog {
    fn log(&mut self, what: &str, error: &OperationError) {
        let sentence = format!("{what}, trying again: {error}");
        warn_once!(self.0.note(&sentence), "{sentence}");
    }

    fn recovered(&mut self) {
        if self.0.forget() {
            info!("the lease can be read and written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::promise::Rules;

    const PERIOD: SignedDuration = SignedDuration::from_secs(2);

    fn second(n: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(n)
    }

    /// What a candidate with a lease duration of 15 s has seen: a Lease of another holder, renewed at second 0.
    fn seen() -> Observation {
        let mut seen = Observation::new("us", SignedDuration::from_secs(15), Rules::default().wait);
        let spec = json!({ "holderIdentity": "them", "leaseDurationSeconds": 15 });
        let lease = json!({ "metadata": { "uid": "u", "resourceVersion": "7" }, "spec": spec });
        seen.watched(serde_json::from_value(lease).unwrap(), second(0));
        seen
    }

    #[test]
    fn a_candidate_tries_when_the_lease_is_free_or_silent() {
        let tries = Tries::default();
        let nothing = Observation::new("us", SignedDuration::from_secs(15), Rules::default().wait);
        assert_eq!(tries.next_try(&nothing, PERIOD, second(3)), second(3), "it has not seen the Lease yet");
        // A third of the lease duration without news.
        assert_eq!(tries.next_try(&seen(), PERIOD, second(1)), second(5));
        let mut deleted = seen();
        deleted.watched_absent(8, second(1));
        assert_eq!(tries.next_try(&deleted, PERIOD, second(1)), second(6), "its former holder may still write");
    }

    #[test]
    fn a_lease_that_was_freed_since_the_last_try_is_taken_at_once() {
        let mut released = seen();
        let spec = json!({ "holderIdentity": "", "leaseDurationSeconds": 1 });
        let lease = json!({ "metadata": { "uid": "u", "resourceVersion": "8" }, "spec": spec });
        released.watched(serde_json::from_value(lease).unwrap(), second(1));
        let tries = Tries { not_before: Some(second(4)), last: Tries::free_from(&seen(), PERIOD) };
        assert_eq!(tries.next_try(&released, PERIOD, second(2)), second(2));
        let tried = Tries { last: Tries::free_from(&released, PERIOD), ..tries };
        assert_eq!(tried.next_try(&released, PERIOD, second(2)), second(4), "after a failed try it waits");
    }

    #[test]
    fn a_candidate_whose_write_had_no_answer_lets_others_go_first() {
        let mut in_doubt = seen();
        in_doubt.writes();
        let free = |seen: &Observation| Tries::free_from(seen, PERIOD).unwrap();
        assert_eq!(free(&in_doubt).duration_since(free(&seen())), PERIOD);
    }
}
