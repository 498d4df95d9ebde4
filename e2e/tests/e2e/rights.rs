//! Every scenario fails if the operator sends a request that `config/rbac` does not allow. This one fails if it allows more than the operator
//! needs.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::operator::{Settings, Times};
use e2e::process::{eventually, tail};
use e2e::rights::{ELECTION, MANAGER, rules};
use e2e::scene::Scene;
use e2e::suite::Scenario;
use serde_json::json;

use crate::churn::LABEL;
use crate::rollouts;

/// Used after a conflict, by a new leader, and by an admission plug-in.
const RARELY_USED: [&str; 3] = ["get mycustomresources", "get pods", "update podsets/finalizers"];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rights_are_all_used", are_all_used).with_processes(),
        Scenario::new("rights_of_readers_of_the_metrics", of_readers_of_the_metrics).with_processes(),
    ]
}

/// The operator asks the API server who reads the metrics, and whether this user may.
async fn of_readers_of_the_metrics(t: Arc<Scene>) -> Result<()> {
    let operator = t.run(Settings { serves: true, ..t.settings() }).await?;
    let (kubectl, reader) = (t.kubectl(), format!("{}:reader", t.namespace));
    let role = "--clusterrole=podset-operator-metrics-reader";
    kubectl.run(&["create", "clusterrolebinding", &reader, role, "--serviceaccount", &reader]).await?;
    let address = || {
        let log = tail(&operator.log, usize::MAX);
        let address = log.split_once("serving metrics address=").and_then(|(_, rest)| rest.split_whitespace().next());
        ready(address.map(str::to_owned).context("no metrics are served"))
    };
    let server = format!("--server=https://{}", eventually("the metrics", Duration::from_secs(30), address).await?);
    let scrape = ["get", "--raw=/metrics", "--insecure-skip-tls-verify", &server];
    let token = async |name: &str| {
        kubectl.run(&["create", "serviceaccount", name]).await?;
        kubectl.run(&["create", "token", name]).await.map(|token| format!("--token={token}"))
    };
    let rejection = kubectl.rejected(&[&scrape[..], &[&token("stranger").await?]].concat(), "").await?;
    ensure!(rejection.contains("Forbidden"), "without the role: {rejection}");
    let metrics = kubectl.run(&[&scrape[..], &[&token("reader").await?]].concat()).await?;
    ensure!(metrics.contains("controller_runtime_reconcile_total"), "{metrics}");
    Ok(())
}

/// The life of a set, in which the operator uses its rights. The audit log shows which.
async fn are_all_used(t: Arc<Scene>) -> Result<()> {
    let operator = t.run(t.settings().elected(Times::DEFAULT)).await?;
    t.apply_sample("poc_v1_mycustomresource.yaml").await?;
    t.create_set("web", 3).await?;
    let pods = t.settles("web", 3).await?;
    t.patch_pod(&pods[0], json!({"metadata": {"labels": {LABEL: null}}})).await?;
    let restored = || t.requests()?.kinds().get("patch pods").map(drop).context("no pod was patched");
    eventually("the label to be restored", Duration::from_secs(30), || ready(restored())).await?;
    t.delete_pod(&pods[1]).await?;
    t.goes(&pods[1]).await?;
    t.settles("web", 3).await?;
    // One template after another: each is stored, the second one twice, and the oldest is deleted.
    let template = |version: &str| json!({"metadata": {"annotations": {"version": version}}});
    let spec = json!({"replicas": 1, "revisionHistoryLimit": 0, "template": template("1")});
    t.create_set_from("updated", spec).await?;
    rollouts::rolled_out(&t, "updated", 1).await?;
    for version in ["2", "1", "3", "4"] {
        t.patch_set("updated", json!({"spec": {"template": template(version)}})).await?;
        rollouts::rolled_out(&t, "updated", 1).await?;
    }
    operator.terminate(Duration::from_secs(20)).await?;

    let used = t.requests()?.kinds();
    for (kind, role) in [("clusterrole", MANAGER), ("role", ELECTION)] {
        for rule in rules(&t.cluster, kind, role).await? {
            let words = |field: &str| serde_json::from_value::<Vec<String>>(rule[field].clone());
            for resource in words("resources")? {
                let rights = words("verbs")?.into_iter().map(|verb| format!("{verb} {resource}"));
                let is_unused = |right: &String| !used.contains_key(right) && !RARELY_USED.contains(&&**right);
                let unused: Vec<_> = rights.filter(is_unused).collect();
                ensure!(unused.is_empty(), "config/rbac allows {unused:?}, and used are only {used:?}");
            }
        }
    }
    Ok(())
}
