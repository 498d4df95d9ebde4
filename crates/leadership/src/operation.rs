//! One operation on the Lease: a read and a write by `kube-leader-election`, made safe.
//!
//! By itself, its [`LeaseLock`] judges expiry by the wall clock, writes without a resourceVersion, and fails on a Lease with missing
//! fields. So each operation gives the lock its own client, which
//! - records what it reads, when it sends a write, and the answer
//! - shows the lock a complete Lease: expired if this process may take it by its own observation, else held for ever
//! - adds the version that this operation read to its write, once, and rejects a write without one

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::{Client, client::Body};
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::{Value, json};
use tower::BoxError;

use crate::{
    answer::{is_absent, is_rejection},
    env::Env,
    lease::Lease,
    lock,
    observation::{Observation, WentBack},
    promise::{Rules, Version},
    text::in_full,
    timing::Timing,
};

/// The parameters of an election.
#[derive(Clone)]
pub struct Setting {
    /// A client that needs no leadership, with its own connections.
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The holder identity of this process: no other process, and no earlier one, has the same.
    pub identity: String,
    /// The durations.
    pub timing: Timing,
    /// Time and randomness.
    pub env: Env,
    /// The rules.
    pub rules: Rules,
}

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Intent {
    /// To take the Lease if it is free.
    Take,
    /// To renew it while this process holds it.
    Renew,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The Lease is older than before.
    #[error(transparent)]
    WentBack(#[from] WentBack),
    /// Another candidate wrote the Lease first.
    #[error("another candidate wrote the Lease first")]
    Conflict,
    /// The write may or may not take effect.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The lock could not read or write the Lease.
    #[error("{0}")]
    Lock(String),
    /// The API server accepted the write, and answered with a Lease of another holder.
    #[error("the API server accepted the write of the Lease, but answered with a Lease of another holder")]
    NotOurs,
}

impl From<kube_leader_election::Error> for OperationError {
    fn from(error: kube_leader_election::Error) -> Self {
        use kube_leader_election::Error;

        let (doing, cause) = match error {
            Error::GetLease(cause) | Error::Kube(cause) => ("reading it", cause),
            Error::CreateLease(cause) => ("creating it", cause),
            Error::AcquireLease(cause) => ("taking it", cause),
            Error::RenewLease(cause) => ("renewing it", cause),
            Error::ReleaseLease(cause) => ("releasing it", cause),
            Error::ApiError { response } => ("reading it", kube::Error::Api(response)),
            other => return OperationError::Lock(other.to_string()),
        };
        match cause {
            kube::Error::Api(status) if status.code == 409 => OperationError::Conflict,
            cause => OperationError::Lock(format!("{doing}: {}", in_full(&cause))),
        }
    }
}

impl Setting {
    /// Takes or renews the Lease. Returns when the term begins to count, or `None` if another process holds the Lease.
    ///
    /// # Errors
    ///
    /// When the API server does not answer or rejects the request, and when the Lease went back.
    pub async fn hold(
        &self,
        intent: Intent,
        observation: &Arc<Mutex<Observation>>,
    ) -> Result<Option<Timestamp>, OperationError> {
        let operation = self.operation(intent, observation);
        let result = operation.lease_lock().try_acquire_or_renew().await;
        let mut progress = lock(&operation.progress);
        if let Some(went_back) = progress.went_back.take() {
            return Err(went_back.into());
        }
        match result? {
            LeaseLockResult::NotAcquired(_) => Ok(None),
            LeaseLockResult::Acquired(_) => progress.term_from.map(Some).ok_or(OperationError::NotOurs),
        }
    }

    /// Releases the Lease.
    ///
    /// # Errors
    ///
    /// When the API server does not answer or rejects the request, and when another process holds the Lease.
    pub async fn release(&self, observation: &Arc<Mutex<Observation>>) -> Result<(), OperationError> {
        Ok(self.operation(Intent::Renew, observation).lease_lock().step_down().await?)
    }

    fn operation(&self, intent: Intent, observation: &Arc<Mutex<Observation>>) -> Operation {
        Operation { setting: self.clone(), intent, observation: observation.clone(), progress: Arc::default() }
    }
}

/// What an operation has done so far.
#[derive(Default)]
struct Progress {
    /// The version that it read, until a write takes it.
    read: Option<String>,
    /// When the term begins to count, once the API server accepted a write that names this process.
    term_from: Option<Timestamp>,
    went_back: Option<WentBack>,
}

/// One operation, which handles the lock's requests.
#[derive(Clone)]
struct Operation {
    setting: Setting,
    intent: Intent,
    observation: Arc<Mutex<Observation>>,
    progress: Arc<Mutex<Progress>>,
}

/// The holder that the lock sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shown {
    /// This process.
    Ours,
    /// None: the Lease has expired.
    Free,
    /// Another process, for ever.
    Held,
}

