//! Which way to a cluster is taken: the one that `E2E_CLUSTER` names, or else the best that this machine has.

use std::fmt;

use anyhow::{Context, Result, bail};

use super::k3s;
use super::kubeconfig::Named;

/// A way to a cluster.
#[derive(Clone, Debug)]
pub enum Way {
    /// A container for each, by testcontainers.
    K3s(k3s::Image),
    /// Processes of this machine, by `hack/cluster`.
    Local,
    /// One that is there already.
    Kubeconfig(Named),
}

impl Way {
    /// The way to take, and why.
    pub async fn choose() -> Result<(Self, String)> {
        let asked = std::env::var("E2E_CLUSTER").unwrap_or_default();
        let because = || format!("E2E_CLUSTER={asked} asks for it");
        match asked.as_str() {
            "k3s" => {
                let image = k3s::image().await.with_context(|| {
                    "E2E_CLUSTER=k3s wants a Docker daemon that has the image or can pull it; E2E_CLUSTER=local needs neither"
                })?;
                Ok((Self::K3s(image), because()))
            }
            "local" => Ok((Self::Local, because())),
            "kubeconfig" => Ok((Self::Kubeconfig(Named::from_environment()?), because())),
            "" => Ok(match k3s::image().await {
                Ok(image) => (Self::K3s(image), "a Docker daemon answers and has the image".to_owned()),
                Err(error) => (Self::Local, format!("{error:#}")),
            }),
            other => bail!("E2E_CLUSTER is k3s, local or kubeconfig, not {other:?}"),
        }
    }

    /// In a word, as in `E2E_CLUSTER`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::K3s(_) => "k3s",
            Self::Local => "local",
            Self::Kubeconfig(_) => "kubeconfig",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::K3s(image) => write!(f, "k3s, containers of {image} by testcontainers"),
            Self::Local => write!(f, "local, processes of this machine by hack/cluster"),
            Self::Kubeconfig(named) => write!(f, "kubeconfig, {named}"),
        }
    }
}
