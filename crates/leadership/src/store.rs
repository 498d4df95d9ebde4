//! Writes of the Lease. The rules of the election do not depend on how it is written: they decide before each write.

#[cfg(feature = "kube-leader-election")]
mod kube_leader_election;

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Candidate, lease::RELEASED};

/// The field manager of [`Store::Api`].
const MANAGER: &str = "leadership";

/// What a write of the Lease does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// This process becomes the holder.
    Take,
    /// The holder stays, and renews.
    Renew,
    /// There is no holder any more, and others may take the Lease at once.
    Release,
}

/// One write of the Lease.
pub struct LeaseWrite {
    pub change: Change,
    /// The Lease as this operation read it; `None` if there is none.
    pub read: Option<Lease>,
    /// The resourceVersion that the write must carry, so that it fails if the Lease has changed since. `None` if the write creates
    /// the Lease; otherwise only a test omits it.
    pub version: Option<String>,
}

impl LeaseWrite {
    /// The `leaseTransitions` after a [`Change::Take`].
    fn transitions(&self) -> i32 {
        let before = |lease: &Lease| lease.spec.as_ref()?.lease_transitions;
        self.read.as_ref().map_or(0, |lease| before(lease).unwrap_or_default().saturating_add(1).max(0))
    }
}

/// What writes the Lease.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Store {
    /// kube's [`Api`].
    #[default]
    Api,
    /// The crate `kube-leader-election`.
    #[cfg(feature = "kube-leader-election")]
    KubeLeaderElection,
}

impl Store {
    /// Sends one request. Returns the Lease as the API server answered; `None` if that is not known, after a release.
    pub(crate) async fn write(
        self,
        client: &Client,
        candidate: &Candidate,
        write: LeaseWrite,
    ) -> kube::Result<Option<Lease>> {
        match self {
            Store::Api => write_with_api(client, candidate, write).await.map(Some),
            #[cfg(feature = "kube-leader-election")]
            Store::KubeLeaderElection => kube_leader_election::write(client, candidate, write).await,
        }
    }
}

async fn write_with_api(client: &Client, candidate: &Candidate, write: LeaseWrite) -> kube::Result<Lease> {
    let Candidate { namespace, name, identity, timing, env, .. } = candidate;
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let now = json!(MicroTime(env.clock.wall()));
    let mut spec = json!({ "renewTime": now, "leaseDurationSeconds": timing.lease_duration.as_secs() });
    match write.change {
        Change::Renew => {}
        Change::Take => {
            spec["holderIdentity"] = json!(identity);
            spec["acquireTime"] = now;
            spec["leaseTransitions"] = json!(write.transitions());
        }
        Change::Release => {
            spec["holderIdentity"] = json!("");
            spec["leaseDurationSeconds"] = json!(RELEASED);
        }
    }
    let field_manager = Some(MANAGER.to_owned());
    if write.read.is_some() {
        let metadata = write.version.map_or(json!({}), |version| json!({ "resourceVersion": version }));
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
        return leases.patch(name, &PatchParams { field_manager, ..PatchParams::default() }, &patch).await;
    }
    let lease = json!({ "metadata": { "name": name }, "spec": spec });
    let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    leases.create(&PostParams { field_manager, ..PostParams::default() }, &lease).await
}
