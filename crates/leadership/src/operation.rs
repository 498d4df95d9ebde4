//! One operation on the Lease: a read and a write by `kube-leader-election`, made safe.
//!
//! Left alone, that lock believes the wall clock about expiry, writes without a resourceVersion, and stumbles over a
//! Lease in which something is missing. So its client passes through a layer, made anew for each operation, which
//! - notes what is read, when a write is sent, and what it is answered
//! - shows the lock a whole Lease, expired exactly when it may be taken by our own observation, and held for ever when not
//! - puts the version that this operation read into its write, once; a write without one is refused

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::{Client, client::Body};
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::{Value, json};
use tower::{BoxError, Service};

use super::{
    lease::Lease,
    observation::{Observation, WentBack},
    promise::{Rules, Version},
    timing::Timing,
};
use crate::{
    answer::{is_absent, is_rejection},
    env::Env,
    text::in_full,
};

/// What an election is made of: which Lease, by whom, and how.
#[derive(Clone)]
pub struct Setting {
    /// A client that needs no leadership, with connections of its own.
    pub client: Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The holder identity of this process: no other process, and no earlier one, has the same.
    pub identity: String,
    /// The durations.
    pub timing: Timing,
    /// Time and chance.
    pub env: Env,
    /// The rules.
    pub rules: Rules,
}

/// What an operation is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Intent {
    /// To take the Lease if it is free.
    Take,
    /// To renew it while it is ours.
    Renew,
}

/// Why an operation came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The Lease is older than it was.
    #[error(transparent)]
    WentBack(#[from] WentBack),
    /// Another candidate was faster.
    #[error("another one was faster")]
    Conflict,
    /// Nobody knows what became of it.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The lock could not read or write it.
    #[error("{0}")]
    Lock(String),
    /// The API server accepted the write, and answered something that does not name us.
    #[error("the API server answered the write of the Lease with a Lease of somebody else")]
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
    /// Takes or renews the Lease. Answers from when on the term is counted, or nothing where the Lease is somebody else's.
    ///
    /// # Errors
    ///
    /// When the API server does not answer or refuses, and when the Lease went back.
    pub async fn hold(
        &self,
        intent: Intent,
        observation: &Arc<Mutex<Observation>>,
    ) -> Result<Option<Timestamp>, OperationError> {
        let (lock, layer) = self.lock(intent, observation);
        let result = lock.try_acquire_or_renew().await;
        let mut notes = layer.notes();
        if let Some(went_back) = notes.went_back.take() {
            return Err(went_back.into());
        }
        match result? {
            LeaseLockResult::NotAcquired(_) => Ok(None),
            LeaseLockResult::Acquired(_) => notes.term_from.map(Some).ok_or(OperationError::NotOurs),
        }
    }

    /// Releases the Lease.
    ///
    /// # Errors
    ///
    /// When the API server does not answer or refuses, and when the Lease is not ours any more.
    pub async fn release(&self, observation: &Arc<Mutex<Observation>>) -> Result<(), OperationError> {
        Ok(self.lock(Intent::Renew, observation).0.step_down().await?)
    }

    fn lock(&self, intent: Intent, observation: &Arc<Mutex<Observation>>) -> (LeaseLock, Layer) {
        let layer = Layer { setting: self.clone(), intent, observation: observation.clone(), notes: Arc::default() };
        let parameters = LeaseLockParams {
            lease_name: self.name.clone(),
            holder_id: self.identity.clone(),
            lease_ttl: self.timing.lease_duration.unsigned_abs(),
        };
        (LeaseLock::new(Client::new(layer.clone(), &*self.namespace), &self.namespace, parameters), layer)
    }
}

/// What is known of the operation so far.
#[derive(Default)]
struct Notes {
    /// The version that was read, until a write takes it.
    read: Option<String>,
    /// From when on the term is counted, once a write was answered that names us.
    term_from: Option<Timestamp>,
    went_back: Option<WentBack>,
}

/// The layer between the lock and its client.
#[derive(Clone)]
struct Layer {
    setting: Setting,
    intent: Intent,
    observation: Arc<Mutex<Observation>>,
    notes: Arc<Mutex<Notes>>,
}

