//! The way to a cluster: the one that `E2E_CLUSTER` names, or k3s if Docker has it, else local.

use std::fmt;

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
                let image = k3s::image().await.context(
                    "E2E_CLUSTER=k3s needs a Docker daemon that has the image or can pull it; E2E_CLUSTER=local does not",
                )?;
                Self::K3s(image)
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
        println!("e2e: {way}");
        Ok(way)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::K3s(image) => write!(f, "k3s, containers of {image} by testcontainers"),
            Self::Local => write!(f, "local, processes of this machine by hack/cluster"),
        }
    }
}
