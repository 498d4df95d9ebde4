//! The rights of `config/rbac`, bound in a scenario's namespace as for an operator with `--watch-namespace`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;

/// Name of the Lease. Each scenario has one in its namespace.
pub const LEASE: &str = "podset-operator";

/// The namespace of `config/rbac`.
pub const HOME: &str = "podset-operator-system";

/// The ServiceAccount there.
pub const ACCOUNT: &str = "podset-operator";

const MANAGER: &str = "podset-operator-manager-role";
const ELECTION: &str = "podset-operator-leader-election-role";
const REVIEWS: &str = "podset-operator-metrics-auth-role";

/// Lets every ServiceAccount of a namespace run an operator for it: its objects, a Lease in it, and the reviews.
pub async fn grant(cluster: &Cluster, namespace: &str) -> Result<()> {
    let rules = rules(cluster, "role", ELECTION).await?;
    let role = object("Role", namespace, ELECTION, json!({"rules": rules}));
    let of_lease = binding("RoleBinding", namespace, "Role", ELECTION, namespace);
    let mut of_reviews = binding("ClusterRoleBinding", "", "ClusterRole", REVIEWS, namespace);
    of_reviews["metadata"]["name"] = format!("{namespace}-reviews").into();
    apply(cluster, vec![role, of_lease, of_reviews]).await?;
    is_in_force(cluster, namespace, &["list", &format!("leases.coordination.k8s.io/{LEASE}"), "-n", namespace]).await?;
    is_in_force(cluster, namespace, &["create", "subjectaccessreviews.authorization.k8s.io"]).await?;
    grant_also(cluster, namespace, namespace).await
}

/// Lets every ServiceAccount of the namespace `of` work on the objects of the namespace `at`.
pub async fn grant_also(cluster: &Cluster, of: &str, at: &str) -> Result<()> {
    apply(cluster, vec![binding("RoleBinding", at, "ClusterRole", MANAGER, of)]).await?;
    is_in_force(cluster, of, &["create", "pods", "-n", at]).await
}

/// The same without the rights to this resource.
pub async fn grant_but(cluster: &Cluster, of: &str, at: &str, resource: &str) -> Result<()> {
    let mut rules = rules(cluster, "clusterrole", MANAGER).await?;
    let all = rules.len();
    rules.retain(|rule| rule["resources"] != json!([resource]));
    ensure!(rules.len() == all - 1, "config/rbac has no rule of its own for {resource}");
    let role = object("Role", at, MANAGER, json!({"rules": rules}));
    apply(cluster, vec![role, binding("RoleBinding", at, "Role", MANAGER, of)]).await?;
    is_in_force(cluster, of, &["create", "pods", "-n", at]).await
}

async fn rules(cluster: &Cluster, kind: &str, name: &str) -> Result<Vec<Value>> {
    let role = Kubectl::new(cluster, HOME).run(&["get", kind, name, "--output=json"]).await?;
    let role: Value = serde_json::from_str(&role)?;
    role["rules"].as_array().cloned().with_context(|| format!("{name} has no rules"))
}

async fn apply(cluster: &Cluster, items: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    Kubectl::new(cluster, "").run_with(&["apply", "-f", "-"], &list.to_string()).await.map(drop)
}

fn object(kind: &str, namespace: &str, name: &str, fields: Value) -> Value {
    let mut object = fields;
    object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": name});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// For all accounts of the namespace `of`, because each operator has its own.
fn binding(kind: &str, at: &str, role_kind: &str, role: &str, of: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let reference = json!({"apiGroup": group, "kind": role_kind, "name": role});
    let subject = json!({"apiGroup": group, "kind": "Group", "name": format!("system:serviceaccounts:{of}")});
    object(
        kind,
        at,
        &format!("{role_kind}-{role}-of-{of}").to_lowercase(),
        json!({"roleRef": reference, "subjects": [subject]}),
    )
}

/// The API server authorizes from a cache, so an operator that starts at once would be rejected.
async fn is_in_force(cluster: &Cluster, of: &str, right: &[&str]) -> Result<()> {
    let user = [format!("--as=system:serviceaccount:{of}:any"), format!("--as-group=system:serviceaccounts:{of}")];
    let question = [&["auth", "can-i"], right, &[&user[0], &user[1]]].concat();
    let kubectl = Kubectl::new(cluster, "");
    let granted = async {
        while kubectl.run(&question).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), granted).await.context("the rights do not come into force")
}
