//! The API client: how requests leave the process.
//!
//! Two clients with connections of their own: a reading one, for watches, lists and single reads, and a writing one,
//! which nothing reaches but through [`Writer`]: it asks for leadership before each request, bounds the request's time on
//! both sides, and sorts every answer into what it proves ([`Answer`]). No layer repeats a request.

use std::{error::Error as StdError, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, StatusCode, header::USER_AGENT};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector, connect::proxy::Tunnel},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    core::Status,
};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tower::{BoxError, Service, ServiceBuilder};

use crate::leader::Leadership;

/// What every request says of its sender.
pub const AGENT: &str = concat!("podset-operator/", env!("CARGO_PKG_VERSION"));

/// How many writes are under way at once. The API server of a small cluster serves creates no faster over more
/// connections.
const WRITES_AT_ONCE: usize = 64;

/// How long a read may take, watches apart.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long written bytes may stay unacknowledged before the connection is given up.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection for writes may lie idle: well below the API server's own 90 s, so that no write meets a
/// connection that is just being closed.
const WRITE_IDLE: Duration = Duration::from_secs(30);

/// Why no client can be made of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The credentials or certificates cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    Config(#[from] kube::Error),
    /// A proxy of a kind that is not supported.
    #[error("the proxy {0} of the kubeconfig cannot be used: only http:// proxies are supported")]
    Proxy(http::Uri),
}

/// Makes a client with connections of its own; `for_writes` gives up dead connections early.
///
/// # Errors
///
/// When the configuration's credentials, certificates or proxy cannot be used.
pub fn connect(config: &Config, for_writes: bool) -> Result<Client, ConnectError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    if for_writes {
        connector.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    }
    match config.proxy_url.as_ref().filter(|_| !goes_direct(config, &std::env::var("NO_PROXY").unwrap_or_default())) {
        None => stack(config, connector),
        Some(proxy) if proxy.scheme_str() == Some("http") => stack(config, Tunnel::new(proxy.clone(), connector)),
        Some(proxy) => Err(ConnectError::Proxy(proxy.clone())),
    }
}

/// Whether the API server is reached without the proxy that the environment names: as in Go, on the machine itself, and
/// where `NO_PROXY` has its host, a domain of it, or `*`.
fn goes_direct(config: &Config, no_proxy: &str) -> bool {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_excepted = |entry: &str| {
        let domain = entry.trim().trim_start_matches('.');
        let is_within = host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        domain == "*" || (!domain.is_empty() && is_within)
    };
    is_loopback || no_proxy.split(',').any(is_excepted)
}

