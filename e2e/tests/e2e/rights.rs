//! What the operator may do once `config/rbac` is installed: that, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::rights::{ACCOUNT, HOME};
use e2e::scene::Scene;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

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
