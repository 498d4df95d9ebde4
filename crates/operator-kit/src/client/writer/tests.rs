use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use http::Response;
use jiff::SignedDuration;
use kube::Config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tower::BoxError;

use super::*;
use crate::{client::Clients, telemetry::metrics::Metrics};
use leadership::{Ends, LeaderState, env::testing::virtual_env};

fn status(code: u16, reason: &str) -> Vec<u8> {
    let status = Status::failure("no", reason).with_code(code);
    serde_json::to_vec(&status).unwrap()
}

fn sorted(code: u16, body: &[u8]) -> &'static str {
    match classify(StatusCode::from_u16(code).unwrap(), Bytes::copy_from_slice(body)) {
        Answer::Done(..) => "done",
        Answer::Rejected(_) => "refused",
        Answer::Unclear(_) => "unclear",
        Answer::Unknown(_) => "unknown",
        Answer::NeverLeft(_) => "never left",
        Answer::NotSent => "not sent",
    }
}

#[test]
fn an_answer_proves_only_what_the_api_server_said() {
    let cases: [(u16, Vec<u8>, &str); 9] = [
        (201, b"{}".to_vec(), "done"),
        (409, status(409, "AlreadyExists"), "refused"),
        (403, status(403, "Forbidden"), "refused"),
        (429, status(429, "TooManyRequests"), "unclear"),
        (429, b"Too many requests, please try again later.\n".to_vec(), "unknown"),
        (403, status(500, "InternalError"), "unknown"),
        (408, status(408, "Timeout"), "unclear"),
        (504, status(504, "Timeout"), "unclear"),
        (502, b"<html>".to_vec(), "unknown"),
    ];
    for (code, body, expected) in cases {
        assert_eq!(sorted(code, &body), expected, "{code} {}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn a_webhook_that_fails_keeps_anything_from_being_stored() {
    let message = "Internal error occurred: failed calling webhook \"pods.example.com\": connection refused";
    let of = |message: &str| serde_json::to_vec(&Status::failure(message, "InternalError").with_code(500)).unwrap();
    assert_eq!(sorted(500, &of(message)), "refused");
    assert_eq!(sorted(500, &of("Internal error occurred: etcdserver: no leader")), "unclear");
    assert_eq!(sorted(504, &of(message)), "unknown");
}

#[test]
fn every_write_tells_the_api_server_when_to_stop() {
    for (uri, expected) in [
        ("/api/v1/namespaces/a/pods?", "/api/v1/namespaces/a/pods?timeout=3500ms"),
        ("/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods?timeout=3500ms"),
        ("/a?force=true", "/a?force=true&timeout=3500ms"),
    ] {
        let request = Request::post(uri).body(Vec::new()).unwrap();
        let bounded = with_timeout(request, server_timeout(Duration::from_secs(4)).unwrap()).unwrap();
        assert_eq!(bounded.uri().to_string(), expected);
    }
}

/// A write, when its turn has come.
fn request() -> Result<Request<Vec<u8>>, request::Error> {
    Request::post("/api/v1/namespaces/a/pods").body(b"{}".to_vec()).map_err(request::Error::BuildRequest)
}

#[tokio::test]
async fn a_request_is_built_when_its_turn_has_come() {
    let answers = Arc::new(Semaphore::new(0));
    let answered = answers.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        let answered = answered.clone();
        async move {
            answered.acquire().await?.forget();
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }
    });
    let leadership = Leadership::always(virtual_env());
    let writer = Writer::new(Client::new(service, "default"), &Uri::default(), leadership);
    let built = Arc::new(AtomicUsize::new(0));
    let writes = (0..2 * WRITES_OF_A_NAMESPACE).map(|_| {
        let (writer, built) = (writer.clone(), built.clone());
        tokio::spawn(async move {
            let build = || {
                built.fetch_add(1, Ordering::Relaxed);
                request()
            };
            writer.send(&"a".into(), build).await
        })
    });
    let writes: Vec<_> = writes.collect();
    for expected in [WRITES_OF_A_NAMESPACE, WRITES_OF_A_NAMESPACE + 10, 2 * WRITES_OF_A_NAMESPACE] {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(built.load(Ordering::Relaxed), expected);
        answers.add_permits(if expected == WRITES_OF_A_NAMESPACE { 10 } else { 2 * WRITES_OF_A_NAMESPACE });
    }
    for write in writes {
        assert!(matches!(write.await.unwrap(), Answer::Done(..)));
    }
}

