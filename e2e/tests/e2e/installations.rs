//! Two installations in one cluster: a process that is started by hand beside an installation does not lead by a Lease of its own, unless
//! that is asked for; and installations that write the same PodSets notice each other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::account::Account;
use e2e::operator::{Election, Operator};
use e2e::rights;
use e2e::scene::Scene;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::wait::until;

const START: Duration = Duration::from_secs(60);

/// The cluster has no other Lease of that name.
pub async fn by_hand_joins_or_ends(t: Arc<Scene>) -> Result<()> {
    let installed = t.run(t.settings().elected(Election::DEFAULT)).await?;
    t.create_set("web", 2).await?;
    t.until("2 pods", |seen| seen.at_rest("web", 2)).await?;
    let desk = t.other_namespace("desk").await?;
    let me = Account::create(&t.client(), &desk, "me").await?;
    let account = format!("--serviceaccount={desk}:me");
    t.kubectl().run(&["create", "clusterrolebinding", "me", "--clusterrole=cluster-admin", &account]).await?;

    let mut alone = t.run_by_hand(&me, &[])?;
    let status = alone.ended(START).await?;
    ensure!(status.code() == Some(2), "beside an installation it ended with {status}");
    let flag = format!("--leader-elect-resource-namespace={}", t.namespace());
    let lease = format!("the Lease {}/podset-operator (holder {}_", t.namespace(), installed.name());
    let said = alone.said(&lease);
    ensure!(said.iter().any(|line| line.contains(&flag)), "it does not name the Lease and the flag: {said:?}");
    let leases: Api<Lease> = Api::namespaced(t.client(), &desk);
    let there = leases.list(&ListParams::default()).await?.items;
    ensure!(there.is_empty(), "it stood for election: {there:?}");

    let joined = t.run_by_hand(&me, &[&flag])?;
    says(&joined, "standing by").await?;
    ensure!(joined.said("this process leads").is_empty(), "with the flag it leads beside the installation");
    installed.terminate(Duration::from_secs(20)).await?;
    t.scale("web", 3).await?;
    t.until("3 pods by the one that joined", |seen| seen.at_rest("web", 3)).await?;
    ensure!(!joined.said("this process leads").is_empty(), "somebody else made the pod");
    t.one_writer()
}

pub async fn lookup_is_not_permitted(t: Arc<Scene>) -> Result<()> {
    let me = Account::create(&t.client(), t.namespace(), "me").await?;
    let operator = t.run_by_hand(&me, &[&format!("--watch-namespace={}", t.namespace())])?;
    t.create_set("web", 2).await?;
    t.until("2 pods", |seen| seen.at_rest("web", 2)).await?;
    let said = operator.said("cannot look for other installations");
    ensure!(said.len() == 1 && said[0].contains("--leader-elect-resource-namespace"), "it says {said:?}");
    Ok(())
}

pub async fn on_the_same_sets_are_noticed(t: Arc<Scene>) -> Result<()> {
    let other = t.other_namespace("other").await?;
    rights::grant(t.cluster(), &other).await?;
    rights::grant_also(&t.client(), &other, t.namespace()).await?;
    let mut both = Vec::new();
    for home in [t.namespace(), &other] {
        let account = Account::create(&t.client(), home, "installation").await?;
        let lease = format!("--leader-elect-resource-namespace={home}");
        let watched = format!("--watch-namespace={}", t.namespace());
        let operator = t.run_by_hand(&account, &[&lease, &watched])?;
        says(&operator, "this process leads").await?;
        both.push((operator, account));
    }
    t.create_set("web", 2).await?;
    // Each change is answered by the one that is faster, and seen by the other.
    for replicas in [3, 2, 4] {
        t.scale("web", replicas).await?;
        t.until("the pods", |seen| seen.at_rest("web", replicas as usize)).await?;
    }
    for (operator, account) in &both {
        let said = operator.said("another installation writes the same PodSets");
        t.tell(&format!("{} says {said:?}", operator.name()));
        let count = noticed(&t, operator, account).await?;
        ensure!(said.is_empty() == (count == 0), "{} has noticed {count} writes, and says {said:?}", operator.name());
    }
    let noticed = both.iter().filter(|(operator, _)| !operator.said("another installation writes").is_empty()).count();
    ensure!(noticed > 0, "neither has noticed the other");
    Ok(())
}

/// Waits until it says this.
async fn says(operator: &Operator, words: &str) -> Result<()> {
    let last = format!("{} says nothing of it", operator.name());
    let ask = async || Ok(if operator.said(words).is_empty() { Err(last.clone()) } else { Ok(()) });
    until(words, START, ask).await
}

/// How many writes of others it shows.
async fn noticed(t: &Scene, operator: &Operator, account: &Account) -> Result<u64> {
    let said = operator.said("metrics address=");
    let address = said.first().and_then(|line| line.split("metrics address=").nth(1)?.split_whitespace().next());
    let address = address.with_context(|| format!("it does not say where its metrics are: {said:?}"))?;
    let file = t.file(&format!("{}.metrics.kubeconfig", operator.name()));
    account.write_kubeconfig(&json!({ "server": format!("http://{address}") }), &file)?;
    let metrics = t.kubectl().with_kubeconfig(file).run(&["get", "--raw", "/metrics"]).await?;
    let count = metrics.lines().find_map(|line| line.strip_prefix("podset_writes_by_other_installations_total "));
    Ok(count.context("it does not show the count")?.parse()?)
}
