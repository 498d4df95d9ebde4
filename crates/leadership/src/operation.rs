//! One operation on the Lease: a read, and a write if the rules allow it.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::Notify;

use crate::{
    Candidate,
    answer::is_absent,
    lease::{holder, version},
    lock,
    observation::{Observation, WentBack},
    store::{Change, LeaseWrite},
};

/// Why a leader lost the lease. The process must exit. The next leader continues its work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Lost {
    /// The lease could not be renewed for this many seconds.
    #[error("lost the lease: it could not be renewed for {0} s")]
    Deadline(i64),
    /// The Lease has another holder or none, or was deleted or recreated.
    #[error("lost the lease: {0}")]
    Taken(String),
    /// The Lease went back to an older version.
    #[error(transparent)]
    WentBack(#[from] WentBack),
}

/// Why an operation on the Lease failed. The election tries again, except after `WentBack`, which ends it.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    #[error(transparent)]
    WentBack(#[from] WentBack),
    #[error("another candidate wrote the Lease first")]
    Conflict,
    #[error("the API server cannot be reached, or rejected the request")]
    Kube(#[source] kube::Error),
    /// No answer in time, or one that makes no sense. A write may or may not take effect.
    #[error("{0}")]
    Unexpected(&'static str),
}

/// The operations of one candidate.
pub struct Operations {
    pub candidate: Candidate,
    /// A client that needs no leadership.
    pub client: Client,
    pub observation: Arc<Mutex<Observation>>,
    /// Wakes the election after each event of the watch.
    pub news: Notify,
}

impl Operations {
    /// Takes, renews or releases the Lease if the rules allow it. Returns when a term begins to count, or when the release was sent; `None`
    /// if nothing was written.
    pub async fn run(&self, change: Change) -> Result<Option<Timestamp>, OperationError> {
        // Half of the deadline leaves time for another attempt.
        let patience = (self.candidate.timing.renew_deadline / 2).unsigned_abs();
        let operation = tokio::time::timeout(patience, self.read_and_write(change));
        operation.await.unwrap_or(Err(OperationError::Unexpected("the API server did not answer in time")))
    }

    async fn read_and_write(&self, change: Change) -> Result<Option<Timestamp>, OperationError> {
        let Candidate { env, rules, .. } = &self.candidate;
        let (known, before) = {
            let observation = lock(&self.observation);
            (observation.highest(), observation.expired(env.now()))
        };
        let lease = self.read().await?;
        let is_due = {
            let mut observation = lock(&self.observation);
            observation.read(lease.clone(), known, env.now())?;
            let read = lease.as_ref().map_or(0, version);
            match change {
                Change::Take => (rules.is_free)(before, observation.expired(env.now()), read),
                // A recreated Lease is a different one, even if it names this process.
                Change::Renew | Change::Release => lease.is_some() && observation.is_ours(),
            }
        };
        if is_due { self.write(change, lease).await } else { Ok(None) }
    }

    async fn read(&self) -> Result<Option<Lease>, OperationError> {
        let Candidate { namespace, name, .. } = &self.candidate;
        match Api::<Lease>::namespaced(self.client.clone(), namespace).get(name).await {
            Ok(lease) if version(&lease) > 0 => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if is_absent(&status, name) => Ok(None),
            Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 404) => {
                Err(OperationError::Kube(error))
            }
            // A proxy or a load balancer answered, as they do while the API server is away.
            _ => Err(OperationError::Unexpected("the answer does not come from a Kubernetes API server")),
        }
    }

    async fn write(&self, change: Change, read: Option<Lease>) -> Result<Option<Timestamp>, OperationError> {
        let Candidate { identity, env, rules, store, .. } = &self.candidate;
        let (sent, before) = (env.now(), read.as_ref().map_or(0, version));
        let write = LeaseWrite { change, version: read.as_ref().and_then(rules.version), read };
        match store.write(&self.client, &self.candidate, write).await {
            Ok(_) if change == Change::Release => Ok(Some(sent)),
            // Other candidates cannot see such a write.
            Ok(Some(lease)) if version(&lease) == before => Err(OperationError::Unexpected(
                "the API server accepted the write of the Lease, but did not change it: check the system clock, and webhooks for Leases",
            )),
            Ok(Some(lease)) if holder(&lease) == Some(identity) => {
                let answered = env.now();
                lock(&self.observation).wrote(lease, answered);
                Ok(Some((rules.term_from)(sent, answered)))
            }
            Ok(_) => Err(OperationError::Unexpected(
                "the API server accepted the write of the Lease, but answered with a Lease of another holder",
            )),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(OperationError::Conflict),
            Err(error) => Err(OperationError::Kube(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response, StatusCode};
    use jiff::SignedDuration;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::env::testing::virtual_env;

    /// The Lease of `web-0` at this version.
    fn lease(version: &str) -> Lease {
        let metadata = json!({ "name": "operator", "uid": "a", "resourceVersion": version });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "holderIdentity": "web-0" } })).unwrap()
    }

    /// A candidate that holds the Lease at this version, and what it has seen.
    fn holder(version: &str) -> (Candidate, Arc<Mutex<Observation>>) {
        let mut candidate = Candidate::new("default", "operator", "web-0");
        candidate.identity = "web-0".to_owned();
        candidate.env = virtual_env();
        let mut observation = Observation::new("web-0", SignedDuration::from_secs(15), Ord::max);
        observation.wrote(lease(version), candidate.env.now());
        (candidate, Arc::new(Mutex::new(observation)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_deleted_during_a_renewal_is_not_created_again() {
        let (candidate, observation) = holder("10");
        let now = candidate.env.now();
        let watched = observation.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            // Before the API server reads the Lease, a user labels and deletes it. So far, the watch has shown only the label.
            lock(&watched).watched(lease("11"), now);
            let (code, body) = match *request.method() {
                Method::GET => (
                    404,
                    json!({ "code": 404, "reason": "NotFound", "status": "Failure", "details": { "name": "operator" } }),
                ),
                _ => (201, serde_json::to_value(lease("13")).unwrap()),
            };
            let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
            std::future::ready(answer.body(Body::from(body.to_string().into_bytes())))
        });
        let operations =
            Operations { candidate, client: Client::new(server, "default"), observation, news: Notify::new() };
        assert!(lock(&operations.observation).is_ours());
        assert_eq!(operations.run(Change::Renew).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_changes_nothing_does_not_count() {
        let (candidate, observation) = holder("10");
        let server = tower::service_fn(|_: Request<Body>| {
            let same = serde_json::to_vec(&lease("10")).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(Body::from(same))))
        });
        let operations =
            Operations { candidate, client: Client::new(server, "default"), observation, news: Notify::new() };
        let renewal = operations.run(Change::Renew).await;
        let is_unchanged = |text: &str| text.contains("but did not change it");
        assert!(matches!(renewal, Err(OperationError::Unexpected(text)) if is_unchanged(text)), "{renewal:?}");
    }
}
