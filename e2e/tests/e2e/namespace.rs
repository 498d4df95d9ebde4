//! A namespace that is deleted with a set in it: there is nothing to be done, and nothing to be said.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::audit::Requests;
use e2e::kubectl::Kubectl;
use e2e::root;
use e2e::scene::Scene;

pub async fn deleted_under_a_set(t: Arc<Scene>) -> Result<()> {
    let doomed = t.other_namespace("doomed").await?;
    let mut operator = t.operator_for(&[&doomed]).await?;
    let kubectl = Kubectl::new(t.cluster(), &doomed);
    let sample = root().join("config/samples/app_v1alpha1_podset.yaml");
    kubectl.run(&["apply", "-f", &sample.to_string_lossy()]).await?;
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=90s", "podset/podset-sample"]).await?;

    // kubectl waits until it is gone.
    kubectl.run(&["delete", "namespace", &doomed, "--timeout=90s"]).await?;
    operator.is_running()?;
    let requests = Requests::read(t.cluster().audit_log()?, &doomed)?;
    let refused = requests.of("create pods").into_iter().filter(|create| create.code() >= 400).count();
    ensure!(refused <= 3, "{refused} creates were sent into a namespace that is being deleted");
    let events = requests.of("create events").len();
    ensure!(events <= 2, "{events} events were told of a namespace that is being deleted");
    let log = std::fs::read_to_string(operator.log())?;
    let complaints: Vec<_> = log.lines().filter(|line| line.contains(" ERROR ") || line.contains(" WARN ")).collect();
    ensure!(complaints.is_empty(), "the operator complains: {complaints:#?}");
    Ok(())
}
