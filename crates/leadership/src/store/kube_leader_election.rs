//! Writes of the Lease by `kube-leader-election`.
//!
//! By itself, its [`LeaseLock`] judges expiry by the wall clock, writes without a resourceVersion, and fails on a Lease with missing
//! fields. So it gets a client that answers its read at once with a complete Lease from which it makes the intended write, and that adds
//! the resourceVersion to this write.

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, client::Body};
use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::{Value, json};
use tower::BoxError;

use super::{Change, LeaseWrite};
use crate::Candidate;

/// Writes the Lease with `kube-leader-election`. After a release, the answer is not known.
pub async fn write(client: &Client, candidate: &Candidate, write: LeaseWrite) -> kube::Result<Option<Lease>> {
    let Candidate { namespace, name, identity, timing, .. } = candidate;
    let parameters = LeaseLockParams {
        lease_name: name.clone(),
        holder_id: identity.clone(),
        lease_ttl: timing.lease_duration.unsigned_abs(),
    };
    let (shown, version, client) = (shown(&write, name, identity), write.version, client.clone());
    let service = tower::service_fn(move |request| handle(client.clone(), version.clone(), shown.clone(), request));
    let lock = LeaseLock::new(Client::new(service, namespace.as_str()), namespace, parameters);
    if write.change == Change::Release {
        return lock.step_down().await.map(|()| None).map_err(cause);
    }
    match lock.try_acquire_or_renew().await.map_err(cause)? {
        LeaseLockResult::Acquired(lease) | LeaseLockResult::NotAcquired(lease) => Ok(Some(lease)),
    }
}

/// kube's error, if the write failed.
fn cause(error: Error) -> kube::Error {
    match error {
        Error::CreateLease(cause)
        | Error::AcquireLease(cause)
        | Error::RenewLease(cause)
        | Error::ReleaseLease(cause) => cause,
        other => kube::Error::Service(other.into()),
    }
}

/// Answers the read with what is `shown`, and forwards the write with the `version`.
async fn handle(
    client: Client,
    version: Option<String>,
    shown: Value,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    if request.method() == Method::GET {
        let code = shown["code"].as_u64().map_or(StatusCode::OK, |_| StatusCode::NOT_FOUND);
        return Ok(Response::builder().status(code).body(Body::from(serde_json::to_vec(&shown)?))?);
    }
    let (head, body) = request.into_parts();
    let mut body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    Ok(client.send(Request::from_parts(head, Body::from(serde_json::to_vec(&body)?))).await?)
}

/// A complete Lease that lets the lock write: it has expired if the lock is to take it, and otherwise it is the lock's own.
fn shown(write: &LeaseWrite, name: &str, identity: &str) -> Value {
    if write.read.is_none() {
        return json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 });
    }
    let long_ago = "1970-01-01T00:00:00.000000Z";
    let spec = json!({
        "holderIdentity": if write.change == Change::Take { "" } else { identity },
        "leaseDurationSeconds": 1,
        "acquireTime": long_ago,
        "renewTime": long_ago,
        // The lock adds one.
        "leaseTransitions": i64::from(write.transitions()) - 1,
    });
    json!({ "metadata": { "name": name }, "spec": spec })
}
