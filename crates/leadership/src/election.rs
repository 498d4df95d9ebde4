//! The loop of leader election: stand by, lead, give the lease back.
//!
//! In: the Lease, by a watch and by operations on it. Out: what the [`LeaderState`] says. It writes the Lease and nothing else.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    log_once::LogOnce,
    observation::{Observation, WentBack},
    operation::{Intent, OperationError, Setting},
    term::{Ends, LeaderState},
    watch::Seen,
};

/// The loop turns at least this often, so that it can be seen to turn.
const TURN: SignedDuration = SignedDuration::from_secs(5);

/// The shortest wait after a renewal that failed, and that after a Lease which is given back has changed meanwhile.
const SOON: SignedDuration = SignedDuration::from_millis(100);

/// The longest that a process that shall end waits for an operation on the Lease.
const AT_THE_END: Duration = Duration::from_secs(5);

/// Why a leader no longer leads. The process has to end: what it had in hand is the next leader's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Lost {
    /// The lease could not be renewed in time.
    #[error("lost the lease: it could not be renewed for {0} s")]
    Deadline(i64),
    /// The Lease shows that somebody else holds it, or nobody.
    #[error("lost the lease: {0}")]
    Taken(String),
    /// The Lease is older than it was.
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
    /// A candidate for this leader_state. `turned` is called at each turn of its loop.
    pub fn new(setting: Setting, leader_state: LeaderState, turned: Arc<dyn Fn() + Send + Sync>) -> Self {
        let observation = Observation::new(setting.identity.clone(), setting.timing.lease_duration, setting.rules);
        Election { setting, leader_state, observation: Arc::new(Mutex::new(observation)), turned }
    }

    /// Stands for election once `ready`, and leads when elected. `stop` ends a candidacy at once; a leader goes on until
    /// `drained`, then gives the lease back. The Lease is watched from the beginning.
    ///
    /// # Errors
    ///
    /// When the lease is lost. Nothing is written from then on.
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

    /// Follows the Lease by a watch, for ever.
    fn watch(&self, news: watch::Sender<()>) -> impl Future<Output = ()> + use<> {
        let (setting, observation) = (self.setting.clone(), self.observation.clone());
        async move {
            super::watch::watch(&setting, |seen, now| {
                let mut observation = observation.lock().unwrap_or_else(PoisonError::into_inner);
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
                () = env.sleep_until(env.now() + TURN) => {}
            }
        }
        let Some(since) = self.be_elected(&mut news, &stop).await? else {
            return Ok(());
        };
        info!(identity = self.setting.identity, "elected: this process leads");
        let end = self.lead(since, &mut news, &drained).await;
        // The gate first: from here on no write leaves.
        self.leader_state.resign();
        end?;
        self.give_back().await;
        Ok(())
    }

    /// Waits until the Lease is free, and takes it. Answers from when on the term is counted; nothing when `stop` came first.
    async fn be_elected(
        &mut self,
        news: &mut watch::Receiver<()>,
        stop: &CancellationToken,
    ) -> Result<Option<Timestamp>, Lost> {
        let (env, period) = (self.setting.env.clone(), self.setting.timing.retry_period);
        let (mut not_before, mut tried) = (env.now(), None);
        let (mut holder, mut trouble) = (String::new(), Trouble::default());
        loop {
            (self.turned)();
            self.tell(&mut holder);
            let now = env.now();
            let (frees_at, heard, written) = {
                let observation = self.observation();
                // Whoever heard no answer to a write lets others go first.
                let handicap = if observation.is_in_doubt() { period } else { SignedDuration::ZERO };
                let free = |at: Timestamp| at.saturating_add(handicap).unwrap_or(Timestamp::MAX);
                (observation.frees_at().map(free), observation.heard(), observation.written())
            };
            // A leader is heard of each period, by its durations or by ours: after silence it is looked for, whatever becomes
            // of the watch.
            let silent = heard.map_or(now, |heard| heard + (period * 2).max(written / 3));
            // What was freed since the last try is taken at once.
            let is_news = frees_at != tried && frees_at.is_some_and(|free| free <= now);
            let when = frees_at.map_or(now, |free| free.min(silent)).max(if is_news { now } else { not_before });
            if now < when {
                tokio::select! {
                    biased;
                    () = env.sleep_until(when.min(now + TURN)) => {}
                    _ = news.changed() => {}
                    () = stop.cancelled() => return Ok(None),
                }
                continue;
            }
            if stop.is_cancelled() {
                return Ok(None);
            }
            tried = frees_at;
            // If `stop` comes it has some time to end: a write that is dropped might still take the Lease, for nobody.
            let taken = tokio::select! {
                biased;
                taken = self.attempt(Intent::Take) => taken,
                () = after(stop) => return Ok(None),
            };
            match taken {
                Ok(Some(since)) if self.begin(since) => return Ok(Some(since)),
                Ok(_) | Err(OperationError::Conflict) => trouble.over(),
                Err(OperationError::WentBack(went_back)) => return Err(went_back.into()),
                Err(error) => trouble.say("cannot take the lease", &error),
            }
            not_before = env.now() + env.jittered(period, 0.2);
        }
    }

    /// Says who leads, whenever that changes.
    fn tell(&self, said: &mut String) {
        let holder = self.observation().holder();
        if *said != holder {
            info!(holder, identity = self.setting.identity, "standing by");
            *said = holder;
        }
    }

    fn begin(&mut self, since: Timestamp) -> bool {
        let ends = Ends::after(since, &self.setting.timing);
        let is_current = self.setting.env.now() < ends.gate && !(self.setting.rules.has_lost)(&self.observation());
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
        let (mut next, mut trouble) = (since + timing.retry_period, Trouble::default());
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
                () = env.sleep_until(next.min(env.now() + TURN)) => {}
            }
            if env.now() < next {
                continue;
            }
            next = env.now() + timing.retry_period;
            let attempt = self.attempt(Intent::Renew);
            let renewed = tokio::select! {
                biased;
                () = env.sleep_until(deadline) => return Err(lost()),
                () = self.taken(news) => continue,
                () = drained.cancelled() => return Ok(()),
                renewed = attempt => renewed,
            };
            match renewed {
                // Whatever is renewed after the deadline does not revive the term.
                Ok(Some(renewed)) if self.leader_state.prolong(Ends::after(renewed, &timing)) => {
                    since = renewed;
                    trouble.over();
                }
                Ok(Some(_)) => return Err(lost()),
                Ok(None) => debug!("the lease was not renewed: it is not ours"),
                Err(OperationError::WentBack(went_back)) => return Err(went_back.into()),
                Err(error) => {
                    trouble.say("cannot renew the lease", &error);
                    // Whatever the durations, there is time for some more tries.
                    let left = deadline.duration_since(env.now());
                    next = next.min(env.now() + (left / 3).max(SOON));
                }
            }
        }
    }

    /// Waits until what is seen of the Lease says that it is lost.
    async fn taken(&self, news: &mut watch::Receiver<()>) {
        while self.check().is_ok() {
            if news.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn check(&self) -> Result<(), Lost> {
        let observation = self.observation();
        if (self.setting.rules.has_lost)(&observation) {
            return Err(Lost::Taken(match observation.is_absent() {
                true => "the Lease was deleted".to_owned(),
                false => format!("{} holds it", observation.holder()),
            }));
        }
        Ok(())
    }

    /// Gives the lease back, if no write can take effect any more.
    async fn give_back(&self) {
        if !(self.setting.rules.may_release)(&self.leader_state) {
            warn!("a write may still take effect: the lease is not given back, it runs out");
            return;
        }
        let env = &self.setting.env;
        let give_back = async {
            loop {
                match self.setting.give_back(&self.observation).await {
                    // A renewal that was dropped on its way has landed in between.
                    Err(OperationError::Conflict) => env.sleep_until(env.now() + SOON).await,
                    result => return result,
                }
            }
        };
        match tokio::time::timeout(AT_THE_END, give_back).await {
            Ok(Ok(())) => info!("gave the lease back"),
            Ok(Err(error)) => warn!(%error, "cannot give the lease back: it runs out"),
            Err(_) => warn!("cannot give the lease back, the API server does not answer: it runs out"),
        }
    }

    async fn attempt(&self, intent: Intent) -> Result<Option<Timestamp>, OperationError> {
        let hold = self.setting.hold(intent, &self.observation);
        // So that with the usual durations there is time for another one.
        let patience = Duration::try_from(self.setting.timing.renew_deadline / 2).unwrap_or_default();
        tokio::time::timeout(patience, hold).await.unwrap_or(Err(OperationError::Timeout))
    }

    fn observation(&self) -> MutexGuard<'_, Observation> {
        self.observation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until an operation that was under way at `stop` has had its time.
async fn after(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(AT_THE_END).await;
}

/// What goes wrong again and again, and is said once.
#[derive(Default)]
struct Trouble(LogOnce);

impl Trouble {
    fn say(&mut self, what: &str, error: &OperationError) {
        let sentence = format!("{what}, trying again: {error}");
        if self.0.note(&sentence) {
            warn!("{sentence}");
        } else {
            debug!("{sentence}");
        }
    }

    fn over(&mut self) {
        if self.0.forget() {
            info!("the lease can be read and written again");
        }
    }
}
