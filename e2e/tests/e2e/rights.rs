//! What the operator may do once `config/rbac` is installed: that, and nothing else; and it needs all of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::account::Account;
use e2e::audit::Requests;
use e2e::kubectl::Kubectl;
use e2e::operator::{Election, Operator};
use e2e::proxy::{Fault, Proxy};
use e2e::rights::{ACCOUNT, HOME};
use e2e::scene::Scene;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// In every namespace.
const EVERYWHERE: [&str; 18] = [
    "pods get",
    "pods list",
    "pods watch",
    "pods create",
    "pods delete",
    "pods patch",
    "podsets.app.example.com get",
    "podsets.app.example.com list",
    "podsets.app.example.com watch",
    "podsets/status.app.example.com patch",
    "podsets/finalizers.app.example.com update",
    "mycustomresources.poc.test.domain get",
    "mycustomresources.poc.test.domain list",
    "mycustomresources.poc.test.domain watch",
    "mycustomresources/status.poc.test.domain patch",
    "events.events.k8s.io create",
    "tokenreviews.authentication.k8s.io create",
    "subjectaccessreviews.authorization.k8s.io create",
];

/// Where its Lease is.
const AT_HOME: [&str; 5] = [
    "leases.coordination.k8s.io create",
    "leases.coordination.k8s.io/podset-operator get",
    "leases.coordination.k8s.io/podset-operator list",
    "leases.coordination.k8s.io/podset-operator watch",
    "leases.coordination.k8s.io/podset-operator patch",
];

pub async fn are_those_of_the_folder(t: Arc<Scene>) -> Result<()> {
    let everywhere = BTreeSet::from(EVERYWHERE.map(str::to_owned));
    let is = rights(&t, t.namespace()).await?;
    ensure!(is == everywhere, "in any namespace it may\n{is:#?}\nand not\n{everywhere:#?}");
    let at_home: BTreeSet<_> = everywhere.into_iter().chain(AT_HOME.map(str::to_owned)).collect();
    let is = rights(&t, HOME).await?;
    ensure!(is == at_home, "in its own namespace it may\n{is:#?}\nand not\n{at_home:#?}");
    Ok(())
}

/// An editor of a namespace may write PodSets there, and no MyCustomResources: those tell of pods in all namespaces.
pub async fn of_an_editor(t: Arc<Scene>) -> Result<()> {
    let kubectl = t.kubectl();
    kubectl.run(&["create", "rolebinding", "editors", "--clusterrole=edit", "--user=editor"]).await?;
    let set = r#"{"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "x"}, "spec": {}}"#;
    let seeker = r#"{"apiVersion": "poc.test.domain/v1", "kind": "MyCustomResource", "metadata": {"name": "x"}, "spec": {"name": "y"}}"#;
    let create = ["create", "--dry-run=server", "--as=editor", "-f", "-"];
    comes_to_be_allowed(&kubectl, &create, set).await?;
    let refusal = kubectl.refused(&create, seeker).await?;
    ensure!(refusal.contains("cannot create resource"), "an editor is refused a MyCustomResource by {refusal}");
    let role = "podset-operator-mycustomresource-editor-role";
    kubectl.run(&["create", "rolebinding", "seekers", &format!("--clusterrole={role}"), "--user=editor"]).await?;
    comes_to_be_allowed(&kubectl, &create, seeker).await
}

