//! An API server with one Lease and creates of pods, on virtual time. It knows which writes took effect while another process held the Lease.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Frame, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    io::{DuplexStream, duplex},
    sync::Notify,
    time::{Instant, sleep},
};
use tower::BoxError;

/// The latency of a request, and of its response.
const LATENCY: Duration = Duration::from_millis(10);

/// At most this many bytes of a create are in transit.
const WINDOW: usize = 1 << 16;

/// What happens to the requests of one replica.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// Its requests for the Lease are lost.
    pub lease_cut: bool,
    /// Its watch of the Lease shows nothing.
    pub watch_muted: bool,
    /// Its watch of the Lease is late.
    pub watch_late: Duration,
    /// The responses to its writes of the Lease are late.
    pub answers_late: Duration,
    /// Its creates arrive late.
    pub creates_late: Duration,
    /// Its creates are executed late, and get no response.
    pub creates_unanswered: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Create {
    pub by: String,
    pub holder: String,
    pub at: Instant,
}

#[derive(Default)]
struct State {
    version: u64,
    lease: Option<Value>,
    /// All watch events of the Lease: version, type and object.
    events: Vec<(u64, &'static str, Value)>,
    creates: Vec<Create>,
    /// `METHOD replica` of each request for the Lease.
    requests: Vec<String>,
    faults: BTreeMap<String, Faults>,
}

#[derive(Clone, Default)]
pub struct Server {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn faults(&self, name: &str) -> Faults {
        self.state().faults.get(name).copied().unwrap_or_default()
    }

    pub fn set(&self, name: &str, set: impl FnOnce(&mut Faults)) {
        set(self.state().faults.entry(name.to_owned()).or_default());
    }

    /// The requests for the Lease since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    pub fn creates(&self) -> Vec<Create> {
        self.state().creates.clone()
    }

    /// The creates that took effect after this moment and were not sent by the holder of the Lease.
    pub fn strays_after(&self, moment: Instant) -> Vec<Create> {
        let mut creates = self.creates();
        creates.retain(|create| create.at > moment && !create.holder.starts_with(&format!("{}_", create.by)));
        creates
    }

    /// Writes the Lease as a user does; `None` deletes it.
    pub fn edit(&self, spec: Option<Value>) {
        let state = &mut *self.state();
        let name = state.lease.as_ref().unwrap()["metadata"]["name"].clone();
        match spec {
            Some(spec) => store(state, &name, spec, false),
            None => {
                state.version += 1;
                let mut gone = state.lease.take().unwrap();
                gone["metadata"]["resourceVersion"] = json!(state.version.to_string());
                state.events.push((state.version, "DELETED", gone));
            }
        }
        self.changed.notify_waiters();
    }

