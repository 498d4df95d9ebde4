//! A minimal API server: enough for the operator to manage one PodSet and to be elected. Pods soon become ready.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use testkit::object;
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::Instant,
};

use operator_kit::lock;

/// How long a pod takes to become ready: longer than a reconcile.
const READY: Duration = Duration::from_millis(200);

const SETS: &str = "/apis/app.example.com/v1alpha1";

/// A running server. It stops when this is dropped.
pub struct ApiServer {
    /// Host and port.
    pub address: String,
    state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    /// Method and path, without the query.
    pub line: String,
    /// W3C Trace Context.
    pub traceparent: Option<String>,
    /// When it was received.
    pub when: Instant,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Objects by kind (`pods`, …) and name.
    objects: BTreeMap<(&'static str, String), Value>,
    watches: Vec<(&'static str, mpsc::UnboundedSender<String>)>,
    received: Vec<Received>,
    rejects_pods: bool,
    /// Creates of pods wait for this.
    holds_pods: Option<Arc<Notify>>,
}

impl State {
    fn put(&mut self, kind: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object::name(&object).to_owned();
        let is_new = self.objects.insert((kind, name), object.clone()).is_none();
        self.notify(kind, if is_new { "ADDED" } else { "MODIFIED" }, &object);
        object
    }

    fn remove(&mut self, kind: &'static str, name: &str) -> Option<Value> {
        let mut object = self.objects.remove(&(kind, name.to_owned()))?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.notify(kind, "DELETED", &object);
        Some(object)
    }

    fn notify(&mut self, kind: &'static str, event: &str, object: &Value) {
        let line = line(event, object);
        self.watches.retain(|(watched, watch)| *watched != kind || watch.send(line.clone()).is_ok());
    }
}

impl ApiServer {
    /// Starts a server without objects, at a free local port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State { version: 1, ..State::default() }));
        let server = tokio::spawn(serve(listener, state.clone()));
        ApiServer { address, state, server }
    }

    /// Creates the PodSet `web`, or changes its spec.
    pub fn scale(&self, replicas: u32) {
        let mut state = lock(&self.state);
        let former = state.objects.get(&("podsets", "web".to_owned())).cloned();
        let mut set = former.unwrap_or_else(|| {
            json!({
                "apiVersion": "app.example.com/v1alpha1",
                "kind": "PodSet",
                "metadata": { "name": "web", "namespace": "shop", "uid": "set-1", "generation": 0 },
            })
        });
        set["metadata"]["generation"] = json!(set["metadata"]["generation"].as_u64().unwrap() + 1);
        set["spec"]["replicas"] = json!(replicas);
        state.put("podsets", set);
    }

    /// Rejects creates of pods from now on, by a quota.
    pub fn reject_pods(&self) {
        lock(&self.state).rejects_pods = true;
    }

    /// Holds creates of pods from now on. Each notification releases one.
    pub fn hold_pods(&self) -> Arc<Notify> {
        lock(&self.state).holds_pods.get_or_insert_default().clone()
    }

    /// Gives the Lease to another holder.
    pub fn take_lease(&self) {
        let mut state = lock(&self.state);
        let mut lease = state.objects[&("leases", "podset-operator".to_owned())].clone();
        lease["spec"]["holderIdentity"] = json!("somebody else");
        state.put("leases", lease);
    }

    /// How many pods there are.
    pub fn pods(&self) -> usize {
        lock(&self.state).objects.keys().filter(|(kind, _)| *kind == "pods").count()
    }

    /// Whether the stored status has observed this generation, and its condition Ready is True.
    pub fn is_ready(&self, generation: u64) -> bool {
        let state = lock(&self.state);
        let Some(set) = state.objects.get(&("podsets", "web".to_owned())) else { return false };
        set["status"]["observedGeneration"] == generation && object::is_ready(set)
    }

    /// The received requests.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.state).received.clone()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        let service = hyper::service::service_fn(move |request| answer(state.clone(), request));
        connections.spawn(async move {
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let shared = state.clone();
    let is_create = head.method == Method::POST && path.ends_with("/pods");
    let held = lock(&state).holds_pods.clone().filter(|_| is_create);
    if let Some(held) = held {
        held.notified().await;
    }
    let mut state = lock(&state);
    let traceparent = head.headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned());
    state.received.push(Received { line: format!("{} {path}", head.method), traceparent, when: Instant::now() });
    let parts: Vec<&str> = path.trim_start_matches(SETS).trim_start_matches('/').split('/').collect();
    Ok(match (&head.method, &parts[..]) {
        (&Method::GET, [.., "pods" | "podsets" | "mycustomresources" | "leases"]) => {
            let kinds = ["/pods", "/podsets", "/mycustomresources", "/leases"];
            let kind = &kinds.into_iter().find(|kind| path.ends_with(kind)).unwrap()[1..];
            if query.contains("watch=true") { watch(&mut state, kind, query) } else { reply(200, &list(&state, kind)) }
        }
        (&Method::POST, [.., "pods"]) => create_pod(&shared, &mut state, body),
        (&Method::POST, [.., "leases"]) => reply(201, &state.put("leases", body)),
        (&Method::GET, [.., "leases", name]) => match state.objects.get(&("leases", (*name).to_owned())) {
            Some(lease) => reply(200, lease),
            None => not_found("leases", name),
        },
        (&Method::PATCH, [.., "leases", name]) => {
            let mut lease = state.objects[&("leases", (*name).to_owned())].clone();
            json_patch::merge(&mut lease["spec"], &body["spec"]);
            reply(200, &state.put("leases", lease))
        }
        (&Method::POST, [.., "events"]) => reply(201, &body),
        // Every user is authenticated and may do everything.
        (&Method::POST, [.., "tokenreviews"]) => {
            reviewed(body, json!({ "authenticated": true, "user": { "username": "me" } }))
        }
        (&Method::POST, [.., "subjectaccessreviews"]) => reviewed(body, json!({ "allowed": true })),
        (&Method::DELETE, [.., "pods", name]) => match state.remove("pods", name) {
            Some(pod) => reply(200, &pod),
            None => not_found("pods", name),
        },
        (&Method::PATCH, [.., "podsets", name, "status"]) => {
            let Some(mut set) = state.objects.get(&("podsets", (*name).to_owned())).cloned() else {
                return Ok(not_found("podsets", name));
            };
            set["status"] = body["status"].clone();
            reply(200, &state.put("podsets", set))
        }
        _ => rejection(404, "NotFound", "the server could not find the requested resource", Value::Null),
    })
}

fn reviewed(mut review: Value, status: Value) -> Response<Body> {
    review["status"] = status;
    reply(201, &review)
}

fn create_pod(shared: &Arc<Mutex<State>>, state: &mut State, mut pod: Value) -> Response<Body> {
    if state.rejects_pods {
        let message = format!("pods \"{}\" is forbidden: exceeded quota: small", object::name(&pod));
        return rejection(403, "Forbidden", &message, Value::Null);
    }
    pod["metadata"]["uid"] = json!(format!("pod-{}", state.version));
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["status"] = json!({ "phase": "Pending" });
    let made = state.put("pods", pod);
    let mut running = made.clone();
    running["status"] = json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    });
    let shared = shared.clone();
    tokio::spawn(async move {
        tokio::time::sleep(READY).await;
        let mut state = lock(&shared);
        let name = object::name(&running).to_owned();
        if state.objects.contains_key(&("pods", name)) {
            state.put("pods", running);
        }
    });
    reply(201, &made)
}

