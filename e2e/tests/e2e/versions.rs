//! An upgrade of the CRD: v1beta1, with the same schema, becomes the storage version. The operator knows only v1alpha1.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::cluster::Wanted;
use e2e::install::SETS;
use e2e::process::eventually;
use e2e::scene::{PATIENCE, Scene};
use e2e::suite::Scenario;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const NEXT: &str = "podsets.v1beta1.app.example.com";

pub fn scenarios() -> Vec<Scenario> {
    // The CRD is cluster-scoped.
    vec![Scenario::new("versions_of_the_crd", versions).in_own_cluster(Wanted::default())]
}

async fn versions(t: Arc<Scene>) -> Result<()> {
    let (kubectl, crds) = (t.kubectl(), Api::<CustomResourceDefinition>::all(t.cluster.client.clone()));
    t.operator().await?;
    let pod = json!({"containers": [{"name": "main", "image": "example.com/x", "ports": [{"containerPort": 80}]}]});
    t.create_set_from("web", json!({"replicas": 3, "template": {"spec": pod}})).await?;
    t.settles("web", 3).await?;
    let (before, three) = (shown(&t, "podsets").await?, pods(&t));

    let mut crd = crds.get(SETS).await?;
    let mut next = crd.spec.versions[0].clone();
    crd.spec.versions[0].storage = false;
    next.name = "v1beta1".to_owned();
    crd.spec.versions.push(next);
    crds.replace(SETS, &Default::default(), &crd).await?;
    eventually("v1beta1 to be served", PATIENCE, || kubectl.run(&["get", NEXT])).await?;
    for version in ["podsets.v1alpha1.app.example.com", NEXT] {
        let now = shown(&t, version).await?;
        ensure!(now == before, "{before} is different in {version}: {now}");
    }
    let stored = t.sets().get("web").await?.resource_version();
    let rewrite =
        async || kubectl.run_with(&["replace", "-f", "-"], &kubectl.run(&["get", NEXT, "-o=json"]).await?).await;
    eventually("the set to be rewritten", PATIENCE, rewrite).await?;
    ensure!(t.sets().get("web").await?.resource_version() != stored, "the set is stored as before");
    t.scale("web", 5).await?;
    t.settles("web", 5).await?;
    let five = pods(&t);
    ensure!(three.is_subset(&five), "pods were replaced");
    kubectl.run(&["scale", &format!("{NEXT}/web"), "--replicas=4"]).await?;
    t.settles("web", 4).await?;
    ensure!(pods(&t).is_subset(&five), "pods were replaced");
    let stored = crds.get(SETS).await?.status.and_then(|status| status.stored_versions);
    ensure!(stored == Some(vec!["v1alpha1".to_owned(), "v1beta1".to_owned()]), "the versions {stored:?} are stored");
    let migrated = r#"--patch={"status":{"storedVersions":["v1beta1"]}}"#;
    kubectl.run(&["patch", "crd", SETS, "--subresource=status", "--type=merge", migrated]).await?;
    t.scale("web", 3).await?;
    t.settles("web", 3).await?;
    // The pods name an owner of v1alpha1.
    kubectl.run(&["delete", NEXT, "--all"]).await?;
    t.until("no pods", |seen| if seen.pods.all().count() == 0 { Ok(()) } else { Err("pods are left".to_owned()) }).await
}

/// UID, generation, spec and status.
async fn shown(t: &Scene, resource: &str) -> Result<Value> {
    let set: Value = serde_json::from_str(&t.kubectl().run(&["get", resource, "web", "--output=json"]).await?)?;
    Ok(json!([set["metadata"]["uid"], set["metadata"]["generation"], set["spec"], set["status"]]))
}

/// The UIDs of the pods.
fn pods(t: &Scene) -> BTreeSet<Option<String>> {
    t.look(|seen| seen.pods.all().map(|pod| pod.uid()).collect())
}
