//! Where the scenarios run: a cluster of its own for the run, whatever provides it.
//!
//! A provider starts a [`Cluster`] and ends it, and nothing else of the harness knows which one it was. There is one so
//! far, [`local`]: the parts of Kubernetes as processes of this machine.

mod local;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

/// What a scenario asks of a cluster.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Simulated nodes.
    pub nodes: u32,
    /// Pods that each of them takes.
    pub pods_a_node: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { nodes: 3, pods_a_node: 1_000 }
    }
}

/// A running cluster. It ends when it is dropped, and when this process ends, however that happens.
pub struct Cluster {
    name: String,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    kubectl: PathBuf,
    server: Value,
    client: Client,
    provider: local::Local,
}

impl Cluster {
    /// Starts one under this name, which no other cluster may have.
    pub async fn start(name: &str, wanted: &Wanted) -> Result<Self> {
        let provider = local::Local::start(name, wanted).await?;
        let kubeconfig = provider.kubeconfig().to_owned();
        let client = Client::try_from(config(&kubeconfig).await?)?;
        let server = server(&kubeconfig)?;
        let (audit_log, kubectl) = (provider.audit_log(), provider.kubectl());
        Ok(Self { name: name.to_owned(), kubeconfig, audit_log, kubectl, server, client, provider })
    }

    /// Ends it, and every process that carries its [`mark`](Self::mark).
    pub fn end(&self) {
        self.provider.end();
    }

    /// The name under which it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The audit log of its API server, one JSON object a line.
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// A kubectl of the cluster's own version.
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// The administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The configuration of a client that is nobody, for one that passes on what others say of themselves.
    pub async fn anonymous(&self) -> Result<Config> {
        let mut config = config(&self.kubeconfig).await?;
        config.auth_info = AuthInfo::default();
        Ok(config)
    }

    /// The API server, as in the `clusters` of a kubeconfig.
    pub fn server(&self) -> &Value {
        &self.server
    }

    /// An environment variable for every process that must not outlive the cluster.
    pub fn mark(&self) -> (&'static str, &str) {
        (local::MARK, &self.name)
    }
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    Ok(Config::from_custom_kubeconfig(read(kubeconfig)?, &KubeConfigOptions::default()).await?)
}

fn server(kubeconfig: &Path) -> Result<Value> {
    let clusters = read(kubeconfig)?.clusters;
    let cluster =
        clusters.into_iter().next().and_then(|named| named.cluster).context("a kubeconfig without a cluster")?;
    Ok(serde_json::to_value(cluster)?)
}

fn read(kubeconfig: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))
}
