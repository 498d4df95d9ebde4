//! ServiceAccounts. Each operator process has its own, so that the audit log shows which process sent a request.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Lifetime of a token, longer than every scenario.
const SECONDS: i64 = 3_600;

/// A ServiceAccount and a token of it.
pub struct Account {
    namespace: String,
    name: String,
    credentials: Value,
}

impl Account {
    /// Creates a ServiceAccount.
    pub async fn create(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let accounts = Api::namespaced(client.clone(), namespace);
        accounts.create(&PostParams::default(), &account).await.with_context(|| format!("creating account {name}"))?;
        Self::existing(client, namespace, name).await
    }

    /// Requests a token for an existing ServiceAccount.
    pub async fn existing(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let request: TokenRequest =
            serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": [], "expirationSeconds": SECONDS}}))?;
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let token = answer.with_context(|| format!("asking for a token of account {name}"))?;
        let token = token.status.and_then(|status| status.token).context("the API server gave no token")?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), credentials: json!({"token": token}) })
    }

    /// Lets the administrator impersonate it. The API server continues traces only for trusted users.
    pub fn impersonated_by(mut self, administrator: Value) -> Self {
        self.credentials = administrator;
        self.credentials["as"] = json!(self.user());
        self
    }

    /// Its user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A client with its token.
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
