//! The rights of `config/rbac`, bound in a scenario's namespace as for an operator with `--watch-namespace`.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::process::eventually;

/// Name of the Lease. Each scenario has one in its namespace.
pub const LEASE: &str = "podset-operator";

/// The namespace of `config/rbac`.
pub const HOME: &str = "podset-operator-system";

/// The ServiceAccount there.
pub const ACCOUNT: &str = "podset-operator";

/// The ClusterRole for the objects of the watched namespaces.
pub const MANAGER: &str = "podset-operator-manager-role";

/// The Role for the Lease.
pub const ELECTION: &str = "podset-operator-leader-election-role";

const REVIEWS: &str = "podset-operator-metrics-auth-role";

/// Lets every ServiceAccount of a namespace run an operator for it: its objects, a Lease in it, and the reviews. Each operator has its own
/// account.
pub async fn grant(cluster: &Cluster, namespace: &str) -> Result<()> {
    let kubectl = Kubectl::new(cluster, namespace);
    let rules = rules(cluster, "role", ELECTION).await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": ELECTION}, "rules": rules
    });
    kubectl.run_with(&["create", "-f", "-"], &role.to_string()).await?;
    let (group, reviews) = (group(namespace), format!("{namespace}-reviews"));
    kubectl.run(&["create", "rolebinding", ELECTION, "--role", ELECTION, "--group", &group]).await?;
    kubectl.run(&["create", "clusterrolebinding", &reviews, "--clusterrole", REVIEWS, "--group", &group]).await?;
    is_in_force(cluster, namespace, &["list", &format!("leases.coordination.k8s.io/{LEASE}"), "-n", namespace]).await?;
    is_in_force(cluster, namespace, &["create", "subjectaccessreviews.authorization.k8s.io"]).await?;
    grant_also(cluster, namespace, namespace).await
}

/// Lets every ServiceAccount of the namespace `of` work on the objects of the namespace `at`.
pub async fn grant_also(cluster: &Cluster, of: &str, at: &str) -> Result<()> {
    let kubectl = Kubectl::new(cluster, at);
    kubectl.run(&["create", "rolebinding", of, "--clusterrole", MANAGER, "--group", &group(of)]).await?;
    is_in_force(cluster, of, &["create", "pods", "-n", at]).await
}

/// The rules of a role of `config/rbac`.
pub async fn rules(cluster: &Cluster, kind: &str, name: &str) -> Result<Vec<Value>> {
    let role = Kubectl::new(cluster, HOME).run(&["get", kind, name, "--output=json"]).await?;
    let role: Value = serde_json::from_str(&role)?;
    role["rules"].as_array().cloned().with_context(|| format!("{name} has no rules"))
}

/// All ServiceAccounts of a namespace.
fn group(namespace: &str) -> String {
    format!("system:serviceaccounts:{namespace}")
}

/// The API server authorizes from a cache, so an operator that starts at once would be rejected.
async fn is_in_force(cluster: &Cluster, of: &str, right: &[&str]) -> Result<()> {
    let user = [format!("--as=system:serviceaccount:{of}:any"), format!("--as-group={}", group(of))];
    let question = [&["auth", "can-i"], right, &[&user[0], &user[1]]].concat();
    let kubectl = Kubectl::new(cluster, "");
    eventually("the rights to come into force", Duration::from_secs(30), || kubectl.run(&question)).await.map(drop)
}
