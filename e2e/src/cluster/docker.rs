//! The Docker daemon, as far as the harness talks to it by itself: whether it is there, whether it has or gets an image, and the end of a
//! container. Containers are started by testcontainers, with the same client.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures::StreamExt;
use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::bollard::errors::Error;
use testcontainers_modules::testcontainers::bollard::query_parameters::{
    CreateImageOptionsBuilder, RemoveContainerOptionsBuilder,
};
use testcontainers_modules::testcontainers::core::client::docker_client_instance;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

/// A daemon that is there answers at once.
const ANSWER: Duration = Duration::from_secs(5);

/// A registry within reach is found out about by then.
const REGISTRY: Duration = Duration::from_secs(10);

/// A pull that shows no progress for so long has failed.
const PROGRESS: Duration = Duration::from_secs(60);

/// A daemon that answers.
pub async fn daemon() -> Result<Docker> {
    let named = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    let at = named.unwrap_or("the usual socket".to_owned());
    let no_answer = || format!("no Docker daemon answers at {at}");
    let docker = docker_client_instance().await.with_context(no_answer)?;
    timeout(ANSWER, docker.ping())
        .await
        .map_err(anyhow::Error::from)
        .and_then(|pong| Ok(pong?))
        .with_context(no_answer)?;
    Ok(docker)
}

/// Whether the daemon has the image.
pub async fn has(docker: &Docker, image: &str) -> Result<bool> {
    match timeout(ANSWER, docker.inspect_image(image)).await? {
        Ok(_) => Ok(true),
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("asking for the image {image}")),
    }
}

/// Pulls an image. Where that does not work it is known within seconds.
pub async fn pull(docker: &Docker, image: &str) -> Result<()> {
    let options = CreateImageOptionsBuilder::new().from_image(image).build();
    let mut progress = Box::pin(docker.create_image(Some(options), None, None));
    let mut patience = REGISTRY;
    loop {
        let step = timeout(patience, progress.next()).await;
        match step.map_err(|_| anyhow!("no progress for {} s", patience.as_secs()))? {
            None => break,
            Some(step) => drop(step.map_err(|error| anyhow!("{error}"))?),
        }
        patience = PROGRESS;
    }
    ensure!(has(docker, image).await?, "the daemon does not say why");
    Ok(())
}

/// Writes an image that the daemon has into a file, as `docker save` does.
pub async fn save(image: &str, file: &Path) -> Result<()> {
    let docker = daemon().await?;
    let mut parts = Box::pin(docker.export_image(image));
    let mut file = File::create(file).await?;
    while let Some(part) = parts.next().await {
        let part =
            part.with_context(|| format!("the Docker daemon has no image {image}: 'make docker-build' makes it"))?;
        file.write_all(&part).await?;
    }
    Ok(file.flush().await?)
}

/// Removes a container and its volumes. It may be in the making: a daemon that was asked to create it does so although whoever asked
/// is gone.
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
