//! The operator's memory stays within the limit of its Deployment, however large the objects are that users create.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::Wanted;
use e2e::operator::Operator;
use e2e::scene::Scene;
use e2e::suite::Scenario;
use e2e::types::podset;
use futures::{StreamExt, TryStreamExt, stream};
use procfs::process::Process;
use serde_json::{Value, json};

/// Sets whose templates are large, each of one pod.
const SETS: usize = 40;

/// Large foreign pods in the same namespace. Every second one has the label by which the operator selects its pods.
const PODS: usize = 60;

/// Maximum in MiB. The limit of the Deployment is 128.
const MOST: f64 = 100.0;

pub fn scenarios() -> Vec<Scenario> {
    let scenario = Scenario::new("memory_with_large_objects", with_large_objects).in_own_cluster(Wanted::default());
    vec![scenario.heavy().with_processes().local_only("its images do not exist")]
}

async fn with_large_objects(t: Arc<Scene>) -> Result<()> {
    let mut operator = t.run(t.settings()).await?;
    let sets: Vec<String> = (0..SETS).map(|n| format!("large-{n}")).collect();
    let spec = || json!({"replicas": 1, "template": {"spec": large_spec()}});
    let manifests = sets.clone().into_iter().map(|set| podset(&set, spec()));
    // As values in memory, this template of tiny objects would take 60 times the memory of its text.
    let tiny =
        json!({"containers": [{"name": "main", "image": "x"}], "tolerations": vec![json!({"key": "a"}); 120_000]});
    let manifests = manifests.chain([podset("tiny", json!({"replicas": 1, "template": {"spec": tiny}}))]);
    stream::iter(manifests).map(|set| t.post(set)).buffer_unordered(4).try_collect::<()>().await?;
    t.create_set("small", 3).await?;
    t.settles("small", 3).await?;
    t.all_settle(&sets, 1, Duration::from_secs(120)).await?;
    needs_little_memory(&t, &mut operator, "to create the pods")?;
    operator.terminate(Duration::from_secs(20)).await?;

    let pods = (0..PODS).map(|n| {
        let labels = if n % 2 == 0 { json!({}) } else { json!({"app.kubernetes.io/managed-by": "podset-operator"}) };
        let annotations = json!({"note": "y".repeat(200_000)});
        let metadata = json!({"name": format!("foreign-{n}"), "labels": labels, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": large_spec()})
    });
    stream::iter(pods).map(|pod| t.post(pod)).buffer_unordered(4).try_collect::<()>().await?;
    let mut operator = t.run(t.settings()).await?;
    t.scale("small", 4).await?;
    t.scale(&sets[0], 2).await?;
    t.settles("small", 4).await?;
    t.settles(&sets[0], 2).await?;
    needs_little_memory(&t, &mut operator, "to take over")
}

/// The spec of a pod of 800 KB.
fn large_spec() -> Value {
    let variable = |n| json!({"name": format!("TEXT_{n}"), "value": "x".repeat(200_000)});
    let env: Vec<Value> = (0..4).map(variable).collect();
    json!({"containers": [{"name": "main", "image": "example.com/app", "env": env}]})
}

fn needs_little_memory(t: &Scene, operator: &mut Operator, what: &str) -> Result<()> {
    let peak = Process::new(operator.id()?.cast_signed())?.status()?.vmhwm.context("/proc/PID/status without VmHWM")?;
    let peak = peak as f64 / 1_024.0;
    t.log(&format!("the operator needed {peak:.1} MiB {what}"));
    ensure!(peak < MOST, "the operator needed {peak:.1} MiB {what}");
    Ok(())
}