    /// A client of this replica that needs no leadership.
    pub fn client(&self, name: &str) -> Client {
        let (server, name) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let carried = tokio::spawn(server.clone().carry(name.clone(), request));
            async move { carried.await? }
        });
        Client::new(service, "default")
    }

    async fn carry(
        self,
        name: String,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, BoxError> {
        self.state().requests.push(format!("{} {name}", request.method()));
        sleep(LATENCY).await;
        if self.faults(&name).lease_cut {
            return Err("cut".into());
        }
        let (head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default();
        if query.contains("watch=true") {
            let from = query.split("resourceVersion=").nth(1).unwrap().split('&').next().unwrap().parse()?;
            return Ok(Response::new(self.watch(name, from)));
        }
        let body = body.collect().await?.to_bytes();
        let write = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
        let (code, answer) = self.answer(&head.method, head.uri.path(), &write);
        sleep(LATENCY).await;
        if head.method != Method::GET {
            sleep(self.faults(&name).answers_late).await;
        }
        let body = Full::from(serde_json::to_vec(&answer)?).boxed_unsync();
        Ok(Response::builder().status(code).body(body)?)
    }

    fn answer(&self, method: &Method, path: &str, write: &Value) -> (u16, Value) {
        let state = &mut *self.state();
        let status = |code: u16, reason: &str, name: &str| {
            let details = json!({ "name": name });
            (code, json!({ "status": "Failure", "reason": reason, "code": code, "details": details }))
        };
        let name = path.split("/leases").nth(1).unwrap().trim_start_matches('/');
        match (method.as_str(), &state.lease) {
            ("GET", lease) if name.is_empty() => {
                let items: Vec<&Value> = lease.iter().collect();
                (200, json!({ "metadata": { "resourceVersion": state.version.to_string() }, "items": items }))
            }
            ("GET", Some(lease)) => (200, lease.clone()),
            ("GET" | "PATCH", None) => status(404, "NotFound", name),
            ("POST", Some(_)) => status(409, "AlreadyExists", name),
            ("POST", None) => {
                store(state, &write["metadata"]["name"], write["spec"].clone(), true);
                self.changed.notify_waiters();
                (201, state.lease.clone().unwrap())
            }
            ("PATCH", Some(lease)) => {
                let version = &write["metadata"]["resourceVersion"];
                if !version.is_null() && *version != lease["metadata"]["resourceVersion"] {
                    return status(409, "Conflict", name);
                }
                let mut spec = lease["spec"].clone();
                for (field, value) in write["spec"].as_object().unwrap() {
                    spec[field] = value.clone();
                }
                store(state, &json!(name), spec, false);
                self.changed.notify_waiters();
                (200, state.lease.clone().unwrap())
            }
            other => panic!("unexpected request {other:?}"),
        }
    }

    fn watch(self, name: String, from: u64) -> UnsyncBoxBody<Bytes, Infallible> {
        let events = stream::unfold((self, name, from), |(server, name, from)| async move {
            loop {
                let changed = server.changed.clone();
                let changed = changed.notified();
                let next = server.state().events.iter().find(|(version, ..)| *version > from).cloned();
                if let Some((version, kind, lease)) = next
                    && !server.faults(&name).watch_muted
                {
                    sleep(LATENCY + server.faults(&name).watch_late).await;
                    let event = format!("{}\n", json!({ "type": kind, "object": lease }));
                    return Some((Ok(Frame::data(Bytes::from(event))), (server, name, version)));
                }
                changed.await;
            }
        });
        StreamBody::new(events).boxed_unsync()
    }

    /// A connection for the creates of this replica.
    pub fn dial(&self, name: &str) -> DuplexStream {
        let (ours, theirs) = duplex(WINDOW);
        let (server, name) = (self.clone(), name.to_owned());
        let service = service_fn(move |_: Request<hyper::body::Incoming>| {
            // It is executed even if the connection breaks.
            let executed = tokio::spawn(server.clone().create(name.clone()));
            async move {
                executed.await.unwrap();
                Ok::<_, Infallible>(Response::builder().status(201).body(Full::<Bytes>::from("{}")).unwrap())
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(theirs), service));
        ours
    }

    async fn create(self, by: String) {
        let faults = self.faults(&by);
        sleep(LATENCY + faults.creates_late + faults.creates_unanswered.unwrap_or_default()).await;
        {
            let state = &mut *self.state();
            let lease = state.lease.as_ref();
            let holder =
                lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default().to_owned();
            state.creates.push(Create { by, holder, at: Instant::now() });
        }
        if faults.creates_unanswered.is_some() {
            std::future::pending::<()>().await;
        }
        sleep(LATENCY).await;
    }
}

fn store(state: &mut State, name: &Value, spec: Value, is_new: bool) {
    state.version += 1;
    let before = state.lease.as_ref().map(|lease| lease["metadata"]["uid"].clone());
    let uid = before.unwrap_or_else(|| json!(format!("uid-{}", state.version)));
    let version = state.version.to_string();
    let lease = json!({ "metadata": { "name": name, "uid": uid, "resourceVersion": version }, "spec": spec });
    state.events.push((state.version, if is_new { "ADDED" } else { "MODIFIED" }, lease.clone()));
    state.lease = Some(lease);
}