/// The API server answers about rights from a cache.
async fn comes_to_be_allowed(kubectl: &Kubectl, arguments: &[&str], manifest: &str) -> Result<()> {
    let allowed = async {
        while kubectl.run_with(arguments, manifest).await.is_err() {
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(Duration::from_secs(60), allowed).await.with_context(|| format!("{manifest} is not allowed"))
}

/// Two leaders, and a life of a set and of a friend in which every right is needed: the audit log tells which were used.
pub async fn are_all_used(t: Arc<Scene>) -> Result<()> {
    let proxy = t.proxy(1).await?;
    let settings = t.settings().elected(Election::DEFAULT).serving();
    let first = t.run(settings.clone().behind(&proxy)).await?;
    t.create_set("web", 3).await?;
    let pods = t.until("3 pods", |seen| seen.at_rest("web", 3)).await?;
    t.patch_pod(&pods[0], json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})).await?;
    t.until("the label to come back", |seen| {
        let labels = seen.pod(&pods[0])?.labels();
        if labels.contains_key("app.kubernetes.io/managed-by") { Ok(()) } else { Err(format!("{labels:?}")) }
    })
    .await?;
    a_friends_status_is_outdated(&t, &proxy).await?;
    somebody_asks_for_the_metrics(&t, &first).await?;
    t.scale("web", 2).await?;
    let two = t.until("2 pods", |seen| seen.at_rest("web", 2)).await?;
    let gone = pods.iter().find(|pod| !two.contains(pod)).context("of 3 pods 2 are left, and none is gone")?;
    t.until("the third one to go", |seen| seen.pod(gone).map_or(Ok(()), |_| Err(format!("{gone} is there")))).await?;
    first.terminate(Duration::from_secs(20)).await?;
    // A stranger has taken the name that the next leader wants first: it asks who that is, and whether the set is still there.
    t.create_pod(t.namespace(), gone, json!({})).await?;
    let second = t.run(settings).await?;
    t.scale("web", 3).await?;
    t.until("3 pods beside the stranger", |seen| seen.at_rest("web", 3)).await?;
    second.terminate(Duration::from_secs(20)).await?;

    let users = format!("system:serviceaccount:{}:operator-", t.namespace());
    let mut requests = Requests::read(t.cluster().audit_log()?, "")?;
    requests.0.retain(|request| request.user().starts_with(&users));
    let forbidden = requests.forbidden();
    ensure!(forbidden.is_empty(), "config/rbac does not allow {} requests: {forbidden:#?}", forbidden.len());
    let used: BTreeSet<_> =
        requests.0.iter().filter(|request| request.code() < 300).map(|request| request.kind()).collect();
    let unused: Vec<_> = in_roles(&t).await?.into_iter().filter(|right| !used.contains(right)).collect();
    // The admission plug-in asks for it by itself, which no audit log shows: the next scenario proves that it is needed.
    ensure!(
        unused == ["update podsets/finalizers"],
        "config/rbac allows what nobody needs: {unused:?}; used are {used:?}"
    );
    Ok(())
}

/// The friend comes and goes while its seeker is changed all the time: what the operator's late watch tells is old, and it
/// has to read why its status was not taken.
async fn a_friends_status_is_outdated(t: &Scene, proxy: &Proxy) -> Result<()> {
    t.apply_sample("poc_v1_mycustomresource.yaml").await?;
    proxy.torment(Fault::WatchesLate);
    let seeker = |note: usize| json!({"metadata": {"annotations": {"example.com/note": note.to_string()}}});
    for note in 0..600 {
        let patch = Patch::Merge(seeker(note));
        t.seekers().patch("my-custom-resource-01", &PatchParams::default(), &patch).await?;
        match note % 20 {
            0 => drop(t.create_pod(t.namespace(), "funny-joe", json!({})).await?),
            10 => drop(t.pods().delete("funny-joe", &DeleteParams::default().grace_period(0)).await?),
            5 | 15 if !t.requests()?.of("get mycustomresources").is_empty() => break,
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
    proxy.relent();
    let gone = t.pods().delete("funny-joe", &DeleteParams::default().grace_period(0)).await;
    t.tell(&format!("the friend is gone for good: {}", gone.is_ok()));
    Ok(())
}

/// Without the right to: the operator asks the API server who it is, and whether it may.
async fn somebody_asks_for_the_metrics(t: &Scene, operator: &Operator) -> Result<()> {
    let said = operator.said("metrics address=");
    let address = said.first().and_then(|line| line.split("metrics address=").nth(1)?.split_whitespace().next());
    let address = address.with_context(|| format!("it does not say where its metrics are: {said:?}"))?;
    let file = t.file("prometheus.kubeconfig");
    let cluster = json!({"server": format!("https://{address}"), "insecure-skip-tls-verify": true});
    Account::create(&t.client(), t.namespace(), "prometheus").await?.write_kubeconfig(&cluster, &file)?;
    let refusal = t.kubectl().with_kubeconfig(file).refused(&["get", "--raw", "/metrics"], "").await?;
    ensure!(refusal.contains("prometheus"), "whoever may not see the metrics is told: {refusal}");
    Ok(())
}

/// What the folder's roles allow the operator, as `VERB RESOURCE`.
async fn in_roles(t: &Scene) -> Result<BTreeSet<String>> {
    let cluster_roles: Api<ClusterRole> = Api::all(t.client());
    let roles: Api<Role> = Api::namespaced(t.client(), HOME);
    let mut rules = Vec::new();
    for name in ["podset-operator-manager-role", "podset-operator-metrics-auth-role"] {
        rules.extend(cluster_roles.get(name).await?.rules.unwrap_or_default());
    }
    rules.extend(roles.get("podset-operator-leader-election-role").await?.rules.unwrap_or_default());
    let each = |rule: &PolicyRule| {
        let resources = rule.resources.clone().unwrap_or_default();
        let verbs = rule.verbs.clone();
        resources
            .into_iter()
            .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| format!("{verb} {resource}")))
    };
    Ok(rules.iter().flat_map(each).collect())
}