/// The layers between kube's client and the connections: address, credentials, user agent. Nothing that retries.
fn stack<C>(config: &Config, connector: C) -> Result<Client, ConnectError>
where
    C: Service<http::Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + legacy::connect::Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let tls = config.rustls_https_connector_with_connector(connector)?;
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(WRITE_IDLE)
        .retry_canceled_requests(false)
        .build(tls);
    let mut named = config.clone();
    named.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(named.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Why a read gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", READ_TIMEOUT.as_secs())]
    Timeout,
    /// It could not be reached, or it refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Reads one answer, within a bounded time.
///
/// # Errors
///
/// When the API server is not reached, does not answer in time, or refuses.
pub async fn read<T: DeserializeOwned>(client: &Client, request: Request<Vec<u8>>) -> Result<T, ReadError> {
    match tokio::time::timeout(READ_TIMEOUT, client.request(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ReadError::Timeout),
    }
}

/// Reads one object; `None` when it does not exist.
///
/// # Errors
///
/// As [`read`].
pub async fn read_one<T: DeserializeOwned>(client: &Client, request: Request<Vec<u8>>) -> Result<Option<T>, ReadError> {
    match read(client, request).await {
        Ok(object) => Ok(Some(object)),
        Err(ReadError::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the answer to a write proves.
#[derive(Debug)]
pub enum Answer {
    /// It was done; the body of the answer.
    Done(Vec<u8>),
    /// It was refused for certain.
    Refused(Box<Status>),
    /// Nobody can say whether it was, or will be, done; why.
    Unknown(String),
    /// It never left: this process does not lead.
    NotSent,
}

/// The one way by which anything is written.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    leadership: Leadership,
    slots: Arc<Semaphore>,
}

impl Writer {
    /// Writes through `client` while `leadership` lasts.
    pub fn new(client: Client, leadership: Leadership) -> Self {
        Writer { client, leadership, slots: Arc::new(Semaphore::new(WRITES_AT_ONCE)) }
    }

    /// Sends a write, once, and says what its answer proves. It ends, here and on the API server, before the term does.
    pub async fn send(&self, request: Request<Vec<u8>>) -> Answer {
        let Ok(_slot) = self.slots.acquire().await else {
            return Answer::NotSent;
        };
        // A time-out of 0 would be none at all for the API server.
        let budget = self.leadership.write_budget().filter(|budget| budget.as_millis() > 0);
        let Some(budget) = budget else {
            return Answer::NotSent;
        };
        let request = match bounded(request, budget) {
            Ok(request) => request.map(Body::from),
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        let exchange = async {
            let response = self.client.send(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, kube::Error>(Response::from_parts(head, body.collect().await?.to_bytes()))
        };
        match tokio::time::timeout(budget, exchange).await {
            Ok(Ok(response)) => sort(response.status(), &response.into_body()),
            Ok(Err(error)) => Answer::Unknown(in_full(&error)),
            Err(_) => Answer::Unknown(format!("no answer within {} s", budget.as_secs())),
        }
    }
}

/// The request with the time that the API server may spend on it.
fn bounded(request: Request<Vec<u8>>, budget: Duration) -> Result<Request<Vec<u8>>, http::Error> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let separator = match path.find('?') {
        None => "?",
        Some(at) if at + 1 == path.len() => "",
        Some(_) => "&",
    };
    head.uri = format!("{path}{separator}timeout={}ms", budget.as_millis()).parse::<http::Uri>()?;
    Ok(Request::from_parts(head, body))
}

/// Only a Status that speaks of the request itself is a certain refusal. 408 is a time-out by another name, and 429 may
/// be the word of whatever stands before the API server: neither proves that the request was not carried out.
fn sort(code: StatusCode, body: &[u8]) -> Answer {
    if code.is_success() {
        return Answer::Done(body.to_vec());
    }
    let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.code == code.as_u16());
    let is_certain =
        code.is_client_error() && !matches!(code, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    match status {
        Some(status) if is_certain => Answer::Refused(Box::new(status)),
        Some(status) => Answer::Unknown(format!("{code}: {}", status.message)),
        None => Answer::Unknown(format!("{code} without a reason")),
    }
}

/// An error with all its causes: hyper says "error sending request" and hides why.
pub fn in_full(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let deeper = error.to_string();
        if !text.contains(&deeper) {
            text = format!("{text}: {deeper}");
        }
        cause = error.source();
    }
    text
}

/// Both clients of an instance of the operator.
#[derive(Clone)]
pub struct Clients {
    /// For everything that changes nothing. It needs no leadership.
    pub read: Client,
    /// For everything that changes something.
    pub write: Writer,
}

impl Clients {
    /// Clients for a real API server.
    ///
    /// # Errors
    ///
    /// As [`connect`].
    pub fn connect(config: &Config, leadership: Leadership) -> Result<Self, ConnectError> {
        Ok(Clients { read: connect(config, false)?, write: Writer::new(connect(config, true)?, leadership) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str) -> Vec<u8> {
        let status = Status::failure("no", reason).with_code(code);
        serde_json::to_vec(&status).unwrap()
    }

    fn sorted(code: u16, body: &[u8]) -> &'static str {
        match sort(StatusCode::from_u16(code).unwrap(), body) {
            Answer::Done(_) => "done",
            Answer::Refused(_) => "refused",
            Answer::Unknown(_) => "unknown",
            Answer::NotSent => "not sent",
        }
    }

    #[test]
    fn an_answer_proves_only_what_the_api_server_said() {
        let cases: [(u16, Vec<u8>, &str); 9] = [
            (201, b"{}".to_vec(), "done"),
            (409, status(409, "AlreadyExists"), "refused"),
            (403, status(403, "Forbidden"), "refused"),
            (429, status(429, "TooManyRequests"), "unknown"),
            (429, b"Too many requests, please try again later.\n".to_vec(), "unknown"),
            (403, status(500, "InternalError"), "unknown"),
            (408, status(408, "Timeout"), "unknown"),
            (504, status(504, "Timeout"), "unknown"),
            (502, b"<html>".to_vec(), "unknown"),
        ];
        for (code, body, expected) in cases {
            assert_eq!(sorted(code, &body), expected, "{code} {}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn every_write_tells_the_api_server_when_to_stop() {
        for (uri, expected) in [
            ("/api/v1/namespaces/a/pods?", "/api/v1/namespaces/a/pods?timeout=3500ms"),
            ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods?timeout=3500ms"),
            ("/a?force=true", "/a?force=true&timeout=3500ms"),
        ] {
            let request = Request::post(uri).body(Vec::new()).unwrap();
            let bounded = bounded(request, Duration::from_millis(3500)).unwrap();
            assert_eq!(bounded.uri().to_string(), expected);
        }
    }

    #[test]
    fn a_proxy_is_not_asked_for_what_is_near() {
        for (url, no_proxy, expected) in [
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://api.example.com", "", false),
            ("https://api.example.com", "other, .example.com", true),
            ("https://api.example.com", "ample.com", false),
            ("https://api.example.com", "*", true),
        ] {
            assert_eq!(goes_direct(&Config::new(url.parse().unwrap()), no_proxy), expected, "{url} {no_proxy}");
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_without_leadership() {
        let service = tower::service_fn(|_: Request<Body>| async {
            panic!("a request left without leadership");
            #[allow(unreachable_code)]
            Ok::<_, BoxError>(Response::new(Body::empty()))
        });
        let (_office, leadership) = crate::leader::Office::vacant();
        let writer = Writer::new(Client::new(service, "default"), leadership);
        let request = Request::post("/api/v1/namespaces/a/pods").body(Vec::new()).unwrap();
        assert!(matches!(writer.send(request).await, Answer::NotSent));
    }
}
