//! Connections for writes. Each uses HTTP/1.1, has a [`Gate`], and carries one request at a time.
//!
//! The pool sets the permit of a request on the gate of its connection. hyper-util's own pool cannot do this, because it does not say
//! which connection a request will use. If a request fails or is cancelled, the pool closes its connection at once. The rest of the request is
//! never sent.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Extensions, HeaderValue, Request, Response, Uri, header::HOST};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
};
use hyper_util::client::legacy::connect;
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

use crate::{WritePermit, gate::Gate, lock};

/// How long a connection may be idle: well below the API server's own 90 s, so that no request is sent while the server closes it.
pub const IDLE: Duration = Duration::from_secs(30);

/// The connections for writes.
pub type Connections = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// The connections that this connector makes. Each of them must have a [gate](crate::connect::gate()). Each request must have a
/// [`WritePermit`] as an extension, which [`Write::send`](crate::Write::send) adds.
pub fn pool<C>(connector: C) -> Connections
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: connect::Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    let pool = Pool { connector, answered: Arc::default() };
    BoxCloneSyncService::new(tower::service_fn(move |request| pool.clone().exchange(request)))
}

#[derive(Clone)]
struct Pool<C> {
    connector: C,
    /// Connections whose requests have been answered, the latest one last. A connection is ready once hyper has read the body of its
    /// answer.
    answered: Arc<Mutex<Vec<Connection>>>,
}

/// A connection with its gate.
struct Connection {
    sender: SendRequest<Body>,
    gate: Gate,
    used: Instant,
    _driver: AbortOnDropHandle<hyper::Result<()>>,
}

impl<C> Pool<C>
where
    C: Service<Uri> + Clone + Send,
    C::Response: connect::Connection + Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    /// Takes the most recently used connection that is ready, so that the others expire, and drops expired ones. If no further request
    /// comes, the API server closes them.
    fn reuse(&self) -> Option<Connection> {
        let (mut answered, now) = (lock(&self.answered), Instant::now());
        answered.retain(|connection| now - connection.used < IDLE && !connection.sender.is_closed());
        let latest = answered.iter().rposition(|connection| connection.sender.is_ready())?;
        Some(answered.remove(latest))
    }

    async fn connect(&self, uri: &Uri) -> Result<Connection, BoxError> {
        let stream = self.connector.clone().oneshot(uri.clone()).await.map_err(Into::into)?;
        let mut extras = Extensions::new();
        connect::Connection::connected(&stream).get_extras(&mut extras);
        let gate = extras.remove::<Gate>().ok_or("a connection for writes has no gate")?;
        gate.shut();
        let (sender, connection) = http1::handshake(stream).await?;
        Ok(Connection { sender, gate, used: Instant::now(), _driver: AbortOnDropHandle::new(tokio::spawn(connection)) })
    }

    async fn exchange(self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let permit = request.extensions_mut().remove::<WritePermit>().ok_or("a write was sent without a permit")?;
        let mut connection = match self.reuse() {
            Some(connection) => connection,
            // The box keeps the future of every request small.
            None => Box::pin(self.connect(request.uri())).await?,
        };
        connection.gate.open(permit);
        let answer = connection.sender.send_request(in_origin_form(request)?).await?;
        connection.gate.shut();
        connection.used = Instant::now();
        lock(&self.answered).push(connection);
        Ok(answer)
    }
}

