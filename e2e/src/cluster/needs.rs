//! What a scenario needs of a cluster beyond an API server, and which of that a cluster has. A scenario that needs what is not there is
//! listed as not run, with the reason.

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
    /// The API server's audit log, by which requests are counted.
    AuditLog,
    /// Nodes that KWOK simulates: any image becomes ready at once, thousands of pods fit, and their status can be written by hand.
    SimulatedPods,
    /// The life of pods can be scripted by KWOK's Stages.
    Stages,
    /// Parts of the control plane can be ended and started.
    ControlPlane,
    /// The API server and etcd can be told where to send traces.
    TracedControlPlane,
    /// The admission plug-in OwnerReferencesPermissionEnforcement is on.
    StrictOwners,
    /// A cluster that no other scenario sees, for changes to what all share.
    OwnCluster,
    /// Operators that are processes of this machine: to be killed, frozen, asked to end, put behind a proxy.
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

/// What there is.
#[derive(Clone, Debug)]
pub struct Has(BTreeSet<Need>);

impl Has {
    /// What the clusters of this way have for certain, before one of them is there, with operators as processes or not.
    pub fn by(way: &Way, processes: bool) -> Self {
        use Need::*;
        let mut has: BTreeSet<_> = match way {
            Way::Local => {
                [AuditLog, SimulatedPods, Stages, ControlPlane, TracedControlPlane, StrictOwners, OwnCluster].into()
            }
            // Whether nodes are simulated shows when one is there.
            Way::K3s(_) => [AuditLog, SimulatedPods, StrictOwners, OwnCluster].into(),
            Way::Kubeconfig(_) => [SimulatedPods].into(),
        };
        if processes {
            has.insert(Processes);
        }
        Self(has)
    }

    /// Without what its nodes turn out not to be.
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

    /// What of these it has not, in words; nothing where it has them all.
    pub fn lacks(&self, needs: &[Need]) -> Option<String> {
        let missing: Vec<_> = needs.iter().filter(|need| !self.this(**need)).map(Need::to_string).collect();
        (!missing.is_empty()).then(|| format!("needs {}", missing.join(" and ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let local = Has::by(&Way::Local, false);
        assert_eq!(local.lacks(&[Need::AuditLog, Need::Stages]), None);
        let missing = local.lacks(&[Need::AuditLog, Need::Processes]);
        assert_eq!(missing.as_deref(), Some("needs operators that are processes of this machine"));
    }
}
