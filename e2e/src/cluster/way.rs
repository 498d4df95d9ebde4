//! The way to a cluster: the one that `E2E_CLUSTER` names, or k3s if Docker has it, else local.

use anyhow::{Context, Result, bail};

use super::k3s;

#[derive(Clone, Debug)]
pub enum Way {
    /// A container for each, by testcontainers.
    K3s(k3s::Image),
    /// Processes of this machine, by `hack/cluster`.
    Local,
}

impl Way {
    /// Chooses the way, and prints it.
    pub async fn choose() -> Result<Self> {
        let asked = std::env::var("E2E_CLUSTER").unwrap_or_default();
        let way = match asked.as_str() {
            "k3s" => {
                Self::K3s(k3s::image().await.context("E2E_CLUSTER=local needs no Docker daemon, E2E_CLUSTER=k3s does")?)
            }
            "local" => Self::Local,
            "" => match k3s::image().await {
                Ok(image) => Self::K3s(image),
                Err(error) => {
                    println!("e2e: no k3s: {error:#}");
                    Self::Local
                }
            },
            other => bail!("E2E_CLUSTER is k3s or local, not {other:?}"),
        };
        match &way {
            Self::K3s(image) => println!("e2e: k3s, containers of {image} by testcontainers"),
            Self::Local => println!("e2e: local, processes of this machine by hack/cluster"),
        }
        Ok(way)
    }
}