/// Moves the host from the URI to the `Host` header: in HTTP/1.1 the request line has only the path (origin-form).
fn in_origin_form(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    // Without user and password.
    let host = HeaderValue::from_str(authority.rsplit('@').next().unwrap_or_default())?;
    request.headers_mut().entry(HOST).or_insert(host);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).parse()?;
    *request.uri_mut() = path;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LeaderState, Write,
        env::testing::virtual_env,
        gate::{self, Gated},
    };
    use http_body_util::BodyExt;
    use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    /// A server on loopback, and a pool of connections to it.
    async fn server() -> (TcpListener, String, Pool<BoxCloneSyncService<Uri, Gated<TokioIo<TcpStream>>, BoxError>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let connector = gate::gate(HttpConnector::new().map_err(Into::into), WritePermit::is_valid);
        (listener, address, Pool { connector: BoxCloneSyncService::new(connector), answered: Arc::default() })
    }

    fn request(address: &str, leader_state: &LeaderState) -> (Write, Request<Body>) {
        let request = Request::post(format!("{address}/pods?timeout=1s")).body(Body::from(b"a pod".to_vec()));
        let (write, mut request) = (leader_state.leadership().begin_write().unwrap(), request.unwrap());
        request.extensions_mut().insert(write.permit());
        (write, request)
    }

    async fn serve(connection: &mut TcpStream) -> String {
        let mut request = vec![0; 4096];
        let read = connection.read(&mut request).await.unwrap();
        connection.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    }

    #[tokio::test]
    async fn a_connection_is_reused_and_breaks_when_leadership_ends() {
        let mut leader_state = LeaderState::vacant(virtual_env());
        leader_state.begin(None);
        let (listener, address, pool) = server().await;
        let server = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let sent = [serve(&mut connection).await, serve(&mut connection).await];
            let mut rest = Vec::new();
            connection.read_to_end(&mut rest).await.unwrap();
            (sent, rest)
        });
        for _ in 0..2 {
            let (write, request) = request(&address, &leader_state);
            let response = pool.clone().exchange(request).await.unwrap();
            assert!(write.has_left());
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
        }
        let (write, late) = request(&address, &leader_state);
        leader_state.resign();
        pool.clone().exchange(late).await.map(drop).expect_err("the leader has resigned");
        assert!(!write.has_left(), "the gate was closed before its first byte");
        let (sent, rest) = server.await.unwrap();
        for request in sent {
            assert!(request.starts_with("POST /pods?timeout=1s HTTP/1.1\r\n"), "{request}");
            assert!(
                request.to_lowercase().contains(&format!("host: {}\r\n", &address["http://".len()..])),
                "{request}"
            );
            assert!(request.ends_with("a pod"), "{request}");
        }
        assert_eq!(rest, b"", "no more bytes left this process");
    }

    #[tokio::test]
    async fn a_cancelled_request_closes_its_connection() {
        let mut leader_state = LeaderState::vacant(virtual_env());
        leader_state.begin(None);
        let (listener, address, pool) = server().await;
        let (write, request) = request(&address, &leader_state);
        let waiting = tokio::time::timeout(Duration::from_millis(50), pool.clone().exchange(request));
        let (given_up, accepted) = tokio::join!(waiting, listener.accept());
        assert!(given_up.is_err() && write.has_left());
        let mut all = Vec::new();
        accepted.unwrap().0.read_to_end(&mut all).await.unwrap();
        assert!(all.ends_with(b"a pod"), "it was sent, once, and the connection closed");
        assert!(lock(&pool.answered).is_empty());
    }

    #[tokio::test]
    async fn an_expired_connection_is_closed_and_not_reused() {
        let mut leader_state = LeaderState::vacant(virtual_env());
        leader_state.begin(None);
        let (listener, address, pool) = server().await;
        let exchange = || {
            let (pool, (write, request)) = (pool.clone(), request(&address, &leader_state));
            async move {
                let answer = pool.exchange(request).await.unwrap().into_body().collect().await;
                write.answered();
                answer.unwrap();
            }
        };
        let serve_next = async || {
            let (mut connection, _) = listener.accept().await.unwrap();
            serve(&mut connection).await;
            connection
        };
        let ((), mut first) = tokio::join!(exchange(), serve_next());
        tokio::time::pause();
        tokio::time::advance(IDLE - Duration::from_secs(1)).await;
        tokio::join!(exchange(), serve(&mut first));
        tokio::time::advance(IDLE).await;
        tokio::time::resume();
        let next = async { tokio::join!(exchange(), serve_next()) };
        let ((), mut second) = tokio::time::timeout(Duration::from_secs(5), next).await.expect("a new connection");
        assert_eq!(first.read(&mut [0; 1]).await.unwrap(), 0, "the connection is closed");
        tokio::join!(exchange(), serve(&mut second));
    }

    #[test]
    fn the_host_header_has_no_password() {
        for (url, host) in [("https://me:secret@api:6443/pods?a=b", "api:6443"), ("https://[::1]/pods?a=b", "[::1]")] {
            let request = in_origin_form(Request::post(url).body(Body::empty()).unwrap()).unwrap();
            assert_eq!(
                (&request.headers()[HOST], request.uri().to_string()),
                (&host.parse().unwrap(), "/pods?a=b".into())
            );
        }
    }

    #[tokio::test]
    async fn a_request_without_a_permit_is_rejected() {
        let (_listener, address, pool) = server().await;
        let request = Request::post(address).body(Body::empty()).unwrap();
        let refused = pool.exchange(request).await.map(drop).expect_err("it has no permit");
        assert!(refused.to_string().contains("without a permit"), "{refused}");
    }
}