impl Operation {
    fn lease_lock(&self) -> LeaseLock {
        let Setting { namespace, name, identity, timing, .. } = &self.setting;
        let parameters = LeaseLockParams {
            lease_name: name.clone(),
            holder_id: identity.clone(),
            lease_ttl: timing.lease_duration.unsigned_abs(),
        };
        let operation = self.clone();
        let client = tower::service_fn(move |request| operation.clone().handle(request));
        LeaseLock::new(Client::new(client, &**namespace), namespace, parameters)
    }

    async fn handle(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        match *request.method() {
            Method::GET => self.read(request).await,
            _ => self.write(request).await,
        }
    }

    async fn read(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let Setting { client, name, env, rules, .. } = &self.setting;
        let (known, before) = {
            let observation = lock(&self.observation);
            (observation.highest(), observation.expired(env.now()))
        };
        let (status, body) = exchange(client, request).await?;
        let proves_absence = || serde_json::from_slice(&body).is_ok_and(|status| is_absent(&status, name));
        let lease = match status {
            StatusCode::NOT_FOUND if proves_absence() => None,
            StatusCode::NOT_FOUND => return Err(NOT_FROM_THE_API_SERVER.into()),
            status if status.is_success() => Some(serde_json::from_slice::<Lease>(&body)?),
            status => return Ok(response(status, body)),
        };
        let version = lease.as_ref().map_or(0, Lease::version);
        if lease.is_some() && version == 0 {
            return Err(NOT_FROM_THE_API_SERVER.into());
        }
        lock(&self.progress).read = lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
        let is_absent = lease.is_none();
        let mut observation = lock(&self.observation);
        if let Err(went_back) = observation.read(lease, known, env.now()) {
            lock(&self.progress).went_back = Some(went_back);
            return Err(went_back.into());
        }
        let shown = match self.intent {
            Intent::Take if (rules.is_free)(before, observation.expired(env.now()), version) => Shown::Free,
            // A recreated Lease is a different one, even if it names this process.
            Intent::Renew if observation.is_ours() => Shown::Ours,
            Intent::Take | Intent::Renew => Shown::Held,
        };
        drop(observation);
        match is_absent {
            true if shown == Shown::Free => Ok(response(status, body)),
            true => self.show(json!({}), shown),
            false => self.show(serde_json::from_slice(&body)?, shown),
        }
    }

    /// A complete Lease from which the lock makes the right decision.
    fn show(&self, mut lease: Value, shown: Shown) -> Result<Response<Body>, BoxError> {
        const LONG_AGO: &str = "1970-01-01T00:00:00.000000Z";
        const NEVER: &str = "9000-01-01T00:00:00.000000Z";
        let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
        let (holder, renewed) = match shown {
            Shown::Ours => (self.setting.identity.as_str(), NEVER),
            Shown::Free => ("", LONG_AGO),
            // Also if the Lease names this process, because the lock would renew it.
            Shown::Held => ("another process", NEVER),
        };
        lease["spec"] = json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": 1,
            "acquireTime": renewed,
            "renewTime": renewed,
            "leaseTransitions": transitions.clamp(0, i64::from(i32::MAX) - 1),
        });
        Ok(response(StatusCode::OK, serde_json::to_vec(&lease)?))
    }

    async fn write(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let Setting { client, identity, env, rules, .. } = &self.setting;
        let (head, body) = request.into_parts();
        let mut body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        if head.method != Method::POST {
            match (rules.version)(&mut lock(&self.progress).read) {
                Version::Exactly(version) => body["metadata"]["resourceVersion"] = json!(version),
                Version::Unknown => return Err("the Lease cannot be written without a read before".into()),
                Version::Any => {}
            }
        }
        let request = Request::from_parts(head, Body::from(serde_json::to_vec(&body)?));
        let sent = env.now();
        lock(&self.observation).writes();
        let (status, answer) = exchange(client, request).await?;
        if status.is_success() {
            let lease: Lease = serde_json::from_slice(&answer)?;
            if lease.holder() == Some(identity) {
                let answered = env.now();
                lock(&self.progress).term_from = Some((rules.term_from)(sent, answered));
                lock(&self.observation).wrote(lease, answered);
            }
        } else if is_rejection(status) {
            lock(&self.observation).rejected();
        }
        Ok(response(status, answer))
    }
}

/// Proxies and load balancers answer by themselves while the API server is away.
const NOT_FROM_THE_API_SERVER: &str = "the answer does not come from a Kubernetes API server";

/// Sends a request and reads the whole answer.
async fn exchange(client: &Client, request: Request<Body>) -> Result<(StatusCode, Vec<u8>), BoxError> {
    let (head, body) = client.send(request).await?.into_parts();
    Ok((head.status, body.collect().await?.to_bytes().to_vec()))
}

fn response(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
