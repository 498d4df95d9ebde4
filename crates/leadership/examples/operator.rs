//! A complete operator that runs with two replicas: it counts the words of each ConfigMap with the label `words=count`.
//!
//! ```sh
//! cargo run -p leadership --example operator    # in two terminals; both use the current context of the kubeconfig
//! kubectl create configmap poem --from-literal=text='So much depends'
//! kubectl label configmap poem words=count
//! kubectl get configmap poem --output=jsonpath={.data.words}
//! ```

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use leadership::{Candidate, Leadership, WriteError};
use serde_json::json;

struct Context {
    client: Client,
    leadership: Leadership,
}

async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> kube::Result<Action> {
    // A standby keeps its cache warm. When it is elected, it reconciles all objects.
    if !context.leadership.is_leader() {
        return Ok(Action::await_change());
    }
    let text = map.data.as_ref().and_then(|data| data.get("text"));
    let words = text.map_or(0, |text| text.split_whitespace().count()).to_string();
    if map.data.as_ref().and_then(|data| data.get("words")) == Some(&words) {
        return Ok(Action::await_change());
    }
    // With the resourceVersion, because the text may have changed since.
    let version = &map.meta().resource_version;
    let patch = json!({ "metadata": { "resourceVersion": version }, "data": { "words": words } });
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), &map.namespace().unwrap_or_default());
    maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Action::await_change())
}

fn retry(map: Arc<ConfigMap>, error: &kube::Error, _: Arc<Context>) -> Action {
    if let Some(WriteError::NotLeader) = WriteError::of(error) {
        return Action::await_change();
    }
    eprintln!("{}: {error}", map.name_any());
    Action::requeue(Duration::from_secs(1))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::infer().await?;
    let pod = std::env::var("POD_NAME").unwrap_or_else(|_| "word-counter".to_owned());
    // The Lease is `word-counter`, in the pod's own namespace.
    let candidate = Candidate::new(&config.default_namespace, "word-counter", &pod);
    let (election, client) = candidate.connect(&config)?;
    let leadership = election.leadership();

    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let controller = Controller::new(maps, watcher::Config::default().labels("words=count"))
        .reconcile_all_on(leadership.elections())
        // Or `graceful_shutdown_on`: running reconciles end, and then the lease is released.
        .shutdown_on_signal()
        .run(reconcile, retry, Arc::new(Context { client, leadership }))
        .for_each(|_| std::future::ready(()));

    // If the lease is lost, the process must exit.
    election.run(controller).await?;
    Ok(())
}