/// Where the admission plug-in OwnerReferencesPermissionEnforcement is on, as on OpenShift, no pod is made without it.
pub async fn to_finalizers_are_needed(t: Arc<Scene>) -> Result<()> {
    let without = t.namespace_without("without", "podsets/finalizers").await?;
    let _operator = t.operator_for(&[&without]).await?;
    let kubectl = Kubectl::new(t.cluster(), &without);
    let set = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": "web"}, "spec": {"replicas": 2}});
    kubectl.run_with(&["apply", "-f", "-"], &set.to_string()).await?;
    kubectl.run(&["wait", "podset/web", "--for=condition=ReplicaFailure", "--timeout=90s"]).await?;
    let path = "--output=jsonpath={.status.conditions[?(@.type=='ReplicaFailure')].message}";
    let message = kubectl.run(&["get", "podset/web", path]).await?;
    ensure!(message.contains("cannot set blockOwnerDeletion"), "without the right, the condition says: {message}");
    e2e::rights::grant_also(&t.client(), t.namespace(), &without).await?;
    kubectl.run(&["wait", "podset/web", "--for=condition=Ready", "--timeout=90s"]).await.map(drop)
}

/// What the operator's ServiceAccount may do in a namespace, beyond what every account may.
async fn rights(t: &Scene, namespace: &str) -> Result<BTreeSet<String>> {
    let ours = rules(t, HOME, ACCOUNT, namespace).await?;
    let everybodys = rules(t, "kube-public", "default", namespace).await?;
    Ok(ours.difference(&everybodys).cloned().collect())
}

async fn rules(t: &Scene, of: &str, account: &str, namespace: &str) -> Result<BTreeSet<String>> {
    let review =
        r#"{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "NS"}}"#
            .replace("NS", namespace);
    let user = format!("--as=system:serviceaccount:{of}:{account}");
    let arguments = ["create", "--validate=false", "--output=json", &user, "-f", "-"];
    let answer: Value = serde_json::from_str(&t.kubectl().run_with(&arguments, &review).await?)?;
    ensure!(answer["status"]["incomplete"] == false, "the API server does not know all rules: {answer}");
    let mut rules = serde_json::from_value::<Vec<PolicyRule>>(answer["status"]["resourceRules"].clone())?;
    let others = serde_json::from_value::<Vec<PolicyRule>>(answer["status"]["nonResourceRules"].clone())?;
    rules.extend(others);
    Ok(rules.iter().flat_map(in_words).collect())
}

/// A rule as one line for each resource and verb: `RESOURCE[.GROUP][/NAME] VERB`.
fn in_words(rule: &PolicyRule) -> Vec<String> {
    let or_none = |list: &Option<Vec<String>>| list.clone().filter(|l| !l.is_empty()).unwrap_or(vec![String::new()]);
    let mut words = Vec::new();
    for group in or_none(&rule.api_groups) {
        let group = if group.is_empty() { group } else { format!(".{group}") };
        let resources = [rule.resources.clone(), rule.non_resource_urls.clone()].into_iter().flatten().flatten();
        for resource in resources {
            for name in or_none(&rule.resource_names) {
                let name = if name.is_empty() { name } else { format!("/{name}") };
                words.extend(rule.verbs.iter().map(|verb| format!("{resource}{group}{name} {verb}")));
            }
        }
    }
    words
}
