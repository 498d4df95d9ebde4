//! The cluster on which everything is measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use e2e::account::Account;
use e2e::cluster::{Cluster, Wanted, Way};
use e2e::install::{SETS, install};
use e2e::kubectl::Kubectl;
use e2e::operator;
use e2e::process::printed;
use e2e::rights::{self, ACCOUNT};
use e2e::scene::make_namespace;
use k8s_openapi::jiff::Timestamp;
use procfs::{CpuInfo, Current};
use serde_json::json;
use tokio::process::Command;

use crate::records::Run;

/// The namespace of the sets, except for those of the scale run.
pub const NAMESPACE: &str = "bench";

/// The namespaces of the scale run.
pub const TENANTS: [&str; 3] = ["tenant-a", "tenant-b", "tenant-c"];

/// The ServiceAccount of the bare requests and of the Go operator.
pub const PEER: &str = "peer";

/// The controllers that pods and namespaces need. The ReplicaSet controller runs in its own process.
const CONTROLLERS: &str = "kube-controller-manager=controllers=garbage-collector-controller,namespace-controller,\
    serviceaccount-controller,root-ca-certificate-publisher-controller,node-lifecycle-controller";

/// The cluster, the operator's binary, and a folder for logs and results.
pub struct Place {
    pub cluster: Arc<Cluster>,
    /// The release build of the operator.
    pub binary: PathBuf,
    /// The Go operator, if it takes part.
    pub go_peer: Option<PathBuf>,
    pub folder: PathBuf,
    /// Number of rounds so far, which is part of object names.
    pub rounds: usize,
}

impl Place {
    /// Builds the operator, and starts a cluster for it.
    pub async fn prepare(folder: &Path, with_go: bool) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        println!("bench: building the operator");
        let binary = operator::build(&["--release"]).await?;
        let go_peer = if with_go { Some(build_go_peer(folder).await?) } else { None };
        println!("bench: starting a cluster");
        let wanted = Wanted {
            // The scheduler would put almost all pods of a large load on one of a few large nodes.
            nodes: 100,
            pods_a_node: 2_000,
            is_durable: true,
            // The clients of scheduler, controllers and nodes have no limits.
            arguments: ["--disable-qps-limits", "--extra-args", CONTROLLERS].map(str::to_owned).into(),
            audit_policy: Path::new(env!("CARGO_MANIFEST_DIR")).join("audit-policy.yaml"),
            ..Wanted::default()
        };
        let name = format!("bench-{}", std::process::id());
        let cluster = Arc::new(Cluster::start(&name, &Way::Local, &wanted, folder).await?);
        install(&cluster, &binary).await?;
        raise_bound(&cluster).await?;
        make_namespace(&cluster, NAMESPACE).await?;
        for tenant in TENANTS {
            make_namespace(&cluster, tenant).await?;
            rights::grant(&cluster, tenant).await?;
            Account::create(&cluster, tenant, ACCOUNT).await?;
        }
        Account::create(&cluster, NAMESPACE, PEER).await?;
        let user = format!("--serviceaccount={NAMESPACE}:{PEER}");
        let binding = ["create", "clusterrolebinding", PEER, "--clusterrole=cluster-admin", &user];
        Kubectl::new(&cluster, "").run(&binding).await?;
        Ok(Self { cluster, binary, go_peer, folder: folder.to_owned(), rounds: 0 })
    }

    /// The machine, the cluster and the revision of the operator.
    pub async fn circumstances(&self) -> Result<Run> {
        let cpus = CpuInfo::current()?;
        let mut describe = Command::new("git");
        describe.args(["describe", "--always", "--dirty", "--abbrev=10"]).current_dir(e2e::root());
        Ok(Run {
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            processor: cpus.model_name(0).unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            kubernetes: self.cluster.client.apiserver_version().await?.git_version,
            revision: match std::env::var_os(operator::BINARY) {
                Some(binary) => format!("of {}", Path::new(&binary).display()),
                None => printed(describe).await?,
            },
            remark: None,
        })
    }
}

/// Raises the maximum of `spec.replicas` to twice the largest load. That is in force long before the first large set.
async fn raise_bound(cluster: &Cluster) -> Result<()> {
    let replicas = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas";
    let patch = json!([
        {"op": "replace", "path": format!("{replicas}/maximum"), "value": 200_000},
        {"op": "add", "path": format!("{replicas}/x-kubernetes-validations"), "value": []},
    ]);
    let patch = ["patch", "crd", SETS, "--type=json", "--patch", &patch.to_string()];
    Kubectl::new(cluster, "").run(&patch).await.map(drop)
}

async fn build_go_peer(folder: &Path) -> Result<PathBuf> {
    println!("bench: building the Go operator, which takes minutes the first time");
    let binary = folder.join("go-peer");
    let mut build = Command::new("go");
    build.current_dir(e2e::root().join("hack/bench/go-peer")).args(["build", "-trimpath", "-ldflags=-s -w", "-o"]);
    // Independent of the caller's Go settings.
    build.arg(&binary).arg(".").envs([("GOFLAGS", ""), ("GOWORK", "off"), ("CGO_ENABLED", "0")]);
    printed(build).await.context("the Go operator cannot be built: --only can leave it out")?;
    Ok(binary)
}
