//! The sample, as its README promises it: 3 pods, 5, 1, a killed one replaced, all collected in the end.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::operator::Operator;
use e2e::scene::Scene;
use e2e::types::uid;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

const SET: &str = "podset-sample";

pub async fn scales_and_heals(t: Arc<Scene>) -> Result<()> {
    let _operator: Operator = t.operator().await?;
    t.apply_sample("app_v1alpha1_podset.yaml").await?;
    let three = t.until("the sample's 3 pods", |seen| seen.at_rest(SET, 3)).await?;
    for name in &three {
        is_a_pod_of_the_set(&t.stored_pod(name).await?)?;
    }
    let labels = json!({"app": SET, "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator"});
    let stranger = t.create_pod(t.namespace(), "stranger", labels).await?;

    t.scale(SET, 5).await?;
    let five = t.until("5 pods after scaling up", |seen| seen.at_rest(SET, 5)).await?;
    ensure!(three.iter().all(|pod| five.contains(pod)), "scaling {three:?} up made {five:?}: pods were replaced");

    t.scale(SET, 1).await?;
    let one = t.until("1 pod after scaling down", |seen| seen.at_rest(SET, 1)).await?;
    ensure!(five.contains(&one[0]), "scaling {five:?} down left {one:?}: a pod was replaced");

    let victim = t.stored_pod(&one[0]).await?.uid();
    t.delete_pod(&one[0]).await?;
    let successor = t.until("a new pod in place of the deleted one", |seen| {
        let names = seen.at_rest(SET, 1)?;
        let pod = seen.pod(&names[0])?;
        if pod.uid() == victim { Err(format!("{names:?}, the old one")) } else { Ok(names) }
    });
    successor.await?;

    t.until("the events of 3, 5 and 1 pods", |seen| {
        let told = seen.events_about(SET);
        let reasons: Vec<_> = told.iter().filter_map(|event| event.split(':').next()).take(3).collect();
        if reasons == ["ScaledUp", "ScaledUp", "ScaledDown"] { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await?;

    let owner = t.look(|seen| seen.set(SET).map(|set| uid(&set.metadata))).map_err(anyhow::Error::msg)?;
    t.delete_set(SET).await?;
    t.until("the garbage collector to delete the set's pods", |seen| {
        let left: Vec<_> = seen.pods.owned_by(&owner).map(|pod| pod.name_any()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are still there")) }
    })
    .await?;
    let left = t.stored_pod("stranger").await?;
    ensure!(left.uid().as_ref() == Some(&stranger), "the stranger's pod was replaced");
    ensure!(left.metadata.deletion_timestamp.is_none(), "the stranger's pod is being deleted");
    ensure!(left.owner_references().is_empty(), "the stranger's pod was adopted: {:?}", left.owner_references());
    Ok(())
}

/// Name, labels, owner and the default container, as the specification has them.
fn is_a_pod_of_the_set(pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    let suffix = name.strip_prefix("podset-sample-pod").unwrap_or_default();
    let alphabet = "bcdfghjklmnpqrstvwxz2456789";
    ensure!(suffix.len() == 5 && suffix.chars().all(|c| alphabet.contains(c)), "a pod is called {name}");
    ensure!(pod.metadata.generate_name.as_deref() == Some("podset-sample-pod"), "{name} has another generateName");
    let labels = json!({"app": SET, "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator"});
    ensure!(json!(pod.labels()) == labels, "{name} has the labels {:?}", pod.labels());
    let owner = json!(pod.owner_references());
    let expected = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": SET, "controller": true,
        "blockOwnerDeletion": true, "uid": owner[0]["uid"]});
    ensure!(owner == json!([expected]), "{name} has the owners {owner}");
    ensure!(pod.finalizers().is_empty(), "{name} has a finalizer");
    let spec = json!(pod.spec);
    let container = &spec["containers"][0];
    ensure!(
        container["name"] == "fancy-alpine" && container["image"] == "quay.io/amacdona/strauss",
        "{name} runs {container}"
    );
    ensure!(container["command"] == json!(["sleep", "3600"]), "{name} runs {container}");
    Ok(())
}
