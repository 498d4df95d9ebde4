//! The rights of `config/rbac`, bound in a scenario's namespace as for an operator with `--watch-namespace`.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep, timeout};

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::root;

/// Name of the Lease. Each scenario has one in its namespace.
pub const LEASE: &str = "podset-operator";

/// The namespace of `config/rbac`.
pub const HOME: &str = "podset-operator-system";

/// The ServiceAccount there.
pub const ACCOUNT: &str = "podset-operator";

const MANAGER: &str = "podset-operator-manager-role";
const ELECTION: &str = "podset-operator-leader-election-role";
const REVIEWS: &str = "podset-operator-metrics-auth-role";

/// Installs them as a user does.
pub async fn install(kubectl: &Kubectl) -> Result<()> {
    let folder = root().join("config/rbac");
    kubectl.run(&["apply", "-k", &folder.to_string_lossy()]).await.map(drop)
}

/// Lets every ServiceAccount of a namespace run an operator for it: its objects, a Lease in it, and the reviews.
pub async fn grant(cluster: &Cluster, namespace: &str) -> Result<()> {
    let client = cluster.client();
    let installed: Api<Role> = Api::namespaced(client.clone(), HOME);
    let election = installed.get(ELECTION).await.context("reading the Role of the leader election")?;
    let role: Role = serde_json::from_value(json!({"metadata": {"name": ELECTION}, "rules": election.rules}))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &role).await?;
    bind(client, namespace, "Role", ELECTION, namespace).await?;
    let binding: ClusterRoleBinding =
        serde_json::from_value(binding(&format!("{namespace}-reviews"), "ClusterRole", REVIEWS, namespace))?;
    Api::all(client.clone()).create(&PostParams::default(), &binding).await?;
    let lease = json!({"namespace": namespace, "verb": "list", "group": "coordination.k8s.io", "resource": "leases", "name": LEASE});
    come_into_force(client, namespace, lease).await?;
    let review = json!({"verb": "create", "group": "authorization.k8s.io", "resource": "subjectaccessreviews"});
    come_into_force(client, namespace, review).await?;
    grant_also(client, namespace, namespace).await
}

/// The right to create pods in the namespace stands for all rights that are granted with it.
fn pods_in(namespace: &str) -> Value {
    json!({"namespace": namespace, "verb": "create", "resource": "pods"})
}

/// Lets every ServiceAccount of the namespace `of` work on the objects of the namespace `at`.
pub async fn grant_also(client: &Client, of: &str, at: &str) -> Result<()> {
    bind(client, at, "ClusterRole", MANAGER, of).await?;
    come_into_force(client, of, pods_in(at)).await
}

/// The API server authorizes from a cache, so an operator that starts at once would be rejected.
async fn come_into_force(client: &Client, of: &str, right: Value) -> Result<()> {
    timeout(Duration::from_secs(30), is_known(client, of, right)).await.context("its rights do not come into force")?
}

/// The same without the rights to this resource.
pub async fn grant_but(client: &Client, of: &str, at: &str, resource: &str) -> Result<()> {
    let installed: Api<ClusterRole> = Api::all(client.clone());
    let mut rules =
        installed.get(MANAGER).await.context("reading the ClusterRole of the manager")?.rules.unwrap_or_default();
    let all = rules.len();
    rules.retain(|rule| rule.resources.iter().flatten().all(|named| named != resource));
    ensure!(rules.len() == all - 1, "config/rbac has no rule of its own for {resource}");
    let name = format!("{MANAGER}-cut");
    let role: Role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules}))?;
    Api::namespaced(client.clone(), at).create(&PostParams::default(), &role).await?;
    bind(client, at, "Role", &name, of).await?;
    come_into_force(client, of, pods_in(at)).await
}

async fn bind(client: &Client, at: &str, kind: &str, role: &str, of: &str) -> Result<()> {
    let binding: RoleBinding = serde_json::from_value(binding(&format!("{role}-of-{of}"), kind, role, of))?;
    Api::namespaced(client.clone(), at).create(&PostParams::default(), &binding).await?;
    Ok(())
}

/// For all accounts of the namespace, because each operator has its own.
fn binding(name: &str, kind: &str, role: &str, of: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group(of)}]
    })
}

fn group(namespace: &str) -> String {
    format!("system:serviceaccounts:{namespace}")
}

async fn is_known(client: &Client, of: &str, right: Value) -> Result<()> {
    let question: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{of}:any"), "groups": [group(of)],
        "resourceAttributes": right
    }}))?;
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    loop {
        let answer = reviews.create(&PostParams::default(), &question).await?;
        if answer.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
    }
}
