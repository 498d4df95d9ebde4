//! The example operator of the crate `leadership`, with two replicas: whatever happens to the leader, one replica at a time writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::account::Account;
use e2e::audit::writers;
use e2e::operator::{Operator, built};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// The name of the Lease.
const LEASE: &str = "word-counter";

/// The longest time until another replica has taken an expired Lease: the lease duration, a retry period, and what a busy machine adds.
const TAKE_OVER: Duration = Duration::from_secs(15 + 2 + 2);

const MAPS: usize = 5;

pub fn scenarios() -> Vec<Scenario> {
    // It compiles the example first.
    vec![Scenario::new("leadership_example_has_one_writer", one_writer).with_processes().heavy()]
}

async fn one_writer(t: Arc<Scene>) -> Result<()> {
    let binary = built(["--package", "leadership", "--example", "operator"]).await?;
    let mut replicas = Replicas { t: t.clone(), binary, all: Vec::new(), started: 0 };
    replicas.are_allowed().await?;
    let users = tokio::spawn(edit_texts(t.client(), t.namespace().to_owned()));
    for _ in 0..2 {
        replicas.add().await?;
    }

    let leader = replicas.leader_but("", TAKE_OVER).await?;
    let ended = replicas.remove(&leader)?.terminate(Duration::from_secs(5)).await?;
    ensure!(ended.code() == Some(0), "SIGTERM ended {leader} with {ended}");
    let next = replicas.leader_but(&leader, Duration::from_secs(2)).await?;
    replicas.add().await?;

    sleep(Duration::from_secs(3)).await;
    replicas.remove(&next)?.kill().await?;
    let frozen = replicas.leader_but(&next, TAKE_OVER).await?;
    replicas.add().await?;

    sleep(Duration::from_secs(3)).await;
    replicas.get(&frozen)?.signal(Signal::STOP)?;
    let last = replicas.leader_but(&frozen, TAKE_OVER).await?;
    sleep(Duration::from_secs(1)).await;
    replicas.get(&frozen)?.signal(Signal::CONT)?;
    let ended = replicas.remove(&frozen)?.ended(Duration::from_secs(5)).await?;
    ensure!(ended.code() == Some(1), "without its Lease, {frozen} ended with {ended}");
    sleep(Duration::from_secs(3)).await;
    ensure!(replicas.leader_but("", TAKE_OVER).await? == last, "{last} does not lead any more");

    users.abort();
    let _ = users.await;
    replicas.have_counted().await?;
    for replica in replicas.all {
        let ended = replica.terminate(Duration::from_secs(5)).await?;
        ensure!(ended.code() == Some(0), "SIGTERM ended a replica with {ended}");
    }
    let (judged, _) = writers::one_writer(t.cluster().audit_log(), t.namespace(), LEASE)?;
    ensure!(judged > 100, "the replicas wrote only {judged} times");
    Ok(())
}

/// Edits texts, so that the leader always has something to write.
async fn edit_texts(client: kube::Client, namespace: String) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(client, &namespace);
    for n in 0..MAPS {
        let metadata = json!({"name": format!("map-{n}"), "labels": {"words": "count"}});
        maps.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": metadata}))?).await?;
    }
    for n in 0.. {
        let patch = json!({"data": {"text": "word ".repeat(n % 97)}});
        maps.patch(&format!("map-{}", n % MAPS), &PatchParams::default(), &Patch::Merge(patch)).await?;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

struct Replicas {
    t: Arc<Scene>,
    binary: PathBuf,
    all: Vec<Operator>,
    started: usize,
}

impl Replicas {
    /// Grants the rights that the README of the crate names, and those for ConfigMaps.
    async fn are_allowed(&self) -> Result<()> {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": LEASE},
            "rules": [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE],
                    "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]},
            ],
        });
        let kubectl = self.t.kubectl();
        kubectl.run_with(&["create", "-f", "-"], &role.to_string()).await?;
        let group = format!("--group=system:serviceaccounts:{}", self.t.namespace());
        kubectl.run(&["create", "rolebinding", LEASE, &format!("--role={LEASE}"), &group]).await.map(drop)
    }

    async fn add(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("counter-{}", self.started);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(self.t.namespace());
        std::fs::create_dir_all(&folder)?;
        let account = Account::create(self.t.cluster(), self.t.namespace(), &name).await?;
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        account.write_kubeconfig(self.t.cluster().server(), &kubeconfig)?;
        // `start` removes the caller's KUBECONFIG.
        let mut command = Command::new("env");
        command.arg(format!("KUBECONFIG={}", kubeconfig.display())).arg(&self.binary);
        self.t.log(&format!("{name} starts"));
        self.all.push(Operator::start(command, name, account.user(), self.t.cluster(), &folder)?);
        Ok(())
    }

    fn place(&self, name: &str) -> Result<usize> {
        self.all.iter().position(|replica| replica.name() == name).with_context(|| format!("no replica {name}"))
    }

    fn get(&mut self, name: &str) -> Result<&mut Operator> {
        let place = self.place(name)?;
        Ok(&mut self.all[place])
    }

    fn remove(&mut self, name: &str) -> Result<Operator> {
        let place = self.place(name)?;
        Ok(self.all.swap_remove(place))
    }

    /// Waits until another replica than this one holds the Lease. Returns its name.
    async fn leader_but(&mut self, other: &str, limit: Duration) -> Result<String> {
        let leases = Api::<Lease>::namespaced(self.t.client(), self.t.namespace());
        let began = Instant::now();
        loop {
            let lease = leases.get_opt(LEASE).await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            let name = holder.split_once('_').map_or("", |(name, _)| name);
            if !name.is_empty() && name != other {
                self.t.log(&format!("after {:?}, {name} leads", began.elapsed()));
                return Ok(name.to_owned());
            }
            if began.elapsed() > limit {
                self.all.iter_mut().try_for_each(Operator::is_running)?;
                bail!("after {limit:?}, the Lease is held by {holder:?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the numbers of words are right.
    async fn have_counted(&self) -> Result<()> {
        let maps = Api::<ConfigMap>::namespaced(self.t.client(), self.t.namespace());
        let end = Instant::now() + Duration::from_secs(30);
        for n in 0..MAPS {
            loop {
                let data = maps.get(&format!("map-{n}")).await?.data.unwrap_or_default();
                let words = data.get("text").map_or(0, |text| text.split_whitespace().count()).to_string();
                if data.get("words") == Some(&words) {
                    break;
                }
                ensure!(Instant::now() < end, "map-{n} is not counted: {data:?}");
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}
