//! The loop of leader election: stand by, lead, release the lease.
//!
//! It sees the Lease through a watch and its own operations, and updates the [`LeaderState`]. It writes only the Lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    Candidate, Ends, LeaderState, Leadership, Lost, Observation,
    failures::FailureLog,
    lock,
    observation::UNSEEN,
    operation::{OperationError, Operations},
    store::Change,
    watch::watch_for_ever,
};

/// The longest wait between two turns of the loop, which a liveness check watches. An operation on the Lease can lengthen a turn by half of
/// the renew deadline.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(5);

/// The shortest wait after a failed renewal, and the wait after a failed release.
const SHORTEST_RETRY: SignedDuration = SignedDuration::from_millis(100);

/// How long a shutdown waits for an operation on the Lease.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs leader election for one candidate. [`Candidate::connect`] creates it.
pub struct Election {
    operations: Arc<Operations>,
    leader_state: LeaderState,
}

impl Election {
    /// An election of this candidate, which begins and ends the terms of `leader_state`. `client` needs no leadership; it is best to give the
    /// Lease its own connections.
    pub fn new(candidate: Candidate, client: Client, leader_state: LeaderState) -> Self {
        let Candidate { identity, timing, rules, .. } = &candidate;
        let observation = Observation::new(identity, timing.lease_duration, rules.wait);
        let observation = Arc::new(Mutex::new(observation));
        Election {
            operations: Arc::new(Operations { candidate, client, observation, news: Notify::new() }),
            leader_state,
        }
    }

    /// A handle that tells whether this process leads. Clones share its state.
    pub fn leadership(&self) -> Leadership {
        self.leader_state.leadership()
    }

