//! The connections for writes: HTTP/1.1, each with a [`Gate`], one request on each at a time.
//!
//! hyper-util's own pool does not say which connection a request will leave by, and a request has to show its own right at
//! the gate of that one. A connection on which anything went wrong is dropped on the spot, and with it whatever of its
//! request has not left yet.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Extensions, HeaderValue, Request, Response, Uri, header::HOST};
use http_body_util::{BodyExt, Full};
use hyper::{
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
};
use hyper_util::client::legacy::connect::Connection as _;
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, Service, ServiceExt};

use super::gate::Gate;
use crate::leader::Pass;

/// How long a connection may lie idle: well below the API server's own 90 s, so that no write meets a connection that is
/// just being closed.
const IDLE: Duration = Duration::from_secs(30);

/// The connections for writes.
#[derive(Clone)]
pub struct Pool<C> {
    connector: C,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// One of them.
struct Connection {
    sender: SendRequest<Body>,
    gate: Gate,
    used: Instant,
    _driver: AbortOnDropHandle<()>,
}

impl<C> Pool<C> {
    /// No connection yet. The connector has a [`GatedConnector`](super::gate::GatedConnector) at its bottom.
    pub fn new(connector: C) -> Self {
        Pool { connector, idle: Arc::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, mut connection: Connection) {
        connection.used = Instant::now();
        self.idle().push(connection);
    }

    /// The connection that was used last: the others may grow old.
    async fn reuse(&self) -> Option<Connection> {
        loop {
            let mut connection = {
                let mut idle = self.idle();
                idle.retain(|connection| connection.used.elapsed() < IDLE && !connection.sender.is_closed());
                idle.pop()?
            };
            if connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }
}

impl<C> Pool<C>
where
    C: Service<Uri> + Clone + Send,
    C::Response: hyper_util::client::legacy::connect::Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    async fn connect(&self, to: &Uri) -> Result<Connection, BoxError> {
        let stream = self.connector.clone().oneshot(to.clone()).await.map_err(Into::into)?;
        let mut extras = Extensions::new();
        stream.connected().get_extras(&mut extras);
        let gate = extras.remove::<Gate>().ok_or("a connection for writes has no gate")?;
        gate.shut();
        let (sender, connection) = http1::handshake(stream).await?;
        let driver = tokio::spawn(async move {
            // The request on it hears of the same error.
            let _ = connection.await;
        });
        Ok(Connection { sender, gate, used: Instant::now(), _driver: AbortOnDropHandle::new(driver) })
    }

    async fn exchange(self, mut request: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        let pass = request.extensions_mut().remove::<Pass>().ok_or("a write was sent without asking for leadership")?;
        let mut connection = match self.reuse().await {
            Some(connection) => connection,
            None => self.connect(request.uri()).await?,
        };
        connection.gate.open(pass);
        let (head, body) = connection.sender.send_request(by_path(request)?).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        connection.gate.shut();
        self.keep(connection);
        Ok(Response::from_parts(head, Full::new(body)))
    }
}

/// The request as HTTP/1.1 wants it: the host in a header, the path alone in the first line.
fn by_path(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().entry(HOST).or_insert(host);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).parse()?;
    *request.uri_mut() = path;
    Ok(request)
}

impl<C> Service<Request<Body>> for Pool<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().exchange(request))
    }
}