/// What the lock is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shown {
    /// Held by us.
    Ours,
    /// Expired.
    Free,
    /// Held for ever.
    Held,
}

impl Layer {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observation(&self) -> MutexGuard<'_, Observation> {
        self.observation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (env, rules) = (&self.setting.env, &self.setting.rules);
        let (known, before) = {
            let observation = self.observation();
            (observation.highest(), observation.expired(env.now()))
        };
        let (status, body) = exchange(&self.setting.client, request).await?;
        let lease = match status {
            StatusCode::NOT_FOUND if says_absent(&body, &self.setting.name) => None,
            StatusCode::NOT_FOUND => return Err(NOT_OF_THE_API_SERVER.into()),
            status if status.is_success() => Some(serde_json::from_slice::<Lease>(&body)?),
            status => return Ok(response(status, body)),
        };
        if lease.as_ref().is_some_and(|lease| lease.version() == 0) {
            return Err(NOT_OF_THE_API_SERVER.into());
        }
        let read = lease.as_ref().map_or(0, Lease::version);
        self.notes().read = lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
        let mut observation = self.observation();
        if let Err(went_back) = observation.read(lease, known, env.now()) {
            self.notes().went_back = Some(went_back);
            return Err(went_back.into());
        }
        let shown = match self.intent {
            Intent::Take if (rules.is_free)(before, observation.expired(env.now()), read) => Shown::Free,
            // One that was made anew is another one, whoever stands in it.
            Intent::Renew if observation.is_ours() => Shown::Ours,
            Intent::Take | Intent::Renew => Shown::Held,
        };
        drop(observation);
        if status == StatusCode::NOT_FOUND && shown == Shown::Free {
            return Ok(response(status, body));
        }
        let whole = if status == StatusCode::NOT_FOUND { json!({}) } else { serde_json::from_slice(&body)? };
        self.show(whole, shown)
    }

    /// The Lease for the lock: complete, and with a verdict that it cannot mistake.
    fn show(&self, mut lease: Value, shown: Shown) -> Result<Response<Body>, BoxError> {
        const LONG_AGO: &str = "1970-01-01T00:00:00.000000Z";
        const NEVER: &str = "9000-01-01T00:00:00.000000Z";
        let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default();
        let (holder, renewed) = match shown {
            Shown::Ours => (self.setting.identity.as_str(), NEVER),
            Shown::Free => ("", LONG_AGO),
            // Whoever stands in it, also if that is us: the lock would renew what bears our name.
            Shown::Held => ("somebody else", NEVER),
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
        let (head, body) = request.into_parts();
        let mut body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        if head.method != Method::POST {
            match (self.setting.rules.version)(&mut self.notes().read) {
                Version::Exactly(version) => body["metadata"]["resourceVersion"] = json!(version),
                Version::Unknown => return Err("a write of the Lease without a read before it is refused".into()),
                Version::Any => {}
            }
        }
        let (env, rules) = (&self.setting.env, &self.setting.rules);
        let sent = env.now();
        let request = Request::from_parts(head, Body::from(serde_json::to_vec(&body)?));
        self.observation().writes();
        let (status, answer) = exchange(&self.setting.client, request).await?;
        if status.is_success() {
            let lease: Lease = serde_json::from_slice(&answer)?;
            if lease.holder() == Some(self.setting.identity.as_str()) {
                let answered = env.now();
                self.notes().term_from = Some((rules.term_from)(sent, answered));
                self.observation().wrote(lease, answered);
            }
        } else if is_rejection(status) {
            self.observation().refused();
        }
        Ok(response(status, answer))
    }
}

/// Why an answer is not believed: what stands before an API server answers by itself when that is away.
const NOT_OF_THE_API_SERVER: &str = "the answer is not one of a Kubernetes API server";

/// Whether this body of a 404 is the API server's word that there is no Lease of this name.
fn says_absent(body: &[u8], name: &str) -> bool {
    serde_json::from_slice(body).is_ok_and(|status| is_absent(&status, name))
}

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

impl Service<Request<Body>> for Layer {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let layer = self.clone();
        Box::pin(async move {
            match *request.method() {
                Method::GET => layer.read(request).await,
                _ => layer.write(request).await,
            }
        })
    }
}
