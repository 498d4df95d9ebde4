//! The k3s way: Kubernetes in a container, by testcontainers.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use testcontainers_modules::k3s::{K3s, KUBE_SECURE_PORT};
use testcontainers_modules::testcontainers::core::Mount;
use testcontainers_modules::testcontainers::core::logs::LogFrame;
use testcontainers_modules::testcontainers::runners::AsyncRunner;
use testcontainers_modules::testcontainers::{ContainerAsync, ImageExt};

use super::guard::{Guard, MARK};
use super::{Found, docker, local};
use crate::process::tail;

/// The version of Kubernetes that `hack/cluster` builds. The digest pins the image.
const NAME: &str = "rancher/k3s";
const TAG: &str = "v1.36.3-k3s1@sha256:d0f79175794edd9694b4a12bafc5c52ae1977369a2f7cf256264e7bd2dae0be9";

/// Limit of the start.
const PATIENCE: Duration = Duration::from_secs(300);

/// The shared folder inside the container.
const INSIDE: &str = "/etc/rancher/k3s";

/// k3s imports the images in this folder.
const IMAGES: &str = "/var/lib/rancher/k3s/agent/images";

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

/// The image: that of `E2E_K3S_IMAGE` and `E2E_K3S_TAG`, or the one pinned here.
pub async fn image() -> Result<Image> {
    let or = |variable: &str, default: &str| std::env::var(variable).unwrap_or(default.to_owned());
    let image = Image { name: or("E2E_K3S_IMAGE", NAME), tag: or("E2E_K3S_TAG", TAG) };
    docker::require(&image.to_string()).await?;
    Ok(image)
}

/// Starts a container. It shares a folder with this machine, beside its log.
pub async fn start(name: &str, image: &Image, folder: &Path) -> Result<Found> {
    let kubectl = local::kubectl().await?;
    let (shared, log) = (folder.join(name), folder.join(format!("{name}.log")));
    let guard = Guard::start(name, Some(shared.clone()))?;
    let images = shared.join("images");
    std::fs::create_dir_all(&images).with_context(|| format!("creating {}", images.display()))?;
    std::fs::copy(super::audit_policy(), shared.join("audit-policy.yaml"))?;
    // Created by this user, so that it can be read: the API server runs as root.
    let audit_log = shared.join("audit.log");
    File::create(&audit_log)?;
    if let Some(operator) = docker::operator_image()? {
        docker::save(&operator, &images.join("operator.tar")).await?;
    }
    let container = run(name, image, &shared, &log).await.map_err(|error| {
        anyhow!("{image} does not start: {error:#}\n--- the end of its log, {}\n{}", log.display(), tail(&log, 30))
    })?;
    let (host, port) = (container.get_host().await?.to_string(), container.get_host_port_ipv4(KUBE_SECURE_PORT).await?);
    let inside = container.image().read_kube_config().context("reading the kubeconfig that k3s wrote")?;
    // The guard removes it.
    std::mem::forget(container);
    let kubeconfig = shared.join("kubeconfig.yaml");
    std::fs::write(&kubeconfig, outside(&inside, &host, port)?)?;
    Ok(Found { kubeconfig, kubectl, audit_log, guard })
}

async fn run(name: &str, image: &Image, shared: &Path, log: &Path) -> Result<ContainerAsync<K3s>> {
    let log = File::options().create(true).append(true).open(log)?;
    let keep = move |frame: &LogFrame| {
        // The log shows that lines are missing.
        let _ = (&log).write_all(frame.bytes());
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

/// As strict as the local cluster, with the same audit log.
fn arguments() -> Vec<String> {
    let api_server = |argument: String| format!("--kube-apiserver-arg={argument}");
    vec![
        "server".to_owned(),
        "--snapshotter=native".to_owned(), // the others do not work in every container
        "--disable=traefik,servicelb,metrics-server,local-storage".to_owned(),
        // Scenarios run side by side; by default, a node takes 110 pods and has 254 addresses for them.
        "--kubelet-arg=max-pods=500".to_owned(),
        "--kube-controller-manager-arg=node-cidr-mask-size=22".to_owned(),
        api_server("enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement".to_owned()),
        api_server(format!("audit-policy-file={INSIDE}/audit-policy.yaml")),
        api_server(format!("audit-log-path={INSIDE}/audit.log")),
    ]
}

/// The kubeconfig with the mapped port.
fn outside(inside: &str, host: &str, port: u16) -> Result<String> {
    // The certificate has this name wherever the daemon is.
    let (host, name) = if host == "localhost" { ("127.0.0.1", "") } else { (host, "\n    tls-server-name: localhost") };
    let there = "server: https://127.0.0.1:6443";
    anyhow::ensure!(inside.contains(there), "k3s wrote a kubeconfig without '{there}':\n{inside}");
    Ok(inside.replace(there, &format!("server: https://{host}:{port}{name}")))
}
