//! What users do, and what they wait for.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::observe::view::View;
use crate::scene::Scene;
use crate::types::{Pod, PodSet, podset};

impl Scene {
    /// `kubectl apply -f config/samples/FILE`.
    pub async fn apply_sample(&self, file: &str) -> Result<()> {
        let path = crate::root().join("config/samples").join(file);
        self.kubectl().run(&["apply", "-f", &path.to_string_lossy()]).await.map(drop)
    }

    pub async fn create_set(&self, name: &str, replicas: i64) -> Result<()> {
        self.create_set_from(name, json!({"replicas": replicas})).await
    }

    pub async fn create_set_from(&self, name: &str, spec: Value) -> Result<()> {
        self.log(&format!("create set {name}: {spec}"));
        self.post(podset(name, spec)).await
    }

    /// Creates a PodSet or a pod, without types, which would drop unknown fields.
    pub async fn post(&self, manifest: Value) -> Result<()> {
        let is_pod = manifest["kind"] == "Pod";
        let api = if is_pod { "/api/v1" } else { "/apis/app.example.com/v1alpha1" };
        let uri = format!("{api}/namespaces/{}/{}", self.namespace, if is_pod { "pods" } else { "podsets" });
        let request = http::Request::post(uri).header("content-type", "application/json");
        let created: Result<Value, _> =
            self.cluster.client.request(request.body(serde_json::to_vec(&manifest)?)?).await;
        created.with_context(|| format!("creating {} {}", manifest["kind"], manifest["metadata"]["name"])).map(drop)
    }

    pub async fn scale(&self, name: &str, replicas: i64) -> Result<()> {
        self.patch_set(name, json!({"spec": {"replicas": replicas}})).await
    }

    /// Waits until the set has this number of pods, all ready, and its status says so. Returns their names.
    pub async fn settles(&self, set: &str, pods: usize) -> Result<Vec<String>> {
        self.until(&format!("{pods} pods in {set}"), |seen| seen.at_rest(set, pods)).await
    }

    /// Waits until each of these sets has this number of pods, all ready, and their statuses say so.
    pub async fn all_settle(&self, sets: &[impl AsRef<str>], pods: usize, limit: Duration) -> Result<()> {
        let all_at_rest = |seen: &View| sets.iter().try_for_each(|set| seen.at_rest(set.as_ref(), pods).map(drop));
        self.within(limit, &format!("{pods} pods in each set"), all_at_rest).await
    }

    /// Waits until the operator has reported these events about the set, by reason.
    pub async fn has_events(&self, set: &str, reasons: &[&str]) -> Result<()> {
        self.until(&format!("the events {reasons:?}"), |seen| {
            let events = seen.events(set);
            let are: Vec<_> = events.iter().filter_map(|event| event.split(':').next()).collect();
            if are == reasons { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await
    }

    pub async fn patch_set(&self, name: &str, patch: Value) -> Result<()> {
        self.log(&format!("patch set {name}: {patch}"));
        let patched = self.sets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patching PodSet {name}")).map(drop)
    }

    /// Deletes a PodSet in the background, as kubectl does.
    pub async fn delete_set(&self, name: &str) -> Result<()> {
        self.log(&format!("delete set {name}"));
        let deleted = self.sets().delete(name, &DeleteParams::background()).await;
        deleted.with_context(|| format!("deleting PodSet {name}")).map(drop)
    }

    pub async fn goes(&self, pod: &str) -> Result<()> {
        self.until("the pod to go", |seen| seen.pod(pod).map_or(Ok(()), |_| Err(format!("{pod} is there")))).await
    }

    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        self.log(&format!("delete pod {name}"));
        let deleted = self.pods().delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("deleting pod {name}")).map(drop)
    }

    pub async fn patch_pod(&self, name: &str, patch: Value) -> Result<()> {
        self.log(&format!("patch pod {name}: {patch}"));
        let patched = self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patching pod {name}")).map(drop)
    }

    /// Creates a pod that belongs to no set.
    pub async fn create_pod(&self, namespace: &str, name: &str) -> Result<()> {
        let kubectl = Kubectl::new(&self.cluster, namespace);
        kubectl.run(&["run", name, "--image=example.com/nothing"]).await.map(drop)
    }

    pub async fn stored_pod(&self, name: &str) -> Result<v1::Pod> {
        let pods: Api<v1::Pod> = Api::namespaced(self.cluster.client.clone(), &self.namespace);
        pods.get(name).await.with_context(|| format!("reading pod {name}"))
    }

    pub fn sets(&self) -> Api<PodSet> {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }
}