    /// Stands for election and leads when elected, until `work` ends. Then it releases the lease, and returns the output of `work`.
    ///
    /// `work` runs at once, also while another process leads. Until this process leads, its writes fail with
    /// [`NotLeader`](crate::WriteError::NotLeader). It must return after SIGTERM, at least 5 s before the grace period of the pod is over,
    /// because the lease is released after it. If a write may still take effect then, the lease is not released, and expires.
    ///
    /// # Errors
    ///
    /// When the lease is lost. No write is sent after that, and `work` is dropped. The process must exit, because it does not stand for
    /// election again. Join other tasks, such as a web server, with `tokio::try_join!`, so that the error ends them too.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let done = CancellationToken::new();
        let work = async {
            let output = work.await;
            done.cancel();
            Ok(output)
        };
        let election = self.run_in_order(std::future::ready(()), done.clone(), done.clone());
        let ended = tokio::try_join!(election, work).map(|((), output)| output);
        ended.inspect_err(|lost| error!("{lost}"))
    }

    /// Like [`Election::run`], for a process that starts and stops in several steps:
    ///
    /// - it stands for election once `ready` completes, for example when its caches are filled
    /// - when `stop` is cancelled, a standby stops, within 5 s
    /// - when `drained` is cancelled, a leader releases the lease: its work has ended. `stop` makes that work end
    ///
    /// # Errors
    ///
    /// As [`Election::run`].
    pub async fn run_in_order(
        mut self,
        ready: impl Future<Output = ()>,
        stop: CancellationToken,
        drained: CancellationToken,
    ) -> Result<(), Lost> {
        let operations = self.operations.clone();
        tokio::select! {
            biased;
            () = watch_for_ever(&operations) => std::future::pending().await,
            end = self.stand(ready, stop, drained) => end,
        }
    }

    fn candidate(&self) -> &Candidate {
        &self.operations.candidate
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Observation> {
        lock(&self.operations.observation)
    }

    async fn stand(
        &mut self,
        ready: impl Future<Output = ()>,
        stop: CancellationToken,
        drained: CancellationToken,
    ) -> Result<(), Lost> {
        let mut ready = std::pin::pin!(ready);
        loop {
            (self.candidate().heartbeat)();
            let env = &self.candidate().env;
            tokio::select! {
                biased;
                () = &mut ready => break,
                () = stop.cancelled() => return Ok(()),
                () = env.sleep_until(env.now() + LONGEST_WAIT) => {}
            }
        }
        let Some(since) = self.acquire(&stop).await? else {
            return Ok(());
        };
        info!(identity = self.candidate().identity, "elected: this process leads");
        let end = self.lead(since, &drained).await;
        // This closes the gate: no write leaves from here on.
        self.leader_state.resign();
        end?;
        self.release().await;
        Ok(())
    }

    /// Waits until the Lease is free, and takes it. Returns when the term begins to count; `None` if `stop` came first.
    async fn acquire(&mut self, stop: &CancellationToken) -> Result<Option<Timestamp>, Lost> {
        let (env, period) = (self.candidate().env.clone(), self.candidate().timing.retry_period);
        let mut tries = Tries::default();
        let (mut holder, mut failures) = (UNSEEN.to_owned(), FailureLog::default());
        loop {
            (self.candidate().heartbeat)();
            self.log_holder(&mut holder);
            let now = env.now();
            let when = tries.next_try(&self.seen(), period, now);
            if now < when {
                tokio::select! {
                    biased;
                    () = env.sleep_until(when.min(now + LONGEST_WAIT)) => {}
                    () = self.operations.news.notified() => {}
                    () = stop.cancelled() => return Ok(None),
                }
                continue;
            }
            if stop.is_cancelled() {
                return Ok(None);
            }
            tries.last_free_from = Tries::free_from(&self.seen(), period);
            // At `stop`, let the attempt finish: a dropped write could still take the Lease, for a process that is gone.
            let grace = async {
                stop.cancelled().await;
                tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
            };
            let taken = tokio::select! {
                biased;
                taken = self.operations.run(Change::Take) => taken,
                () = grace => return Ok(None),
            };
            match taken {
                Ok(Some(since)) if self.begin(since) => return Ok(Some(since)),
                Ok(_) | Err(OperationError::Conflict) => {
                    recovered(&mut failures, "the lease can be read and written again")
                }
                Err(OperationError::WentBack(went_back)) => return Err(went_back.into()),
                Err(error) => failures.log("cannot take the lease", &error),
            }
            tries.not_before = Some(env.now() + env.jittered(period, 0.2));
        }
    }

    /// Logs the holder of the Lease when it changes.
    fn log_holder(&self, logged: &mut String) {
        let holder = self.seen().holder();
        if *logged != holder {
            info!(holder, identity = self.candidate().identity, "standing by");
            *logged = holder;
        }
    }

    fn begin(&mut self, since: Timestamp) -> bool {
        let Candidate { timing, env, rules, .. } = self.candidate();
        let ends = Ends::after(since, timing);
        let is_current = env.now() < ends.gate && !(rules.has_lost)(&self.seen());
        if is_current {
            self.leader_state.begin(Some(ends));
        }
        is_current
    }

    /// Renews the lease until `drained`.
    async fn lead(&mut self, mut since: Timestamp, drained: &CancellationToken) -> Result<(), Lost> {
        let (env, timing) = (self.candidate().env.clone(), self.candidate().timing);
        let (mut next, mut failures) = (since + timing.retry_period, FailureLog::default());
        loop {
            (self.candidate().heartbeat)();
            self.check()?;
            let deadline = Ends::after(since, &timing).gate;
            let lost = || Lost::Deadline(timing.renew_deadline.as_secs());
            tokio::select! {
                biased;
                () = env.sleep_until(deadline) => return Err(lost()),
                () = self.operations.news.notified() => continue,
                () = drained.cancelled() => return Ok(()),
                () = env.sleep_until(next.min(env.now() + LONGEST_WAIT)) => {}
            }
            if env.now() < next {
                continue;
            }
            next = env.now() + timing.retry_period;
            let attempt = self.operations.run(Change::Renew);
            let renewed = tokio::select! {
                biased;
                () = env.sleep_until(deadline) => return Err(lost()),
                () = self.lost() => continue,
                () = drained.cancelled() => return Ok(()),
                renewed = attempt => renewed,
            };
            match renewed {
                // A renewal after the deadline does not revive the term.
                Ok(Some(renewed)) if self.leader_state.prolong(Ends::after(renewed, &timing)) => {
                    since = renewed;
                    recovered(&mut failures, "the lease can be renewed again");
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
    async fn lost(&self) {
        while self.check().is_ok() {
            self.operations.news.notified().await;
        }
    }

    fn check(&self) -> Result<(), Lost> {
        let observation = self.seen();
        if (self.candidate().rules.has_lost)(&observation) {
            return Err(Lost::Taken(match observation.holder() {
                _ if observation.is_absent() => "the Lease was deleted".to_owned(),
                holder if holder == self.candidate().identity => "the Lease was recreated".to_owned(),
                holder => format!("the holder is now {holder}"),
            }));
        }
        Ok(())
    }

    /// Releases the lease, unless a write may still take effect.
    async fn release(&self) {
        if !(self.candidate().rules.may_release)(&self.leader_state) {
            warn!("not releasing the lease, because a write may still take effect; the lease will expire");
            return;
        }
        let env = &self.candidate().env;
        let release = async {
            let mut failures = FailureLog::default();
            loop {
                match self.operations.run(Change::Release).await {
                    Ok(Some(_)) => return info!("released the lease"),
                    Ok(None) => {
                        return warn!(
                            "this process no longer holds the lease: it was released, deleted, or taken by another process"
                        );
                    }
                    Err(OperationError::WentBack(went_back)) => return warn!("not releasing the lease: {went_back}"),
                    // A renewal that was dropped in flight took effect in between.
                    Err(OperationError::Conflict) => {}
                    Err(error) => failures.log("cannot release the lease", &error),
                }
                env.sleep_until(env.now() + SHORTEST_RETRY).await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, release).await.is_err() {
            warn!("cannot release the lease in time; it will expire");
        }
    }
}

/// The tries of a candidate to take the Lease.
#[derive(Debug, Default)]
struct Tries {
    /// The earliest time of the next try, unless the Lease becomes free after the last one.
    not_before: Option<Timestamp>,
    /// The result of [`Tries::free_from`] at the last try.
    last_free_from: Option<Timestamp>,
}

impl Tries {
    /// When to try next; a time that has passed means now.
    fn next_try(&self, seen: &Observation, period: SignedDuration, now: Timestamp) -> Timestamp {
        let free_from = Self::free_from(seen, period);
        // A leader renews the Lease all the time. If nothing is heard of it, the watch may be dead, and a try reads the Lease.
        // The Lease does not show the holder's retry period. A third of its lease duration allows for a longer one than this process's.
        let silence = (period * 2).max(seen.holder_duration.unwrap_or_default() / 3);
        let silent_at = seen.heard.map_or(now, |heard| heard + silence);
        let was_freed = free_from != self.last_free_from && free_from.is_some_and(|free| free <= now);
        let not_before = if was_freed { now } else { self.not_before.unwrap_or(now) };
        free_from.map_or(now, |free| free.min(silent_at)).max(not_before)
    }

    /// When this candidate may take the Lease. If the Lease names it, because the answer to its write was lost or came too late, it waits one
    /// period longer, to let others go first.
    fn free_from(seen: &Observation, period: SignedDuration) -> Option<Timestamp> {
        let handicap = if seen.names_us() { period } else { SignedDuration::ZERO };
        seen.frees_at().map(|free| free.saturating_add(handicap).unwrap_or(Timestamp::MAX))
    }
}

fn recovered(failures: &mut FailureLog, sentence: &str) {
    if failures.recovered() {
        info!("{sentence}");
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

    /// A candidate with a lease duration of 15 s has seen a Lease of another holder, renewed at second 0.
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
        let tries = Tries { not_before: Some(second(4)), last_free_from: Tries::free_from(&seen(), PERIOD) };
        assert_eq!(tries.next_try(&released, PERIOD, second(2)), second(2));
        let tried = Tries { last_free_from: Tries::free_from(&released, PERIOD), ..tries };
        assert_eq!(tried.next_try(&released, PERIOD, second(2)), second(4), "after a failed try it waits");
    }

    #[test]
    fn a_candidate_whose_write_got_no_answer_waits_longer() {
        let lease = |holder: &str| {
            let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 5 });
            let metadata = json!({ "uid": "u", "resourceVersion": "8" });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
        };
        let free = |holder: &str| {
            let mut seen = seen();
            seen.watched(lease(holder), second(1));
            Tries::free_from(&seen, PERIOD).unwrap()
        };
        assert_eq!(free("us").duration_since(free("other")), PERIOD);
    }
}
