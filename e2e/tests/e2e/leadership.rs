//! The example operator of the crate `leadership`: leaders are terminated, killed and frozen, and one replica writes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::account::Account;
use e2e::audit::writers;
use e2e::fleet::Fleet;
use e2e::operator::{Operator, built};
use e2e::process::eventually;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;
use tokio::time::sleep;

/// The name of the Lease.
const LEASE: &str = "word-counter";

/// The maximum time until another replica takes over: the lease duration, a retry period, and slack for a busy machine.
const TAKE_OVER: Duration = Duration::from_secs(15 + 2 + 2);

/// A replica ends within this time.
const ENDS: Duration = Duration::from_secs(5);

const MAPS: usize = 5;

pub fn scenarios() -> Vec<Scenario> {
    // It compiles the example first.
    vec![Scenario::new("leadership_example_has_one_writer", one_writer).with_processes().heavy()]
}

async fn one_writer(t: Arc<Scene>) -> Result<()> {
    let binary = built(["--package", "leadership", "--example", "operator"]).await?;
    let mut fleet = Fleet::of(&t, LEASE);
    grant_rights(&t).await?;
    let users = tokio::spawn(edit_texts(t.cluster.client.clone(), t.namespace.clone()));
    for _ in 0..2 {
        add_replica(&t, &binary, &mut fleet).await?;
    }

    // The first leader is terminated,
    let leader = fleet.another_leads("", TAKE_OVER).await?;
    fleet.operator(&leader)?.signal(Signal::TERM)?;
    fleet.exits_with(0, &leader, ENDS).await?;
    let next = fleet.another_leads(&leader, Duration::from_secs(2)).await?;
    add_replica(&t, &binary, &mut fleet).await?;

    // the second leader is killed while it writes,
    sleep(Duration::from_secs(3)).await;
    fleet.kill(&next).await?;
    let frozen = fleet.another_leads(&next, TAKE_OVER).await?;
    add_replica(&t, &binary, &mut fleet).await?;

    // and the third is frozen until another replica leads. It exits when it continues, and the other one still leads.
    sleep(Duration::from_secs(3)).await;
    fleet.operator(&frozen)?.signal(Signal::STOP)?;
    let last = fleet.another_leads(&frozen, TAKE_OVER).await?;
    sleep(Duration::from_secs(1)).await;
    fleet.operator(&frozen)?.signal(Signal::CONT)?;
    fleet.exits_with(1, &frozen, ENDS).await?;
    sleep(Duration::from_secs(3)).await;
    ensure!(fleet.another_leads("", TAKE_OVER).await? == last, "{last} does not lead any more");

    ensure!(!users.is_finished(), "the users ended too early: {:?}", users.await);
    users.abort();
    let _ = users.await;
    eventually("the words to be counted", Duration::from_secs(30), || check_counts(&t)).await?;
    fleet.ends_well(ENDS).await?;
    let (judged, _) = writers::one_writer(&t.cluster.audit_log, &t.namespace, LEASE)?;
    ensure!(judged > 100, "the replicas wrote only {judged} times");
    Ok(())
}

/// Grants the rights that the README of the crate names, and those for ConfigMaps.
async fn grant_rights(t: &Scene) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": LEASE},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE],
                "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]},
        ],
    });
    let kubectl = t.kubectl();
    kubectl.run_with(&["create", "-f", "-"], &role.to_string()).await?;
    let group = format!("--group=system:serviceaccounts:{}", t.namespace);
    kubectl.run(&["create", "rolebinding", LEASE, &format!("--role={LEASE}"), &group]).await.map(drop)
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

/// Fails unless every number of words is right.
async fn check_counts(t: &Scene) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(t.cluster.client.clone(), &t.namespace);
    for n in 0..MAPS {
        let data = maps.get(&format!("map-{n}")).await?.data.unwrap_or_default();
        let words = data.get("text").map_or(0, |text| text.split_whitespace().count()).to_string();
        ensure!(data.get("words") == Some(&words), "map-{n} is not counted: {data:?}");
    }
    Ok(())
}

async fn add_replica(t: &Scene, binary: &Path, fleet: &mut Fleet) -> Result<()> {
    let (name, log) = t.next_process("counter");
    let account = Account::create(&t.cluster, &t.namespace, &name).await?;
    let kubeconfig = log.with_extension("kubeconfig");
    account.write_kubeconfig(&t.cluster.server, &kubeconfig)?;
    // `start` removes the caller's KUBECONFIG.
    let mut command = Command::new("env");
    command.arg(format!("KUBECONFIG={}", kubeconfig.display())).arg(binary);
    let folder = log.parent().context("a log without a folder")?;
    fleet.push(Operator::start(command, name, account.user(), &t.cluster, folder)?);
    Ok(())
}
