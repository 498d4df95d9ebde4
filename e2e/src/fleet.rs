//! Several replicas of the operator that elect a leader among them by the Lease of the scenario's namespace.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use crate::observe::view::Seen;
use crate::operator::{Operator, Settings};
use crate::proxy::Proxy;
use crate::scene::Scene;

/// How long replicas may take to start, and to elect their first leader.
const START: Duration = Duration::from_secs(60);

/// What a replica watches when its caches are warm.
const WATCHES: [&str; 4] = ["watch podsets", "watch pods", "watch mycustomresources", "watch leases"];

/// A replica, and what stands between it and its API server.
pub struct Replica {
    /// The process.
    pub operator: Operator,
    /// Its own proxy, where it has one.
    pub proxy: Option<Proxy>,
}

/// Replicas of one operator.
pub struct Fleet {
    t: Arc<Scene>,
    replicas: Vec<Replica>,
}

impl Fleet {
    /// No replica yet.
    pub fn new(t: &Arc<Scene>) -> Self {
        Self { t: t.clone(), replicas: Vec::new() }
    }

    /// Starts so many that reach the API server directly, and waits until one leads and all are warm.
    pub async fn start(t: &Arc<Scene>, size: usize, settings: &Settings) -> Result<Self> {
        let mut fleet = Self::new(t);
        for _ in 0..size {
            fleet.add(settings.clone()).await?;
        }
        fleet.is_complete().await?;
        Ok(fleet)
    }

    /// The same, each behind a proxy of its own.
    pub async fn start_behind_proxies(t: &Arc<Scene>, size: usize, settings: &Settings) -> Result<Self> {
        let mut fleet = Self::new(t);
        for _ in 0..size {
            fleet.add_behind_proxy(settings.clone()).await?;
        }
        fleet.is_complete().await?;
        Ok(fleet)
    }

    /// Starts one more; its name.
    pub async fn add(&mut self, settings: Settings) -> Result<String> {
        let operator = self.t.run(settings).await?;
        let name = operator.name().to_owned();
        self.replicas.push(Replica { operator, proxy: None });
        Ok(name)
    }

    /// Starts one more behind a proxy of its own; its name.
    pub async fn add_behind_proxy(&mut self, settings: Settings) -> Result<String> {
        let proxy = self.t.proxy(self.replicas.len() as u64).await?;
        let operator = self.t.run(settings.behind(&proxy)).await?;
        let name = operator.name().to_owned();
        self.replicas.push(Replica { operator, proxy: Some(proxy) });
        Ok(name)
    }

    /// Waits until one leads and the caches of all are warm.
    pub async fn is_complete(&mut self) -> Result<()> {
        let end = Instant::now() + START;
        while let Some(missing) = self.missing()? {
            if Instant::now() > end {
                bail!("after {} s {missing}", START.as_secs());
            }
            self.replicas.iter_mut().try_for_each(|replica| replica.operator.is_running())?;
            sleep(Duration::from_millis(200)).await;
        }
        self.leader().await.map(drop)
    }

    fn missing(&self) -> Result<Option<String>> {
        let requests = self.t.requests()?;
        for replica in &self.replicas {
            let user = replica.operator.user();
            let watches = |kind: &&&str| requests.of(kind).iter().any(|request| request.user() == user);
            if let Some(watch) = WATCHES.iter().find(|kind| !watches(kind)) {
                return Ok(Some(format!("{} has not sent '{watch}'", replica.operator.name())));
            }
        }
        Ok(None)
    }

    /// The names of the replicas.
    pub fn names(&self) -> Vec<String> {
        self.replicas.iter().map(|replica| replica.operator.name().to_owned()).collect()
    }

    /// The replica of that name.
    pub fn replica(&mut self, name: &str) -> Result<&mut Replica> {
        let found = self.replicas.iter_mut().find(|replica| replica.operator.name() == name);
        found.with_context(|| format!("no replica {name}"))
    }

    /// The process of that name.
    pub fn operator(&mut self, name: &str) -> Result<&mut Operator> {
        Ok(&mut self.replica(name)?.operator)
    }

    /// The proxy of the replica of that name.
    pub fn proxy(&mut self, name: &str) -> Result<&Proxy> {
        self.replica(name)?.proxy.as_ref().with_context(|| format!("{name} has no proxy"))
    }

    /// The name of the replica that leads, once one does and knows it.
    pub async fn leader(&self) -> Result<String> {
        self.t.within(START, "a leader", |seen| self.named(&seen.renewing_holder()?)).await
    }

    /// Waits until a replica other than this one holds the Lease, so long at most; its name.
    pub async fn another_leads(&self, than: &str, limit: Duration) -> Result<String> {
        let what = format!("another leader than {than}");
        self.t
            .within(limit, &what, |seen| match self.named(&seen.holder()?)? {
                same if same == than => Err(format!("{same} holds the Lease")),
                other => Ok(other),
            })
            .await
    }

    /// The replica of this identity.
    fn named(&self, holder: &str) -> Seen<String> {
        let is_it = |name: &&str| holder.strip_prefix(*name).is_some_and(|rest| rest.starts_with('_'));
        let name = self.replicas.iter().map(|replica| replica.operator.name()).find(is_it);
        name.map(str::to_owned).ok_or_else(|| format!("the Lease is held by {holder:?}"))
    }

    /// Kills a replica (SIGKILL); when that was.
    pub async fn kill(&mut self, name: &str) -> Result<Timestamp> {
        self.t.tell(&format!("{name} is killed"));
        let place = self.replicas.iter().position(|replica| replica.operator.name() == name);
        let replica = self.replicas.swap_remove(place.with_context(|| format!("no replica {name}"))?);
        let now = Timestamp::now();
        replica.operator.kill().await?;
        Ok(now)
    }

    /// Waits until a replica has ended, and is none of the fleet any more.
    pub async fn has_ended(&mut self, name: &str, limit: Duration) -> Result<ExitStatus> {
        let status = self.operator(name)?.ended(limit).await?;
        self.t.tell(&format!("{name} ended with {status}"));
        self.replicas.retain(|replica| replica.operator.name() != name);
        Ok(status)
    }

    /// Fails unless all that are left run; then asks each to end, and fails unless each does so in order.
    pub async fn ends_well(mut self) -> Result<()> {
        self.replicas.iter_mut().try_for_each(|replica| replica.operator.is_running())?;
        for name in self.names() {
            self.operator(&name)?.ask_to_end()?;
            let status = self.has_ended(&name, Duration::from_secs(20)).await?;
            if status.code() != Some(0) {
                bail!("asked to end, {name} ended with {status}");
            }
        }
        Ok(())
    }

    /// How long it took from a moment until the write of the Lease was answered that began the next term.
    pub async fn next_term_after(&self, moment: Timestamp) -> Result<SignedDuration> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let history = self.t.history()?;
            if let Some(began) = history.terms().into_iter().map(|(_, began)| began).find(|began| *began > moment) {
                let took = began.duration_since(moment);
                self.t.tell(&format!("the next term began after {took:#}"));
                return Ok(took);
            }
            // The log of a request may come after its effect.
            ensure!(Instant::now() < end, "the audit log does not tell of a next term");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
