//! The k3s way: a whole Kubernetes in a container, by testcontainers.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use testcontainers_modules::k3s::{K3s, KUBE_SECURE_PORT};
use testcontainers_modules::testcontainers::core::Mount;
use testcontainers_modules::testcontainers::core::logs::LogFrame;
use testcontainers_modules::testcontainers::runners::AsyncRunner;
use testcontainers_modules::testcontainers::{ContainerAsync, ImageExt};
use tokio::process::Command;

use super::guard::{Ending, Guard, MARK};
use super::{Found, docker, local};
use crate::operator;
use crate::process::tail;

/// The version of Kubernetes that `hack/cluster` builds, too. The digest pins the image; Docker does not look at the tag beside it.
const NAME: &str = "rancher/k3s";
const TAG: &str = "v1.36.3-k3s1@sha256:d0f79175794edd9694b4a12bafc5c52ae1977369a2f7cf256264e7bd2dae0be9";

/// A first start on a slow machine unpacks a lot.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where the container has the folder that it shares with this machine.
const INSIDE: &str = "/etc/rancher/k3s";

/// What lies there when k3s starts, its nodes have.
const IMAGES: &str = "/var/lib/rancher/k3s/agent/images";

/// An image that the daemon has.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    tag: String,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

/// The image to start: that of `E2E_K3S_IMAGE` and `E2E_K3S_TAG`, or the one pinned here; pulled if it is missing.
pub async fn image() -> Result<Image> {
    let or = |variable: &str, default: &str| std::env::var(variable).unwrap_or(default.to_owned());
    let image = Image { name: or("E2E_K3S_IMAGE", NAME), tag: or("E2E_K3S_TAG", TAG) };
    let name = image.to_string();
    let docker = docker::daemon().await?;
    if !docker::has(&docker, &name).await? {
        eprintln!("e2e: the Docker daemon has no image {name}: pulling it");
        docker::pull(&docker, &name)
            .await
            .with_context(|| format!("the image {name} is not there and cannot be pulled"))?;
    }
    Ok(image)
}

/// Starts one. What it shares with this machine is a folder beside its log, which stays.
pub async fn start(name: &str, image: &Image, folder: &Path) -> Result<Found> {
    let kubectl = kubectl().await?;
    let (shared, log) = (folder.join(name), folder.join(format!("{name}.log")));
    let guard = Guard::start(name, Ending::Container(shared.clone()))?;
    let audit_log = fill(&shared)?;
    let images = shared.join("images");
    std::fs::create_dir(&images)?;
    if let Some(operator) = operator::image()? {
        docker::save(&operator, &images.join("operator.tar")).await?;
    }
    let container = run(name, image, &shared, &log).await.map_err(|error| {
        anyhow!("{image} does not start: {error:#}\n--- the end of its log, {}\n{}", log.display(), tail(&log, 30))
    })?;
    let (host, port) = (container.get_host().await?.to_string(), container.get_host_port_ipv4(KUBE_SECURE_PORT).await?);
    let inside = container.image().read_kube_config().context("reading the kubeconfig that k3s wrote")?;
    // It is removed by the guard alone: whoever is killed drops nothing.
    std::mem::forget(container);
    let kubeconfig = shared.join("kubeconfig.yaml");
    std::fs::write(&kubeconfig, outside(&inside, &host, port)?)?;
    Ok(Found { kubeconfig, kubectl, audit_log, guard })
}

/// The shared folder, with what the API server reads from it; where it writes its audit log.
fn fill(shared: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(shared).with_context(|| format!("creating {}", shared.display()))?;
    std::fs::copy(super::audit_policy(), shared.join("audit-policy.yaml"))?;
    let audit_log = shared.join("audit.log");
    // Made by us, it can be read by us: the API server, as root, would make it for itself alone.
    File::create(&audit_log)?;
    Ok(audit_log)
}

async fn run(name: &str, image: &Image, shared: &Path, log: &Path) -> Result<ContainerAsync<K3s>> {
    let log = Mutex::new(OpenOptions::new().create(true).append(true).open(log)?);
    let keep = move |frame: &LogFrame| {
        let mut log = log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // What cannot be written is missing from the log, where it shows.
        let _ = log.write_all(frame.bytes());
    };
    let container = K3s::default()
        .with_conf_mount(shared)
        .with_name(&image.name)
        .with_tag(&image.tag)
        .with_container_name(name)
        .with_label(MARK, name)
        .with_mount(Mount::bind_mount(shared.join("images").to_string_lossy(), IMAGES))
        .with_cmd(arguments())
        .with_privileged(true)
        .with_userns_mode("host")
        .with_startup_timeout(PATIENCE)
        .with_log_consumer(keep);
    Ok(container.start().await?)
}

/// A bare cluster as strict as the local one, with the same audit log.
fn arguments() -> Vec<String> {
    let api_server = |argument: String| format!("--kube-apiserver-arg={argument}");
    vec![
        "server".to_owned(),
        "--snapshotter=native".to_owned(), // the others do not work in every container
        "--disable=traefik,servicelb,metrics-server,local-storage".to_owned(),
        api_server("enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement".to_owned()),
        api_server(format!("audit-policy-file={INSIDE}/audit-policy.yaml")),
        api_server(format!("audit-log-path={INSIDE}/audit.log")),
    ]
}

/// The kubeconfig for this side of the port mapping.
fn outside(inside: &str, host: &str, port: u16) -> Result<String> {
    // Of the names in the certificate this one is right wherever the daemon is.
    let (host, name) = if host == "localhost" { ("127.0.0.1", "") } else { (host, "\n    tls-server-name: localhost") };
    let there = "server: https://127.0.0.1:6443";
    anyhow::ensure!(inside.contains(there), "k3s wrote a kubeconfig without '{there}':\n{inside}");
    Ok(inside.replace(there, &format!("server: https://{host}:{port}{name}")))
}

/// That of the PATH, else the one that was built for the local cluster.
async fn kubectl() -> Result<PathBuf> {
    let mut version = Command::new("kubectl");
    version.args(["version", "--client"]).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    if version.status().await.is_ok_and(|status| status.success()) {
        return Ok("kubectl".into());
    }
    let bin = local::binaries().await.context("kubectl is not on the PATH, and cannot be built: install it")?;
    Ok(bin.join("kubectl"))
}
