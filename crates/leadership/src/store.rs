//! How the Lease is read and written. [`ApiStore`] is the default; with the feature `kube-leader-election`, `KubeLeaderElection` writes it
//! with the crate of that name. The rules of the election do not depend on it: they decide before each write.

#[cfg(feature = "kube-leader-election")]
mod kube_leader_election;

use futures::future::BoxFuture;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Candidate, lease::RELEASED};

#[cfg(feature = "kube-leader-election")]
pub use self::kube_leader_election::KubeLeaderElection;

/// The field manager of [`ApiStore`].
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

/// One write of the Lease. [`Store`] has an example.
#[derive(Clone)]
pub struct LeaseWrite {
    /// What it does.
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

/// Reads and writes the Lease of a candidate. Each call sends one request.
///
/// ```
/// use futures::future::BoxFuture;
/// use k8s_openapi::api::coordination::v1::Lease;
/// use kube::Client;
/// use leadership::{ApiStore, Candidate, LeaseWrite, Store};
///
/// /// Logs each write.
/// struct Logging;
///
/// impl Store for Logging {
///     fn write<'a>(
///         &'a self,
///         client: &'a Client,
///         candidate: &'a Candidate,
///         write: LeaseWrite,
///     ) -> BoxFuture<'a, kube::Result<Option<Lease>>> {
///         println!("{:?} at version {:?}", write.change, write.version);
///         ApiStore.write(client, candidate, write)
///     }
/// }
///
/// let mut candidate = Candidate::new("default", "my-operator", "replica-1");
/// candidate.store = std::sync::Arc::new(Logging);
/// ```
pub trait Store: Send + Sync + 'static {
    /// Reads the Lease, consistently.
    fn read<'a>(&'a self, client: &'a Client, candidate: &'a Candidate) -> BoxFuture<'a, kube::Result<Lease>> {
        Box::pin(async { Api::namespaced(client.clone(), &candidate.namespace).get(&candidate.name).await })
    }

    /// Writes the Lease. Returns it as the API server answered, where the implementation knows that.
    fn write<'a>(
        &'a self,
        client: &'a Client,
        candidate: &'a Candidate,
        write: LeaseWrite,
    ) -> BoxFuture<'a, kube::Result<Option<Lease>>>;
}

/// Writes the Lease with [`Api`]. This is the default, and [`Store`] has an example.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiStore;

impl Store for ApiStore {
    fn write<'a>(
        &'a self,
        client: &'a Client,
        candidate: &'a Candidate,
        write: LeaseWrite,
    ) -> BoxFuture<'a, kube::Result<Option<Lease>>> {
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
        Box::pin(async move {
            let field_manager = Some(MANAGER.to_owned());
            if write.read.is_some() {
                let metadata = write.version.map_or(json!({}), |version| json!({ "resourceVersion": version }));
                let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
                let parameters = PatchParams { field_manager, ..PatchParams::default() };
                return leases.patch(name, &parameters, &patch).await.map(Some);
            }
            let lease = json!({ "metadata": { "name": name }, "spec": spec });
            let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            leases.create(&PostParams { field_manager, ..PostParams::default() }, &lease).await.map(Some)
        })
    }
}
