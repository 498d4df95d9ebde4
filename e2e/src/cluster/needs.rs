//! What scenarios need, and what a cluster has. A scenario that needs more is listed as not run, with the reason.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::Way;

/// What a scenario may need.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Need {
    /// The API server's audit log.
    AuditLog,
    /// Nodes that KWOK simulates: pods of any image become ready, thousands fit, and tests may write their status.
    SimulatedPods,
    /// KWOK's Stages, which script the life of pods.
    Stages,
    /// A control plane whose parts can be killed.
    ControlPlane,
    /// An API server and an etcd that send traces.
    TracedControlPlane,
    /// The admission plug-in OwnerReferencesPermissionEnforcement.
    StrictOwners,
    /// A cluster without other scenarios.
    OwnCluster,
    /// Operators that are processes of this machine, to be killed, frozen or put behind a proxy.
    Processes,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AuditLog => "the API server's audit log",
            Self::SimulatedPods => "nodes simulated by KWOK",
            Self::Stages => "KWOK's Stages",
            Self::ControlPlane => "a control plane whose parts can be ended",
            Self::TracedControlPlane => "a control plane that sends traces",
            Self::StrictOwners => "the admission plug-in OwnerReferencesPermissionEnforcement",
            Self::OwnCluster => "a cluster of its own",
            Self::Processes => "operators that are processes of this machine",
        })
    }
}

/// What a cluster has.
#[derive(Clone, Debug)]
pub struct Has(BTreeSet<Need>);

impl Has {
    /// What the clusters of this way have, with operators as processes or not.
    pub fn by(way: &Way, processes: bool) -> Self {
        use Need::*;
        let mut has: BTreeSet<_> = match way {
            Way::Local => {
                [AuditLog, SimulatedPods, Stages, ControlPlane, TracedControlPlane, StrictOwners, OwnCluster].into()
            }
            // Whether nodes are simulated is known when the cluster has started.
            Way::K3s(_) => [AuditLog, SimulatedPods, StrictOwners, OwnCluster].into(),
        };
        if processes {
            has.insert(Processes);
        }
        Self(has)
    }

    /// Removes what its nodes are not.
    pub async fn look_at_nodes(&mut self, client: &Client) -> Result<()> {
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
        let simulated = |node: &Node| node.annotations().contains_key("kwok.x-k8s.io/node");
        if nodes.items.is_empty() || !nodes.items.iter().all(simulated) {
            self.0.remove(&Need::SimulatedPods);
        }
        Ok(())
    }

    /// Whether it has this.
    pub fn this(&self, need: Need) -> bool {
        self.0.contains(&need)
    }

    /// What it lacks, in words; `None` if it has all.
    pub fn lacks(&self, needs: &[Need]) -> Option<String> {
        let missing: Vec<_> = needs.iter().filter(|need| !self.this(**need)).map(Need::to_string).collect();
        (!missing.is_empty()).then(|| format!("needs {}", missing.join(" and ")))
    }
}
