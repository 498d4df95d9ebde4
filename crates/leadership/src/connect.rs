//! The connections to the API server, from a kubeconfig or a ServiceAccount. Nothing here retries.
//!
//! [`Candidate::connect`](crate::Candidate::connect) makes all of them. A process with its own tower layers calls these functions itself, and
//! wraps the connections for the Lease, for reads and for writes. [`gated`] combines [`gate`], which checks leadership before each write to
//! the socket, and [`pool`], which keeps the connections.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use hyper_util::{
    client::{
        legacy::{
            self,
            connect::{HttpConnector, proxy::Tunnel},
        },
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{
    Client, Config,
    client::{AuthError, Body, ConfigExt, RustlsTlsError},
};
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, timeout::Timeout, util::BoxCloneSyncService};

use crate::WritePermit;
pub use crate::{
    gate::{Gated, gate},
    pool::{Connections, IDLE, pool},
};

/// The time limit for a new connection of reads and of the Lease, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for its TCP part, shared by the addresses of a host name. So if the first address does not answer, the second one is tried
/// before an operation on the Lease ends, after 5 s with the default durations.
const TCP_TIMEOUT: Duration = Duration::from_secs(4);

/// Makes TCP connections, perhaps through a proxy.
pub type Connector = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

/// Why no client can be made from a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// kube cannot use them.
    #[error("the credentials or certificates for the API server cannot be used: {0}")]
    Config(#[source] kube::Error),
    /// The client certificate or its key cannot be parsed. kube's error may quote the key, so it is not shown.
    #[error("the client certificate of the kubeconfig, or of its exec plugin, is not valid")]
    ClientCertificate,
    /// The exec plugin returned no credentials.
    #[error(transparent)]
    Plugin(#[from] PluginFailed),
    /// The proxy is of an unsupported kind.
    #[error("the proxy {0}, of the kubeconfig or HTTPS_PROXY, cannot be used: only http:// proxies are supported")]
    Proxy(String),
}

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Auth(error) => {
                without_output(error).map_or_else(Into::into, |error| ConnectError::Config(kube::Error::Auth(error)))
            }
            kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_) | RustlsTlsError::InvalidPrivateKey(_)) => {
                ConnectError::ClientCertificate
            }
            error => ConnectError::Config(error),
        }
    }
}

/// The exec plugin of a kubeconfig returned no credentials. kube's errors contain its command line and output, which may be secret.
#[derive(Debug, thiserror::Error)]
#[error("the exec plugin of the kubeconfig {0}; run it by hand to see why")]
pub struct PluginFailed(String);

/// The error, unless it may contain the output of an exec plugin.
fn without_output(error: AuthError) -> Result<AuthError, PluginFailed> {
    Err(PluginFailed(match error {
        AuthError::AuthExecStart(source) => format!("cannot be started: {source}"),
        AuthError::AuthExecRun { status, .. } => format!("failed ({status})"),
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo
        | AuthError::ReadTokenFile(..) => return Ok(error),
        AuthError::AuthExec(_) => "is not supported, or printed no usable credentials".to_owned(),
        _ => "printed no usable credentials".to_owned(),
    }))
}

/// A connector to the API server through the proxy of the configuration, if any, with its user and password. As in Go and curl, `host:port`
/// is an HTTP proxy. On Linux, `user_timeout` sets TCP_USER_TIMEOUT, which counts from the first retransmission. After 30 s of silence, TCP
/// keepalive sends probes, and closes the connection if three are not answered; with `user_timeout`, one unanswered probe can be enough.
///
/// # Errors
///
/// If the proxy is not supported.
pub fn connector(config: &Config, user_timeout: Option<Duration>) -> Result<Connector, ConnectError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(config.connect_timeout.unwrap_or(TCP_TIMEOUT).min(TCP_TIMEOUT)));
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.set_keepalive_interval(Some(Duration::from_secs(5)));
    connector.set_keepalive_retries(Some(3));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    connector.set_tcp_user_timeout(user_timeout);
    #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
    let _ = user_timeout;
    let Some(proxy) = &config.proxy_url else {
        return Ok(BoxCloneSyncService::new(connector.map_err(Into::into)));
    };
    let parsed = Matcher::builder().all(proxy.to_string()).build().intercept(&Uri::from_static("https://any"));
    let Some(parsed) = parsed.filter(|parsed| parsed.uri().scheme_str() == Some("http")) else {
        let place = proxy.authority().and_then(|authority| authority.as_str().rsplit('@').next()).unwrap_or_default();
        return Err(ConnectError::Proxy(format!("{}://{place}", proxy.scheme_str().unwrap_or("https"))));
    };
    let mut tunnel = Tunnel::new(parsed.uri().clone(), connector);
    if let Some(credentials) = parsed.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    Ok(BoxCloneSyncService::new(tunnel.map_err(Into::into)))
}

/// Connections for requests that need no leadership: reads, and the Lease.
///
/// # Errors
///
/// If the certificates of the configuration cannot be used.
pub fn ungated(
    config: &Config,
    connector: Connector,
) -> Result<legacy::Client<impl legacy::connect::Connect + Clone + Send + Sync + 'static, Body>, ConnectError> {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).retry_canceled_requests(false);
    // The connector's time limit covers only TCP. hyper continues to connect after the request has timed out, so a TLS handshake without an
    // answer needs a limit of its own.
    let connector = config.rustls_https_connector_with_connector(connector)?;
    Ok(builder.build(Timeout::new(connector, CONNECT_TIMEOUT).map_future(Box::pin)))
}

/// Connections for the writes of a leader. `may_leave` is the [rule](crate::promise::Rules::may_leave) of their gate.
///
/// # Errors
///
/// If the certificates of the configuration cannot be used.
pub fn gated(
    config: &Config,
    connector: Connector,
    may_leave: fn(&WritePermit) -> bool,
) -> Result<Connections, ConnectError> {
    Ok(pool(config.rustls_https_connector_with_connector(gate(connector, may_leave))?))
}

/// A client with the address, credentials and headers of the configuration. Its errors do not contain the output of an exec plugin.
///
/// # Errors
///
/// If the credentials or headers cannot be used.
pub fn client<S, B>(config: &Config, connections: S) -> Result<Client, ConnectError>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = ServiceBuilder::new()
        .map_err(|error: BoxError| match error.downcast() {
            Ok(error) => without_output(*error).map_or_else(Into::into, Into::into),
            Err(error) => error,
        })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(Into::<BoxError>::into)
        .service(connections);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_about_an_unsupported_proxy_omits_its_password() {
        let mut config = Config::new("https://api.example.com".parse().unwrap());
        config.proxy_url = Some("https://me:secret@proxy:3129".parse().unwrap());
        let error = connector(&config, None).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("the proxy https://proxy:3129, of the kubeconfig or HTTPS_PROXY, cannot"), "{error}");
    }

    /// The server accepts connections and never answers.
    #[tokio::test(start_paused = true)]
    async fn tls_without_an_answer_ends() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri: Uri = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let config = Config::new(uri.clone());
        let connections = ungated(&config, connector(&config, None).unwrap()).unwrap();
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(60), connections.request(request)).await;
        assert!(answer.expect("it does not wait for ever").is_err());
    }
}
