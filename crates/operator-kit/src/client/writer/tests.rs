use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::Request;
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

/// Builds a write.
fn request() -> requests::BuildResult {
    Request::post("/api/v1/namespaces/a/pods").body(b"{}".to_vec()).map_err(kube::core::request::Error::BuildRequest)
}

#[tokio::test]
async fn a_request_is_built_only_when_it_can_be_sent() {
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
    assert!(matches!(writer.send(&"a".into(), request).await, Answer::NotLeading));
}

/// The answer to a write with this configuration, and whether the lease can be released then. The term lasts `budget`
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

/// The address of a listener that serves the first connection like this.
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

/// Reads the first bytes, sends this and closes the connection.
async fn respond(mut connection: TcpStream, what: &'static [u8]) {
    let read = connection.read(&mut [0; 1024]).await.unwrap();
    assert!(read > 0, "the request has arrived");
    connection.write_all(what).await.unwrap();
}

#[tokio::test]
async fn a_write_that_reaches_no_api_server_is_not_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let no_tls = listener(|connection| respond(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let proxy = listener(|connection| respond(connection, b"HTTP/1.1 502 Bad Gateway\r\n\r\n")).await;
    let mut behind = config("https", "api.example.com");
    behind.proxy_url = Some(format!("http://{proxy}").parse().unwrap());
    for (what, config) in [
        ("the connection is refused", config("http", &closed)),
        ("the handshake fails", config("https", &no_tls)),
        ("the proxy does not reach it", behind),
    ] {
        let answer = write(config, None).await;
        assert!(matches!(answer, (Answer::Failed { may_land: false, .. }, true)), "{what}: {answer:?}");
    }
}

#[tokio::test]
async fn a_write_that_times_out_while_connecting_is_not_sent() {
    let mute =
        listener(|mut connection| async move { while connection.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} });
    let answer = write(config("https", &mute.await), Some(200)).await;
    assert!(matches!(answer, (Answer::Failed { may_land: false, .. }, true)), "{answer:?}");
}

#[tokio::test]
async fn a_write_whose_first_byte_was_sent_may_take_effect() {
    let breaks = listener(|mut connection| async move { drop(connection.read(&mut [0; 1]).await) }).await;
    let answer = write(config("http", &breaks), None).await;
    assert!(matches!(answer, (Answer::Failed { may_land: true, .. }, false)), "{answer:?}");
}