#[tokio::test]
async fn nothing_is_sent_without_leadership() {
    let service = tower::service_fn(|_: Request<Body>| async {
        panic!("a request left without leadership");
        #[allow(unreachable_code)]
        Ok::<_, BoxError>(Response::new(Body::empty()))
    });
    let leadership = leadership::LeaderState::vacant(leadership::env::testing::virtual_env()).leadership();
    let writer = Writer::new(Client::new(service, "default"), &Uri::default(), leadership);
    assert!(matches!(writer.send(&"a".into(), request).await, Answer::NotSent));
}

/// The API server reads 0 as no limit.
#[tokio::test(start_paused = true)]
async fn no_write_tells_the_api_server_that_it_may_take_for_ever() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let service = tower::service_fn({
        let told = told.clone();
        move |request: Request<Body>| {
            told.lock().unwrap().push(request.uri().to_string());
            async { Ok::<_, BoxError>(Response::new(Body::empty())) }
        }
    });
    let env = virtual_env();
    let mut leader_state = LeaderState::vacant(env.clone());
    let writer = Writer::new(Client::new(service, "default"), &Uri::default(), leader_state.leadership());
    for left in [1, 999, 1_000, 1_001, 1_142, 1_143, 2_000, 5_000] {
        let end = env.now() + SignedDuration::from_micros(left);
        leader_state.begin(Some(Ends { gate: end, writes: end }));
        let build = || Request::post("/a").body(Vec::new()).map_err(request::Error::BuildRequest);
        writer.send(&"a".into(), build).await;
    }
    assert_eq!(*told.lock().unwrap(), ["/a?timeout=1ms", "/a?timeout=1ms", "/a?timeout=4ms"]);
    assert_eq!(server_timeout(Duration::from_millis(1)), None);
}

/// What becomes of a write where this is the configuration, and whether the lease can be given back then. It may take so many
/// milliseconds.
async fn write(config: Config, budget: Option<i64>) -> (Answer, bool) {
    let env = virtual_env();
    let mut leader_state = LeaderState::vacant(env.clone());
    let requests = Metrics::new(virtual_env()).requests();
    let clients = Clients::connect(&config, leader_state.leadership(), Duration::from_secs(1), &requests).unwrap();
    let end = budget.map(|budget| env.now() + SignedDuration::from_millis(budget));
    leader_state.begin(end.map(|end| Ends { gate: end, writes: end }));
    let answer = clients.write.send(&"a".into(), request).await;
    (answer, leader_state.is_settled())
}

/// A place at which somebody listens, and does this with the first connection.
async fn listener<F: Future<Output = ()> + Send>(serve: impl FnOnce(TcpStream) -> F + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
    place
}

fn config(scheme: &str, place: &str) -> Config {
    let mut config = Config::new(format!("{scheme}://{place}").parse().unwrap());
    config.accept_invalid_certs = true;
    config
}

/// Says this to whatever comes first, and ends the connection.
async fn say(mut connection: TcpStream, what: &'static [u8]) {
    let read = connection.read(&mut [0; 1024]).await.unwrap();
    assert!(read > 0, "the request has come");
    connection.write_all(what).await.unwrap();
}

#[tokio::test]
async fn a_write_that_finds_no_api_server_never_left() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let no_tls = listener(|connection| say(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let proxy = listener(|connection| say(connection, b"HTTP/1.1 502 Bad Gateway\r\n\r\n")).await;
    let mut behind = config("https", "api.example.com");
    behind.proxy_url = Some(format!("http://{proxy}").parse().unwrap());
    for (what, config) in [
        ("the connection is refused", config("http", &nobody)),
        ("the handshake fails", config("https", &no_tls)),
        ("the proxy does not reach it", behind),
    ] {
        let answer = write(config, None).await;
        assert!(matches!(answer, (Answer::NeverLeft(_), true)), "{what}: {answer:?}");
    }
}

#[tokio::test]
async fn a_write_whose_time_ends_before_its_connection_is_made_never_left() {
    let mute =
        listener(|mut connection| async move { while connection.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} });
    let answer = write(config("https", &mute.await), Some(200)).await;
    assert!(matches!(answer, (Answer::NeverLeft(_), true)), "{answer:?}");
}

#[tokio::test]
async fn a_write_of_which_a_byte_left_may_take_effect() {
    let breaks = listener(|mut connection| async move { drop(connection.read(&mut [0; 1]).await) }).await;
    let answer = write(config("http", &breaks), None).await;
    assert!(matches!(answer, (Answer::Unknown(_), false)), "{answer:?}");
}
