//! Several replicas of the operator, with leader election.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::observe::view::{Seen, View};
use crate::operator::{Operator, Settings};
use crate::process::eventually;
use crate::proxy::Proxy;
use crate::rights::LEASE;
use crate::scene::Scene;

/// How long replicas may take to start and to elect a leader.
const START: Duration = Duration::from_secs(60);

/// What a replica watches once it has started.
const WATCHES: [&str; 4] = ["watch podsets", "watch pods", "watch mycustomresources", "watch leases"];

struct Replica {
    operator: Operator,
    proxy: Option<Proxy>,
}

pub struct Fleet {
    t: Arc<Scene>,
    lease: &'static str,
    replicas: Vec<Replica>,
}

impl Fleet {
    /// A fleet without replicas, which will share this Lease.
    pub fn of(t: &Arc<Scene>, lease: &'static str) -> Self {
        Self { t: t.clone(), lease, replicas: Vec::new() }
    }

    /// Starts `size` replicas, directly or each behind its own proxy, and waits until one leads and all have started.
    pub async fn start(t: &Arc<Scene>, size: usize, settings: &Settings, behind_proxies: bool) -> Result<Self> {
        let mut fleet = Self::of(t, LEASE);
        for seed in 0..size as u64 {
            let proxy = if behind_proxies { Some(t.proxy(seed).await?) } else { None };
            let settings = proxy.iter().fold(settings.clone(), Settings::behind);
            fleet.replicas.push(Replica { operator: t.run(settings).await?, proxy });
        }
        fleet.is_complete().await?;
        Ok(fleet)
    }

    /// Adds a replica, and waits until it has started and one leads.
    pub async fn add(&mut self, settings: Settings) -> Result<()> {
        let operator = self.t.run(settings).await?;
        self.push(operator);
        self.is_complete().await
    }

    /// Adds a replica that was started by the caller.
    pub fn push(&mut self, operator: Operator) {
        self.replicas.push(Replica { operator, proxy: None });
    }

    async fn is_complete(&mut self) -> Result<()> {
        eventually("all replicas to watch", START, || ready(self.all_watch())).await?;
        self.leader().await.map(drop)
    }

    /// Fails unless every replica runs and has begun its watches.
    fn all_watch(&mut self) -> Result<()> {
        let requests = self.t.requests()?;
        for Replica { operator, .. } in &mut self.replicas {
            operator.is_running()?;
            let own: Vec<_> = requests.0.iter().filter(|request| request.user() == operator.user).collect();
            let watches = |kind: &&&str| own.iter().any(|request| request.kind() == **kind);
            let missing = WATCHES.iter().find(|kind| !watches(kind));
            ensure!(missing.is_none(), "{} has not sent {missing:?}", operator.name);
        }
        Ok(())
    }

    fn replica(&mut self, name: &str) -> Result<&mut Replica> {
        let found = self.replicas.iter_mut().find(|replica| replica.operator.name == name);
        found.with_context(|| format!("no replica {name}"))
    }

    pub fn operator(&mut self, name: &str) -> Result<&mut Operator> {
        Ok(&mut self.replica(name)?.operator)
    }

    pub fn proxy(&mut self, name: &str) -> Result<&Proxy> {
        self.replica(name)?.proxy.as_ref().with_context(|| format!("{name} has no proxy"))
    }

    /// The name of the leader, once it has renewed the Lease.
    pub async fn leader(&self) -> Result<String> {
        self.t.within(START, "a leader", |seen| self.named(&seen.renewing_holder(self.lease)?)).await
    }

    /// Waits until another replica than this one holds the Lease, or any replica if the name is empty. Returns the holder's name.
    pub async fn another_leads(&self, than: &str, limit: Duration) -> Result<String> {
        let leader = |seen: &View| self.named(&seen.holder(self.lease)?);
        let other =
            |seen: &View| leader(seen).and_then(|it| if it == than { Err(format!("{it} leads")) } else { Ok(it) });
        self.t.within(limit, &format!("another leader than {than}"), other).await
    }

    /// The replica with this identity.
    fn named(&self, holder: &str) -> Seen<String> {
        let is_it = |name: &&str| holder.strip_prefix(*name).is_some_and(|rest| rest.starts_with('_'));
        let name = self.replicas.iter().map(|replica| replica.operator.name.as_str()).find(is_it);
        name.map(str::to_owned).ok_or_else(|| format!("the Lease is held by {holder:?}"))
    }

    /// Kills a replica (SIGKILL). Returns when.
    pub async fn kill(&mut self, name: &str) -> Result<Timestamp> {
        self.t.log(&format!("{name} is killed"));
        let replica = self.replicas.extract_if(.., |replica| replica.operator.name == name).next();
        let now = Timestamp::now();
        replica.with_context(|| format!("no replica {name}"))?.operator.kill().await?;
        Ok(now)
    }

    /// Waits until a replica exits, and removes it from the fleet. Fails if its exit code is not `code`.
    pub async fn exits_with(&mut self, code: i32, name: &str, limit: Duration) -> Result<()> {
        let status = self.operator(name)?.ended(limit).await?;
        self.t.log(&format!("{name} ended with {status}"));
        self.replicas.retain(|replica| replica.operator.name != name);
        ensure!(status.code() == Some(code), "{name} ended with {status}, not with {code}");
        Ok(())
    }

    /// Fails unless all replicas run. Then terminates each, and fails unless it exits with code 0 within `limit`.
    pub async fn ends_well(mut self, limit: Duration) -> Result<()> {
        self.replicas.iter_mut().try_for_each(|replica| replica.operator.is_running())?;
        for replica in self.replicas {
            let name = replica.operator.name.clone();
            let status = replica.operator.terminate(limit).await?;
            ensure!(status.code() == Some(0), "SIGTERM ended {name} with {status}");
        }
        Ok(())
    }

    /// Time from a moment until the response to the write of the Lease that began the next term.
    pub async fn next_term_after(&self, moment: Timestamp) -> Result<SignedDuration> {
        // A request may be logged after it took effect.
        let began = || {
            let begun = self.t.history()?.terms().into_iter().map(|(_, began)| began).find(|began| *began > moment);
            begun.context("no term began")
        };
        let limit = Duration::from_secs(10);
        let began = eventually("the next term in the audit log", limit, || ready(began())).await?;
        let took = began.duration_since(moment);
        self.t.log(&format!("the next term began after {took:#}"));
        Ok(took)
    }
}
