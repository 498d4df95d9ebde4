//! Pods that an admission policy protects from deletion: they do not block their set.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::scene::Scene;
use serde_json::json;

use crate::{admission, wait};

/// The label that protects a pod.
const PROTECTED: &str = "example.com/protected";

pub async fn pods_do_not_block_their_set(t: Arc<Scene>) -> Result<()> {
    let _operator = t.operator().await?;
    t.create_set("web", 6).await?;
    let six = t.until("6 pods", |seen| seen.at_rest("web", 6)).await?;
    let protected = vec![six[1].clone(), six[4].clone()];
    for pod in &protected {
        let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": "-100"});
        let metadata = json!({"labels": {PROTECTED: "yes"}, "annotations": annotations});
        t.patch_pod(pod, json!({"metadata": metadata})).await?;
    }
    protect(&t, &protected[0]).await?;

    t.scale("web", 2).await?;
    let two = t.until("2 pods", |seen| seen.at_rest("web", 2)).await?;
    ensure!(two == protected, "of {six:?}, {two:?} were kept, and {protected:?} are protected");

    told_so_often(&t, 1).await?;
    t.scale("web", 1).await?;
    t.until("the rejection in the conditions", |seen| is_stuck(seen, &protected)).await?;
    let message = t.look(|seen| seen.message("web", "ReplicaFailure")).map_err(anyhow::Error::msg)?;
    ensure!(message.contains("it is protected"), "the condition says: {message}");
    ensure!(!protected.iter().any(|pod| message.contains(pod)), "the message changes with each pod's name: {message}");
    kubectl_tells_why(&t).await?;
    // It is tried again after 1, 2, 4 and 8 seconds, and nothing more is told.
    wait::until("both deletes to be tried again", Duration::from_secs(60), || async {
        let deletes = t.requests()?.of("delete pods").into_iter().filter(|delete| delete.code() >= 400).count();
        Ok(if deletes >= 8 { Ok(()) } else { Err(format!("{deletes} deletes were rejected")) })
    })
    .await?;
    told_so_often(&t, 2).await?;

    t.scale("web", 4).await?;
    let four = t.until("4 pods", |seen| seen.at_rest("web", 4)).await?;
    ensure!(protected.iter().all(|pod| four.contains(pod)), "{four:?} were kept, and {protected:?} are protected");
    t.scale("web", 1).await?;
    t.until("the rejection again", |seen| is_stuck(seen, &protected)).await?;

    for pod in &protected {
        t.patch_pod(pod, json!({"metadata": {"labels": {PROTECTED: null}}})).await?;
    }
    t.within(Duration::from_secs(10), "1 pod by itself, at once", |seen| seen.at_rest("web", 1)).await?;
    admission::end(&t, "Validating").await
}

/// Lets the policy come into force, as the administrator sees it.
async fn protect(t: &Scene, pod: &str) -> Result<()> {
    let expression = format!("!('{PROTECTED}' in oldObject.metadata.labels)");
    let rule = json!({"validations": [{"expression": expression, "message": "it is protected"}]});
    admission::apply(t, "Validating", rule, "DELETE").await?;
    wait::until("the policy to come into force", Duration::from_secs(60), || async {
        let deleted = t.kubectl().run(&["delete", "pod", pod, "--dry-run=server"]).await;
        Ok(if deleted.is_err() { Ok(()) } else { Err("it is not".to_owned()) })
    })
    .await
}

/// The set wants one pod and has these, which are ready and cannot be deleted.
fn is_stuck(seen: &e2e::observe::view::View, protected: &[String]) -> e2e::observe::view::Seen {
    let live = seen.has_live("web", protected.len())?;
    if live != protected {
        return Err(format!("{live:?} are left"));
    }
    let expected =
        [("Ready", "True/AllPodsReady"), ("Reconciling", "True/Retrying"), ("ReplicaFailure", "True/FailedDelete")];
    seen.conditions("web", &expected)
}

/// Each time that pods turn out to be protected, one event tells it.
async fn told_so_often(t: &Scene, times: usize) -> Result<()> {
    t.until("the event that pods cannot be deleted", |seen| {
        let told = seen.events_about("web");
        let failures = told.iter().filter(|event| event.starts_with("FailedDelete")).count();
        if failures == times {
            Ok(())
        } else {
            Err(format!("{failures} events FailedDelete instead of {times}: {told:?}"))
        }
    })
    .await
}

/// Whoever looks at the set alone finds the reason.
async fn kubectl_tells_why(t: &Scene) -> Result<()> {
    let wide = t.kubectl().run(&["get", "podset", "--output=wide"]).await?;
    let row = wide.lines().nth(1).unwrap_or_default();
    ensure!(row.contains("pods cannot be deleted") && row.contains("it is protected"), "kubectl get shows\n{wide}");
    let described = t.kubectl().run(&["describe", "podset", "web"]).await?;
    let (conditions, events) = described.split_once("\nEvents:").unwrap_or_default();
    let tells = |text: &str| text.contains("FailedDelete") && text.contains("it is protected");
    ensure!(tells(conditions) && tells(events), "kubectl describe shows\n{described}");
    Ok(())
}
