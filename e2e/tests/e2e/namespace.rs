//! A namespace is deleted while a set in it is scaled up.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::audit::Requests;
use e2e::cluster::needs::Need::*;
use e2e::kubectl::Kubectl;
use e2e::scene::Scene;
use e2e::suite::Scenario;

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("namespace_deleted_during_a_scale_up", deleted_during_a_scale_up).needs(&[Processes])]
}

async fn deleted_during_a_scale_up(t: Arc<Scene>) -> Result<()> {
    let doomed = t.other_namespace("doomed").await?;
    let mut operator = t.operator_for(&[&doomed]).await?;
    let kubectl = Kubectl::new(t.cluster(), &doomed);
    let sample = std::fs::read_to_string(e2e::root().join("config/samples/app_v1alpha1_podset.yaml"))?;
    kubectl.run_with(&["apply", "-f", "-"], &sample.replace("replicas: 3", "replicas: 10")).await?;
    kubectl.run(&["wait", "--timeout=90s", "pods", "--selector=app=podset-sample", "--for=create"]).await?;
    kubectl.run(&["delete", "namespace", &doomed, "--timeout=90s"]).await?;
    operator.is_running()?;

    let requests = Requests::read(t.cluster().audit_log(), &doomed)?;
    let rejected = requests.of("create pods").into_iter().filter(|create| create.code() >= 400).count();
    // A few retries follow, because the API server may not know yet that a namespace was created again.
    ensure!(rejected <= 15, "{rejected} creates were sent to a namespace that is being deleted");
    let events = requests.of("create events").len();
    ensure!(events <= 2, "{events} events were sent to a namespace that is being deleted");
    let log = std::fs::read_to_string(operator.log())?;
    let complaints = log.lines().filter(|line| line.contains(" ERROR ") || line.contains(" WARN "));
    // The rights end with the namespace.
    let complaints: Vec<_> = complaints.filter(|line| !line.contains("is forbidden: User")).collect();
    ensure!(complaints.is_empty(), "the operator logs {complaints:#?}");
    Ok(())
}
