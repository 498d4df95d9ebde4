//! The connections to the API server: address, proxy, TLS, credentials, user agent. Nothing here retries.

use std::time::Duration;

use http::{HeaderValue, Response, Uri, header::USER_AGENT};
use http_body_util::Full;
use hyper_util::client::proxy::matcher::Matcher;
use kube::{Client, Config, config::ExecInteractiveMode};
use leadership::{
    ConnectError,
    connect::{self, gated, ungated},
    promise::Rules,
};
use tower::{BoxError, ServiceExt};

use super::counted::counted;
use crate::{budget::Budget, telemetry::metrics::Requests, text::authority};

/// The user agent of every request.
pub const AGENT: &str = concat!("podset-operator/", env!("CARGO_PKG_VERSION"));

/// Makes a client with its own connections, for requests that need no leadership. Its requests are counted. With `user_timeout`, a connection
/// breaks this long after the first retransmission of bytes that are not acknowledged (TCP_USER_TIMEOUT).
///
/// # Errors
///
/// If the configuration's credentials, certificates or proxy cannot be used.
pub fn connect(config: &Config, user_timeout: Option<Duration>, requests: &Requests) -> Result<Client, ConnectError> {
    let config = prepared(config, requests);
    let connections = ungated(&config, connect::connector(&config, user_timeout)?)?;
    connect::client(&config, counted(connections, requests.clone()))
}

/// Makes a client like [`connect()`], for the writes of the leader. The gate of its connections checks each request.
///
/// # Errors
///
/// As [`connect()`].
pub fn connect_gated(config: &Config, user_timeout: Duration, requests: &Requests) -> Result<Client, ConnectError> {
    let config = prepared(config, requests);
    let connections = gated(&config, connect::connector(&config, Some(user_timeout))?, Rules::default().may_leave)?;
    // Bounds the memory for answers: the API server answers a status write with the whole object.
    let budget = Budget::default();
    let bounded = connections.and_then(move |answer: Response<_>| {
        let budget = budget.clone();
        async move {
            let (head, body) = answer.into_parts();
            let (body, _room) = budget.collect(body, usize::MAX).await?;
            Ok::<_, BoxError>(Response::from_parts(head, Full::new(body)))
        }
    });
    connect::client(&config, counted(bounded, requests.clone()))
}

