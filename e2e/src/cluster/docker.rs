//! Requests to the Docker daemon, with the client of testcontainers.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::bollard::errors::Error;
use testcontainers_modules::testcontainers::bollard::query_parameters::{
    CreateImageOptionsBuilder, RemoveContainerOptionsBuilder,
};
use testcontainers_modules::testcontainers::core::client::docker_client_instance;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

/// A daemon answers within this time.
const ANSWER: Duration = Duration::from_secs(10);

/// Limit of a pull.
const PULL: Duration = Duration::from_secs(300);

/// The operator's image, as `make docker-build` names it by default; `None` if operators are processes.
pub fn operator_image() -> Result<Option<String>> {
    match std::env::var("E2E_OPERATOR").unwrap_or_default().as_str() {
        "" | "process" => Ok(None),
        "image" => Ok(Some(std::env::var("E2E_OPERATOR_IMAGE").unwrap_or("podset-operator:latest".to_owned()))),
        other => bail!("E2E_OPERATOR is process or image, not {other:?}"),
    }
}

/// Makes sure that there is a daemon and that it has the image. Pulls the image if it is missing.
pub async fn require(image: &str) -> Result<()> {
    let docker = timeout(ANSWER, daemon()).await.context("the Docker daemon does not answer")??;
    if docker.inspect_image(image).await.is_ok() {
        return Ok(());
    }
    eprintln!("e2e: the Docker daemon has no image {image}: pulling it");
    let options = CreateImageOptionsBuilder::new().from_image(image).build();
    let pulled = docker.create_image(Some(options), None, None).try_collect::<Vec<_>>();
    timeout(PULL, pulled).await.with_context(|| format!("pulling {image} takes more than {} s", PULL.as_secs()))??;
    docker.inspect_image(image).await.with_context(|| format!("{image} cannot be pulled")).map(drop)
}

/// Writes an image to a file, as `docker save` does.
pub async fn save(image: &str, file: &Path) -> Result<()> {
    let docker = daemon().await?;
    let mut parts = Box::pin(docker.export_image(image));
    let mut file = File::create(file).await?;
    while let Some(part) = parts.next().await {
        let part = part.with_context(|| format!("the Docker daemon has no image {image}: run 'make docker-build'"))?;
        file.write_all(&part).await?;
    }
    Ok(file.flush().await?)
}

/// Removes a container and its volumes. The daemon may still be creating it, also if the client is gone.
pub async fn remove(name: &str) -> Result<()> {
    let docker = daemon().await?;
    for _ in 0..20 {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match docker.remove_container(name, Some(options)).await {
            Ok(()) => return Ok(()),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => sleep(Duration::from_millis(100)).await,
            Err(error) => bail!("the container {name} is not removed: {error}"),
        }
    }
    Ok(())
}

async fn daemon() -> Result<Docker> {
    let docker = docker_client_instance().await.context("no Docker daemon")?;
    docker.ping().await.context("no Docker daemon answers")?;
    Ok(docker)
}
