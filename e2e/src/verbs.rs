//! What people do to the objects of a scenario, as short verbs.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::scene::Scene;
use crate::types::{MyCustomResource, Pod, PodSet};

impl Scene {
    /// `kubectl apply -f config/samples/FILE`.
    pub async fn apply_sample(&self, file: &str) -> Result<()> {
        let path = crate::root().join("config/samples").join(file);
        self.kubectl().run(&["apply", "-f", &path.to_string_lossy()]).await.map(drop)
    }

    /// A PodSet of default pods.
    pub async fn create_set(&self, name: &str, replicas: i64) -> Result<()> {
        self.create_set_from(name, json!({"replicas": replicas})).await
    }

    /// A PodSet with this spec.
    pub async fn create_set_from(&self, name: &str, spec: Value) -> Result<()> {
        self.tell(&format!("create set {name}: {spec}"));
        let manifest = json!({
            "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": name}, "spec": spec
        });
        // As dynamic as it came: a typed object would drop what these types do not name.
        let uri = format!("/apis/app.example.com/v1alpha1/namespaces/{}/podsets", self.namespace());
        let request = http::Request::post(uri).header("content-type", "application/json");
        let created: Result<Value, _> = self.client().request(request.body(serde_json::to_vec(&manifest)?)?).await;
        created.with_context(|| format!("creating PodSet {name}")).map(drop)
    }

    /// Changes `spec.replicas`.
    pub async fn scale(&self, name: &str, replicas: i64) -> Result<()> {
        self.tell(&format!("scale {name} to {replicas}"));
        self.patch_set(name, json!({"spec": {"replicas": replicas}})).await
    }

    /// Merges something into a PodSet.
    pub async fn patch_set(&self, name: &str, patch: Value) -> Result<()> {
        let patched = self.sets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patching PodSet {name}")).map(drop)
    }

    /// Deletes a PodSet, in the background, as kubectl does.
    pub async fn delete_set(&self, name: &str) -> Result<()> {
        self.tell(&format!("delete set {name}"));
        let deleted = self.sets().delete(name, &DeleteParams::background()).await;
        deleted.with_context(|| format!("deleting PodSet {name}")).map(drop)
    }

    /// Deletes a pod by hand.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        self.tell(&format!("delete pod {name}"));
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("deleting pod {name}"))
            .map(drop)
    }

    /// Merges something into a pod's metadata or spec.
    pub async fn patch_pod(&self, name: &str, patch: Value) -> Result<()> {
        self.tell(&format!("patch pod {name}: {patch}"));
        let patched = self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patching pod {name}")).map(drop)
    }

    /// Merges something into a pod's status, as a kubelet does.
    pub async fn patch_pod_status(&self, name: &str, status: Value) -> Result<()> {
        self.tell(&format!("patch the status of pod {name}: {status}"));
        let patch = Patch::Strategic(json!({"status": status}));
        let patched = self.pods().patch_status(name, &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("patching the status of pod {name}")).map(drop)
    }

    /// A pod of nobody's; its UID.
    pub async fn create_pod(&self, namespace: &str, name: &str, labels: Value) -> Result<String> {
        let pod: v1::Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "example.com/nothing"}]}
        }))?;
        let pods: Api<v1::Pod> = Api::namespaced(self.client(), namespace);
        let created = pods.create(&PostParams::default(), &pod).await;
        created.with_context(|| format!("creating pod {name}"))?.uid().context("a pod without a UID")
    }

    /// The whole pod, as it is stored.
    pub async fn stored_pod(&self, name: &str) -> Result<v1::Pod> {
        let pods: Api<v1::Pod> = Api::namespaced(self.client(), self.namespace());
        pods.get(name).await.with_context(|| format!("reading pod {name}"))
    }

    /// The PodSets of the namespace.
    pub fn sets(&self) -> Api<PodSet> {
        Api::namespaced(self.client(), self.namespace())
    }

    /// The pods of the namespace.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), self.namespace())
    }

    /// The MyCustomResources of the namespace.
    pub fn seekers(&self) -> Api<MyCustomResource> {
        Api::namespaced(self.client(), self.namespace())
    }
}