/// The configuration with the user agent, and with a proxy only if one is to be used. Tells `requests` the host.
fn prepared(config: &Config, requests: &Requests) -> Config {
    let mut config = config.clone();
    if let Some(exec) = &mut config.auth_info.exec {
        // Otherwise kube does not capture the plugin's standard error, which would then reach the log.
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    requests.expect_host(authority(&config.cluster_url));
    let variable = |name: &str| std::env::var(name).ok();
    config.proxy_url = config.proxy_url.filter(|proxy| {
        !is_from_environment(proxy, variable) || !bypasses_proxy(&config.cluster_url, &no_proxy(variable))
    });
    config
}

/// Whether this proxy comes from the environment. `NO_PROXY` does not apply to a proxy of the kubeconfig.
fn is_from_environment(proxy: &Uri, variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_named = |value: String| value.parse::<Uri>().is_ok_and(|named| named == *proxy);
    ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(variable).any(is_named)
}

/// The value of `NO_PROXY`.
fn no_proxy(variable: impl Fn(&str) -> Option<String>) -> String {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    ["NO_PROXY", "no_proxy"].into_iter().find_map(given).unwrap_or_default()
}

/// Whether the API server is reached without the proxy from the environment, because it is on this machine or in `NO_PROXY`. As in Go, an
/// entry may have a port or begin with `*.`, and `*` also matches addresses.
fn bypasses_proxy(url: &Uri, no_proxy: &str) -> bool {
    let port = format!(":{}", host_and_port(url).1);
    let host = |entry: &str| entry.trim().trim_end_matches(&port).trim_start_matches("*.").replace(['[', ']'], "");
    let hosts: Vec<String> = no_proxy.split(',').map(host).collect();
    let hosts = format!("localhost,127.0.0.0/8,::1,{}", hosts.join(",").replace('*', "*,0.0.0.0/0,::/0"));
    // The proxy does not matter here, only the hosts do.
    Matcher::builder().all("http://proxy").no(hosts).build().intercept(url).is_none()
}

/// The host of a URL, without brackets, and its port.
pub fn host_and_port(url: &Uri) -> (&str, u16) {
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    (url.host().unwrap_or_default().trim_matches(['[', ']']), url.port_u16().unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::Request;
    use kube::client::Body;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn local_and_excluded_hosts_bypass_the_proxy() {
        for (url, no_proxy, expected) in [
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://api.example.com", "", false),
            ("https://api.example.com", "other, .example.com", true),
            ("https://api.example.com", "ample.com", false),
            ("https://api.example.com", "*", true),
            ("https://api.example.com", "*.Example.com", true),
            ("https://api.example.com", "example.com:443", true),
            ("https://api.example.com:6443", "other:443,example.com:6443", true),
            ("https://api.example.com:6443", "example.com:443", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
            ("https://192.168.1.2:6443", "10.0.0.0/8", false),
            ("https://10.1.2.3:6443", "*", true),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "[fd00::1]:443", false),
        ] {
            assert_eq!(bypasses_proxy(&url.parse().unwrap(), no_proxy), expected, "{url} {no_proxy}");
        }
    }

    /// The head of the first request that a proxy gets. `url` makes its URL from its address.
    async fn request_to_proxy(url: impl FnOnce(SocketAddr) -> String) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new("https://api.example.com:6443".parse().unwrap());
        config.proxy_url = Some(url(listener.local_addr().unwrap()).parse().unwrap());
        let metrics = crate::telemetry::metrics::Metrics::new(leadership::env::testing::virtual_env());
        let client = connect(&config, None, &metrics.requests()).unwrap();
        let request = tokio::spawn(async move { client.send(Request::new(Body::empty())).await });
        let mut head = vec![0; 1024];
        let read = listener.accept().await.unwrap().0.read(&mut head).await.unwrap();
        request.abort();
        String::from_utf8_lossy(&head[..read]).to_lowercase()
    }

    #[tokio::test]
    async fn credentials_in_the_url_of_a_proxy_are_sent_to_it() {
        for (url, expected) in
            [("http://me:p%40ss@PLACE", Some("bWU6cEBzcw==")), ("http://PLACE", None), ("PLACE", None)]
        {
            let head = request_to_proxy(|place| url.replace("PLACE", &place.to_string())).await;
            assert!(head.starts_with("connect api.example.com:6443 http/1.1\r\n"), "{url}: {head}");
            let sent = head.lines().find_map(|line| line.strip_prefix("proxy-authorization: basic "));
            assert_eq!(sent, expected.map(str::to_lowercase).as_deref(), "{url}");
        }
    }

    #[test]
    fn a_proxy_from_the_environment_is_recognised() {
        for (capitals, small, expected) in
            [("http://a:1", "", true), ("", "http://a:1", true), ("", "http://b:1", false)]
        {
            let variable = |name: &str| match name {
                "HTTPS_PROXY" => Some(capitals.to_owned()),
                "https_proxy" => Some(small.to_owned()),
                _ => None,
            };
            assert_eq!(is_from_environment(&"http://a:1".parse().unwrap(), variable), expected);
        }
    }

    #[test]
    fn no_proxy_is_read_in_upper_and_lower_case() {
        for (capitals, small, expected) in [("a", "b", "a"), ("", "b", "b"), ("", "", "")] {
            let variable = |name: &str| match name {
                "NO_PROXY" => Some(capitals.to_owned()),
                "no_proxy" => Some(small.to_owned()),
                _ => None,
            };
            assert_eq!(no_proxy(variable), expected);
        }
    }

    #[tokio::test]
    async fn connections_have_the_tcp_user_timeout_that_is_given() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        for user_timeout in [None, Some(Duration::from_millis(1500))] {
            let connector = connect::connector(&Config::new(to.clone()), user_timeout).unwrap();
            let stream = connector.oneshot(to.clone()).await.unwrap();
            let socket = socket2::SockRef::from(stream.inner());
            assert_eq!(socket.tcp_user_timeout().unwrap(), user_timeout);
        }
    }

    #[tokio::test]
    async fn requests_are_counted() {
        use crate::telemetry::metrics::{Format, Metrics};
        let metrics = Metrics::new(leadership::env::testing::virtual_env());
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = connect(&config, None, &metrics.requests()).unwrap();
        client.send(Request::get("/api").body(Body::empty()).unwrap()).await.expect_err("no server listens");
        let text = metrics.text(Format::OpenMetrics).unwrap();
        let counted = r#"rest_client_requests_total{code="<error>",method="GET",host="127.0.0.1:1"} 1"#;
        assert!(text.contains(counted), "{text}");
    }
}
