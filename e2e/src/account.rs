//! ServiceAccounts. Each operator process has its own, so that the audit log shows which process sent a request.

use std::path::Path;

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;

pub struct Account {
    pub namespace: String,
    name: String,
    credentials: Value,
}

impl Account {
    pub async fn create(cluster: &Cluster, namespace: &str, name: &str) -> Result<Self> {
        Kubectl::new(cluster, namespace).run(&["create", "serviceaccount", name]).await?;
        Self::existing(cluster, namespace, name).await
    }

    /// Requests a token for an existing ServiceAccount.
    pub async fn existing(cluster: &Cluster, namespace: &str, name: &str) -> Result<Self> {
        let token = Kubectl::new(cluster, namespace).run(&["create", "token", name, "--duration=1h"]).await?;
        let credentials = json!({"token": token.trim()});
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), credentials })
    }

    /// Lets the administrator impersonate it. The API server continues traces only for trusted users.
    pub fn impersonated_by(mut self, administrator: Value) -> Self {
        self.credentials = administrator;
        self.credentials["as"] = json!(self.user());
        self
    }

    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    pub async fn client(&self, cluster: &Cluster) -> Result<Client> {
        let mut config = cluster.anonymous().await?;
        config.auth_info = serde_json::from_value(self.credentials.clone())?;
        Ok(Client::try_from(config)?)
    }

    /// Writes a kubeconfig for this API server, given as in the `clusters` of a kubeconfig.
    pub fn write_kubeconfig(&self, cluster: &Value, file: &Path) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": self.namespace}}],
            "users": [{"name": "it", "user": self.credentials}]
        });
        std::fs::write(file, config.to_string()).with_context(|| format!("writing {}", file.display()))
    }
}
