//! A namespace that is deleted with a set in it: there is nothing to be done, and nothing to be said.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::audit::Requests;
use e2e::kubectl::Kubectl;
use e2e::root;
use e2e::scene::Scene;

pub async fn deleted_under_a_set(t: Arc<Scene>) -> Result<()> {
    is_deleted(&t, 3, &["podset/podset-sample", "--for=condition=Ready"]).await
}

/// Its set is to have ten pods, and the first of them is there.
pub async fn deleted_in_the_middle_of_a_scale_up(t: Arc<Scene>) -> Result<()> {
    is_deleted(&t, 10, &["pods", "--selector=app=podset-sample", "--for=create"]).await
}

/// A set of so many pods, and when what is waited for holds, its namespace goes.
async fn is_deleted(t: &Scene, replicas: usize, wait_for: &[&str]) -> Result<()> {
    let doomed = t.other_namespace("doomed").await?;
    let mut operator = t.operator_for(&[&doomed]).await?;
    let kubectl = Kubectl::new(t.cluster(), &doomed);
    let sample = std::fs::read_to_string(root().join("config/samples/app_v1alpha1_podset.yaml"))?;
    let sample = sample.replace("replicas: 3", &format!("replicas: {replicas}"));
    kubectl.run_with(&["apply", "-f", "-"], &sample).await?;
    kubectl.run(&[&["wait", "--timeout=90s"], wait_for].concat()).await?;

    // kubectl waits until it is gone.
    kubectl.run(&["delete", "namespace", &doomed, "--timeout=90s"]).await?;
    operator.is_running()?;
    let requests = Requests::read(t.cluster().audit_log()?, &doomed)?;
    let refused = requests.of("create pods").into_iter().filter(|create| create.code() >= 400).count();
    // A few tries follow at short intervals: the API server may be behind with a namespace that was made anew.
    ensure!(refused <= replicas + 5, "{refused} creates were sent into a namespace that is being deleted");
    let events = requests.of("create events").len();
    ensure!(events <= 2, "{events} events were told of a namespace that is being deleted");
    let log = std::fs::read_to_string(operator.log())?;
    // The rights of one namespace do not include a look for other installations. And they go with the namespace.
    let is_complaint = |line: &&str| line.contains(" ERROR ") || line.contains(" WARN ");
    let lacks_rights = |line: &&str| line.contains("is forbidden: User");
    let complaints: Vec<_> = log.lines().filter(is_complaint).filter(|line| !lacks_rights(line)).collect();
    ensure!(complaints.is_empty(), "the operator complains: {complaints:#?}");
    Ok(())
}
