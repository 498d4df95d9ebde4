use std::{sync::Mutex, time::Duration};

use super::*;

#[test]
fn requests_that_the_api_server_proxies_are_recognised() {
    for (path, expected) in [
        ("/api/v1/namespaces/a/services/web/proxy/restart", true),
        ("/api/v1/namespaces/a/pods/web/proxy", true),
        ("/api/v1/nodes/one/proxy/stats", true),
        ("/api/v1/namespaces/proxy/pods/proxy", false),
        ("/api/v1/namespaces/a/pods/web/status", false),
        ("/apis/apps/v1/namespaces/a/deployments/proxy/scale", false),
    ] {
        assert_eq!(is_proxied(path), expected, "{path}");
    }
}
use crate::{LeaderState, env::testing::virtual_env};

/// Access to the fields of a write, for tests.
impl Write {
    pub(crate) fn permit(&self) -> WritePermit {
        self.permit.clone()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.permit.timeout.unsigned_abs()
    }

    pub(crate) fn has_left(&self) -> bool {
        self.permit.has_left()
    }

    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

/// A client that records the requests that it sends.
fn recording() -> (Client, Arc<Mutex<Vec<String>>>) {
    let uris = Arc::new(Mutex::new(Vec::new()));
    let sent = uris.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        sent.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        std::future::ready(Ok::<_, tower::BoxError>(Response::new(Body::empty())))
    });
    (Client::new(service, "default"), uris)
}

#[test]
fn every_write_carries_its_timeout_as_the_first_parameter() {
    for (uri, expected) in [
        ("/api/v1/namespaces/a/pods?", "/api/v1/namespaces/a/pods?timeout=3500ms"),
        ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods?timeout=3500ms"),
        ("/a?force=true", "/a?timeout=3500ms&force=true"),
        ("/a?timeout=1h", "/a?timeout=3500ms&timeout=1h"),
    ] {
        let request = Request::post(uri).body(Body::empty()).unwrap();
        assert_eq!(with_timeout(request, 3500).unwrap().uri().to_string(), expected);
    }
}

/// The API server treats 0 as no limit.
#[tokio::test(start_paused = true)]
async fn no_write_carries_a_timeout_of_zero() {
    let (client, uris) = recording();
    let env = virtual_env();
    let mut leader_state = LeaderState::vacant(env.clone());
    for left in [1, 999, 1_000, 1_001, 1_142, 1_143, 2_000, 5_000] {
        let end = env.now() + SignedDuration::from_micros(left);
        leader_state.begin(Some(Ends { gate: end, writes: end }));
        if let Some(write) = leader_state.leadership().begin_write() {
            write.send(&client, Request::post("/a").body(Body::empty()).unwrap()).await.unwrap();
        }
    }
    assert_eq!(*uris.lock().unwrap(), ["POST /a?timeout=1ms", "POST /a?timeout=1ms", "POST /a?timeout=4ms"]);
}

#[tokio::test(start_paused = true)]
async fn reads_always_pass_and_writes_only_within_a_term() {
    let ((reads, read), (writes, written)) = (recording(), recording());
    let mut leader_state = LeaderState::vacant(virtual_env());
    let client = fenced(reads, writes, leader_state.leadership());
    let send = |method: &str, upgrade: bool| {
        let mut request = Request::builder().method(method).uri("/a");
        if upgrade {
            request = request.header(UPGRADE, "websocket");
        }
        client.send(request.body(Body::empty()).unwrap())
    };
    send("GET", false).await.unwrap();
    let refused = send("POST", false).await.unwrap_err();
    assert!(matches!(WriteError::of(&refused), Some(WriteError::NotLeader)), "{refused}");
    let nested = kube::runtime::finalizer::Error::<std::io::Error>::AddFinalizer(refused);
    assert!(matches!(WriteError::of(&nested), Some(WriteError::NotLeader)), "{nested}");
    assert!(WriteError::of(&std::io::Error::other("away")).is_none());
    leader_state.begin(None);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        send(method, false).await.unwrap();
    }
    let stream = send("GET", true).await.unwrap_err();
    assert!(matches!(WriteError::of(&stream), Some(WriteError::Stream)), "{stream}");
    leader_state.resign();
    send("DELETE", false).await.unwrap_err();
    send("HEAD", false).await.unwrap();
    assert_eq!(*read.lock().unwrap(), ["GET /a", "HEAD /a"]);
    let timeout = "/a?timeout=9500ms";
    let expected = ["POST", "PUT", "PATCH", "DELETE"].map(|method| format!("{method} {timeout}"));
    assert_eq!(*written.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_write_fails_at_its_timeout() {
    let mute = tower::service_fn(|request: Request<Body>| async move {
        request.extensions().get::<WritePermit>().unwrap().try_leave();
        std::future::pending::<Result<Response<Body>, tower::BoxError>>().await
    });
    let mut leader_state = LeaderState::vacant(virtual_env());
    leader_state.begin(None);
    let write = leader_state.leadership().begin_write().unwrap();
    let request = Request::post("/a").body(Body::empty()).unwrap();
    let error = write.send(&Client::new(mute, "default"), request).await.unwrap_err();
    assert!(error.has_left && error.source.is_none(), "{error}");
    assert!(!leader_state.is_settled(), "it may still take effect");
}