fn list(state: &State, kind: &str) -> Value {
    let items: Vec<&Value> =
        state.objects.iter().filter(|((of, _), _)| *of == kind).map(|(_, object)| object).collect();
    json!({ "metadata": { "resourceVersion": state.version.to_string() }, "items": items })
}

/// A line of a watch, like that of a real API server: the type comes first.
fn line(event: &str, object: &Value) -> String {
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
}

/// Events from now on, and the objects that changed since the list.
fn watch(state: &mut State, kind: &'static str, query: &str) -> Response<Body> {
    let since: u64 = query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).unwrap().parse().unwrap();
    let (send, receive) = mpsc::unbounded_channel();
    for ((of, _), object) in &state.objects {
        if *of == kind && object::version(object) > since {
            send.send(line("ADDED", object)).unwrap();
        }
    }
    state.watches.push((kind, send));
    let lines = stream::unfold(receive, |mut receive| async move {
        let line = receive.recv().await?;
        Some((Ok(Frame::data(Bytes::from(line))), receive))
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

fn reply(code: u16, object: &Value) -> Response<Body> {
    let mut response = Response::new(Full::from(object.to_string()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn rejection(code: u16, reason: &str, message: &str, details: Value) -> Response<Body> {
    reply(
        code,
        &json!({
            "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
        }),
    )
}

fn not_found(kind: &str, name: &str) -> Response<Body> {
    let message = format!("{kind} \"{name}\" not found");
    rejection(404, "NotFound", &message, json!({ "name": name, "kind": kind }))
}
