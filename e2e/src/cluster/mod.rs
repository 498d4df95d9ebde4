//! Where the scenarios run. There are three [ways](Way) to a cluster, and nothing else of the harness knows which one was taken:
//! - [`k3s`]: a container for each, by testcontainers
//! - [`local`]: the parts of Kubernetes as processes of this machine, by `hack/cluster`
//! - [`kubeconfig`]: one that is there already and was named on purpose
//!
//! Each starts a [`guard`] first, which ends what was started however this process ends. What a cluster [has](needs::Has) beyond an API
//! server differs.

mod docker;
pub mod guard;
mod k3s;
mod kubeconfig;
mod local;
pub mod needs;
mod way;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

pub use kubeconfig::LABEL;
pub use local::Parts;
pub use way::Way;

use guard::Guard;
use needs::Has;

/// What a scenario asks of a cluster of its own.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Simulated nodes.
    pub nodes: u32,
    /// Pods that each of them takes.
    pub pods_a_node: u32,
    /// Whether the life of pods can be scripted.
    pub stages: bool,
    /// Whether scheduler, controllers and nodes ask as often as they like.
    pub unthrottled: bool,
    /// Whether etcd waits for the disk: needed only where speed is measured.
    pub is_durable: bool,
    /// Where the API server and etcd send the traces that a caller has begun.
    pub traces: Option<SocketAddr>,
    /// The controllers of kube-controller-manager that run, by name; all that run by default, if there are none.
    pub controllers: Vec<&'static str>,
    /// What the API server writes into its audit log.
    pub audit_policy: PathBuf,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            nodes: 3,
            pods_a_node: 1_000,
            stages: false,
            unthrottled: false,
            is_durable: false,
            traces: None,
            controllers: Vec::new(),
            audit_policy: audit_policy(),
        }
    }
}

/// What a way leads to.
struct Found {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    audit_log: Option<PathBuf>,
    guard: Guard,
}

/// A running cluster. It ends when it is dropped, and when this process ends, however that happens.
pub struct Cluster {
    name: String,
    has: Has,
    server: Value,
    client: Client,
    found: Found,
}

impl Cluster {
    /// Starts one under this name, which no other cluster may have. Logs of it go into `folder`.
    pub async fn start(name: &str, way: &Way, mut has: Has, wanted: &Wanted, folder: &Path) -> Result<Self> {
        let found = match way {
            Way::K3s(image) => k3s::start(name, image, folder).await,
            Way::Local => local::start(name, wanted, folder).await,
            Way::Kubeconfig(named) => kubeconfig::take(name, named, folder).await,
        }?;
        let mut config = config(&found.kubeconfig).await?;
        // A create that took effect without an answer is refused the second time.
        config.default_retry = false;
        let client = Client::try_from(config)?;
        has.look_at_nodes(&client).await.context("asking for its nodes")?;
        let server = server(&found.kubeconfig)?;
        Ok(Self { name: name.to_owned(), has, server, client, found })
    }

    /// Ends it, and every process that carries its [`mark`](Self::mark).
    pub fn end(&self) {
        self.found.guard.end();
    }

    /// The name under which it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has beyond an API server.
    pub fn has(&self) -> &Has {
        &self.has
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.found.kubeconfig
    }

    /// The audit log of its API server, one JSON object a line.
    pub fn audit_log(&self) -> Result<&Path> {
        self.found.audit_log.as_deref().context("this cluster's audit log cannot be read from here")
    }

    /// A kubectl for it.
    pub fn kubectl(&self) -> &Path {
        &self.found.kubectl
    }

    /// The parts of its control plane, where it [has](needs::Need::ControlPlane) them.
    pub fn parts(&self) -> Parts {
        Parts::of(&self.name, &self.found.kubeconfig)
    }

    /// The administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How the administrator shows who that is, as in the `users` of a kubeconfig.
    pub fn administrator(&self) -> Result<Value> {
        let users = read(&self.found.kubeconfig)?.auth_infos;
        let user = users.into_iter().next().and_then(|named| named.auth_info).context("a kubeconfig without a user")?;
        Ok(serde_json::to_value(user)?)
    }

    /// The configuration of a client that is nobody, for one that passes on what others say of themselves.
    pub async fn anonymous(&self) -> Result<Config> {
        let mut config = config(&self.found.kubeconfig).await?;
        config.auth_info = AuthInfo::default();
        Ok(config)
    }

    /// The API server, as in the `clusters` of a kubeconfig.
    pub fn server(&self) -> &Value {
        &self.server
    }

    /// An environment variable for every process that must not outlive the cluster.
    pub fn mark(&self) -> (&'static str, &str) {
        (guard::MARK, &self.name)
    }
}

fn audit_policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cluster/audit-policy.yaml")
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
