//! What scenarios need, and what a cluster has. A scenario that needs more is listed as not run, with the reason.

use std::fmt;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::Way;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Need {
    /// Nodes that KWOK simulates: pods of any image become ready, thousands fit, and tests may write their status.
    SimulatedPods,
    /// KWOK's Stages, which script the life of pods, and a control plane whose parts can be killed and send traces.
    LocalCluster,
    /// Operators that are processes of this machine, to be killed, frozen or put behind a proxy.
    Processes,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SimulatedPods => "nodes simulated by KWOK",
            Self::LocalCluster => "a cluster of hack/cluster",
            Self::Processes => "operators that are processes of this machine",
        })
    }
}

#[derive(Clone, Debug)]
pub struct Has(Vec<Need>);

impl Has {
    /// What the clusters of this way may have, with operators as processes or not.
    pub fn by(way: &Way, processes: bool) -> Self {
        let mut has = vec![Need::SimulatedPods];
        has.extend(matches!(way, Way::Local).then_some(Need::LocalCluster));
        has.extend(processes.then_some(Need::Processes));
        Self(has)
    }

    /// Removes what its nodes are not.
    pub async fn look_at_nodes(&mut self, client: &Client) -> Result<()> {
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
        let simulated = |node: &Node| node.annotations().contains_key("kwok.x-k8s.io/node");
        if nodes.items.is_empty() || !nodes.items.iter().all(simulated) {
            self.0.retain(|need| *need != Need::SimulatedPods);
        }
        Ok(())
    }

    pub fn this(&self, need: Need) -> bool {
        self.0.contains(&need)
    }

    /// What it lacks, in words; `None` if it has all.
    pub fn lacks(&self, needs: &[Need]) -> Option<String> {
        let missing: Vec<_> = needs.iter().filter(|need| !self.this(**need)).map(Need::to_string).collect();
        (!missing.is_empty()).then(|| format!("needs {}", missing.join(" and ")))
    }
}
