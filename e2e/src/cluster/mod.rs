//! The clusters in which the scenarios run, started in one of two [ways](Way):
//! - [`k3s`]: a container for each, by testcontainers
//! - [`local`]: processes of this machine, by `hack/cluster`
//!
//! A [`guard`] ends what was started, however this process ends.

mod docker;
pub mod guard;
mod k3s;
mod local;
mod way;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

pub use docker::operator_image;
pub use way::Way;

use guard::Guard;

/// What a scenario requires of its own cluster.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub nodes: u32,
    pub pods_a_node: u32,
    /// Whether etcd waits for the disk, for measurements.
    pub is_durable: bool,
    /// Where the API server and etcd send the traces that a client has started.
    pub traces: Option<SocketAddr>,
    /// Further arguments of `kwokctl create cluster`.
    pub arguments: Vec<String>,
    /// The audit policy of the API server.
    pub audit_policy: PathBuf,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            nodes: 3,
            pods_a_node: 1_000,
            is_durable: false,
            traces: None,
            arguments: Vec::new(),
            audit_policy: audit_policy(),
        }
    }
}

struct Found {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    audit_log: PathBuf,
    guard: Guard,
}

pub struct Cluster {
    name: String,
    /// Whether its nodes run containers. Then they take few pods.
    pub has_real_nodes: bool,
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
    /// The audit log of its API server, one JSON object a line.
    pub audit_log: PathBuf,
    /// The API server, as in the `clusters` of a kubeconfig.
    pub server: Value,
    /// The administrator's client.
    pub client: Client,
    credentials: Kubeconfig,
    guard: Guard,
}

impl Cluster {
    /// Starts a cluster with this name. Its logs are in `folder`.
    pub async fn start(name: &str, way: &Way, wanted: &Wanted, folder: &Path) -> Result<Self> {
        let Found { kubeconfig, kubectl, audit_log, guard } = match way {
            Way::K3s(image) => k3s::start(name, image, folder).await,
            Way::Local => local::start(name, wanted, folder).await,
        }?;
        let has_real_nodes = matches!(way, Way::K3s(_));
        let credentials = Kubeconfig::read_from(&kubeconfig).context("reading the kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(credentials.clone(), &KubeConfigOptions::default()).await?;
        // A retried create would be rejected if the first one took effect without a response.
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let server = serde_json::to_value(credentials.clusters.first().and_then(|named| named.cluster.as_ref()))?;
        let name = name.to_owned();
        Ok(Self { name, has_real_nodes, kubeconfig, kubectl, audit_log, server, client, credentials, guard })
    }

    /// Ends it, and every process with its [`mark`](Self::mark).
    pub fn end(&self) {
        self.guard.end();
    }

    /// The administrator's credentials, as in the `users` of a kubeconfig.
    pub fn administrator(&self) -> Result<Value> {
        let user = self.credentials.auth_infos.first().and_then(|named| named.auth_info.as_ref());
        Ok(serde_json::to_value(user.context("a kubeconfig without a user")?)?)
    }

    /// The configuration of a client without credentials, for a proxy that passes on those of others.
    pub async fn anonymous(&self) -> Result<Config> {
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(self.credentials.clone(), &options).await?;
        config.auth_info = AuthInfo::default();
        Ok(config)
    }

    /// An environment variable for every process that ends with the cluster.
    pub fn mark(&self) -> (&'static str, &str) {
        (guard::MARK, &self.name)
    }
}

fn audit_policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cluster/audit-policy.yaml")
}
