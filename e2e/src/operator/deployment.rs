//! The operator as users deploy it: the Deployment of `config/manager` from its image, with the rights of `config/rbac`, in another namespace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::{Operator, Settings};
use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::rights::ACCOUNT;
use crate::root;

pub struct Deployment<'a> {
    pub kubectl: Kubectl,
    /// The namespace.
    pub home: &'a str,
    pub image: &'a str,
    /// The file for its log, if the scenario fails.
    pub log: PathBuf,
}

impl Deployment<'_> {
    /// Deploys it and waits until all replicas are ready. The kustomization is in the scenario's folder.
    pub async fn start(self, name: String, settings: &Settings, folder: &Path) -> Result<Operator> {
        let folder = folder.join(&name);
        std::fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        std::fs::write(folder.join("kustomization.yaml"), self.overlay(settings, &folder)?)?;
        self.kubectl.run(&["create", "serviceaccount", ACCOUNT]).await?;
        self.kubectl.run(&["apply", "-k", &folder.to_string_lossy()]).await?;
        let rollout = ["rollout", "status", "deployment/podset-operator", "--timeout=180s"];
        self.kubectl
            .run(&rollout)
            .await
            .with_context(|| format!("{name} does not become ready from {}", self.image))?;
        let user = format!("system:serviceaccount:{}:{ACCOUNT}", self.home);
        Ok(Operator { process: None, name, user, log: self.log })
    }

    /// The kustomization (JSON is YAML).
    fn overlay(&self, settings: &Settings, folder: &Path) -> Result<String> {
        let (name, tag) =
            self.image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((self.image, "latest"));
        let watched = settings.namespaces.iter().map(|namespace| format!("--watch-namespace={namespace}"));
        let add = |flag| json!({"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag});
        let patch: Vec<_> = watched.map(add).collect();
        let overlay = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "namespace": self.home,
            // kustomize requires a relative path.
            "resources": [pathdiff::diff_paths(root().join("config/manager").canonicalize()?, folder).context("no relative path")?],
            "images": [{"name": "podset-operator", "newName": name, "newTag": tag}],
            "patches": [{"target": {"kind": "Deployment"}, "patch": serde_json::to_string(&patch)?}]
        });
        Ok(overlay.to_string())
    }

    /// Keeps the end of the logs of all operators of a scenario.
    pub async fn keep_log(cluster: &Cluster, scenario: &str, log: &Path) {
        let name = log.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        let kubectl = Kubectl::new(cluster, &format!("{scenario}-{name}"));
        let selector = "--selector=app.kubernetes.io/name=podset-operator";
        let lines = kubectl.run(&["logs", selector, "--prefix", "--tail=2000"]).await;
        let _ = std::fs::write(log, lines.unwrap_or_else(|error| error.to_string()));
    }
}
