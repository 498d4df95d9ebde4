use std::{
    future::ready,
    os::unix::process::ExitStatusExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde_json::json;
use tower::Layer;

use super::*;

#[test]
fn secrets_of_a_kubeconfig_are_not_shown() {
    let text = "users: [{user: {token: top-secret}}]\nclusters: [\ncontexts: []";
    let error = Error::from(Kubeconfig::from_yaml(text).unwrap_err()).to_string();
    assert!(error.starts_with("error: cannot use the kubeconfig: ") && !error.contains("top-secret"), "{error}");
    let out =
        std::process::Output { status: ExitStatusExt::from_raw(256), stdout: b"top-secret".into(), stderr: Vec::new() };
    let failed = AuthError::AuthExecRun { cmd: "login --password top-secret".to_owned(), status: out.status, out };
    let error = Error::from(kube::Error::Auth(failed)).to_string();
    assert!(error.ends_with("the exec plugin of the kubeconfig failed (exit status: 1)"), "{error}");
}

#[tokio::test]
async fn events_that_cannot_be_read_do_not_count() {
    let cluster = Cluster::testing(|path| {
        let event = |at: &str| json!({ "metadata": {}, "involvedObject": { "uid": "1" }, "lastTimestamp": at });
        let events = json!([event("9999-12-31T23:59:59Z"), event("2026-01-01T00:00:00Z")]);
        let items = if path.contains("/events") { events } else { json!([]) };
        ready((200, json!({ "metadata": {}, "items": items })))
    });
    let seen = cluster.look(serde_json::from_value(set()).unwrap()).await.unwrap();
    assert_eq!(seen.events.len(), 1);
}

#[tokio::test]
async fn why_works_without_permission_to_list_events_and_revisions() {
    let cluster = Cluster::testing(|path| {
        let status = json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403 });
        let pods = json!({ "metadata": {}, "items": [] });
        ready(if path.contains("/pods") { (200, pods) } else { (403, status) })
    });
    let seen = cluster.look(serde_json::from_value(set()).unwrap()).await.unwrap();
    assert_eq!((seen.events.len(), seen.revisions.len()), (0, 0));
}

#[test]
fn an_answer_that_cannot_be_read_is_no_lost_connection() {
    let unreadable = serde_json::from_str::<u8>("x").unwrap_err();
    let error = Error::from(kube::Error::SerdeError(unreadable)).to_string();
    assert!(error.starts_with("error: cannot read the answer of the API server: "), "{error}");
    let invalid = kube::core::request::Error::Validation("no".to_owned());
    let error = Error::from(kube::Error::BuildRequest(invalid)).to_string();
    assert_eq!(error, "error: cannot make the request: failed to validate request: no");
}

#[test]
fn missing_kubeconfigs_and_empty_contexts_are_skipped() {
    let dir = std::env::temp_dir().join(format!("kubectl-podset-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name)
    };
    let empty = file("empty", r#"{ current-context: "" }"#);
    let (one, broken) = (file("one", "{ current-context: one }"), file("broken", "{"));
    let missing = || dir.join("missing");
    let context = |paths: Vec<PathBuf>| merged(paths).map(|config| config.current_context);
    assert_eq!(context(vec![missing(), empty.clone(), one]).unwrap().as_deref(), Some("one"));
    assert_eq!(context(vec![empty]).unwrap(), None);
    assert!(is_missing(&context(vec![missing()]).unwrap_err()));
    assert!(context(vec![missing(), broken]).is_err_and(|error| !is_missing(&error)));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_proxy_of_the_environment_is_not_used_for_this_machine_or_hosts_in_no_proxy() {
    let variable = |name: &str| match name {
        "https_proxy" => Some("http://user:top-secret@proxy:3128".to_owned()),
        "NO_PROXY" => Some("10.0.0.0/8,.example.com".to_owned()),
        _ => None,
    };
    let is_bypassed = |proxy: &'static str, server: &'static str| {
        super::is_bypassed(&Uri::from_static(proxy), &Uri::from_static(server), variable)
    };
    let environment = "http://user:top-secret@proxy:3128";
    for server in ["https://127.0.0.1:6443", "https://localhost:6443", "https://10.1.2.3", "https://api.example.com"] {
        assert!(is_bypassed(environment, server) && !is_bypassed("http://other:3128", server), "{server}");
    }
    assert!(!is_bypassed(environment, "https://api.example.org"));
    let is_excluded = |server: &'static str, no_proxy: &str| {
        let variable = |name: &str| match name {
            "HTTPS_PROXY" => Some("proxy:3128".to_owned()),
            _ => Some(no_proxy.to_owned()),
        };
        let mut config = Config::new(Uri::from_static(server));
        config.proxy_url = Some(Uri::from_static("proxy:3128"));
        let proxy = adjusted(config, variable).proxy_url;
        assert!(proxy.as_ref().is_none_or(|proxy| *proxy == "http://proxy:3128/"), "{proxy:?}");
        proxy.is_none()
    };
    for (server, no_proxy, expected) in [
        ("https://api.example.com", "*.Example.com", true),
        ("https://api.example.com", "example.com:443", true),
        ("https://api.example.com:6443", "other:443, example.com:6443", true),
        ("https://api.example.com:6443", "example.com:443", false),
        ("https://10.1.2.3:6443", "*", true),
        ("https://203.0.113.5:6443", "10.*", false),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
        ("https://[fd00::1]:6443", "fd00::1", true),
        ("https://api.example.com", "", false),
    ] {
        assert_eq!(is_excluded(server, no_proxy), expected, "{server} {no_proxy}");
    }
    let unsupported = kube::Error::ProxyProtocolUnsupported { proxy_url: Uri::from_static(environment) };
    assert!(!Error::from(unsupported).to_string().contains("top-secret"));
}

impl Cluster {
    /// A cluster for tests. `answer` returns a status code and an object for the path of a request.
    pub fn testing<A, F>(answer: A) -> Self
    where
        A: Fn(String) -> F + Send + 'static,
        F: Future<Output = (u16, Value)> + Send + 'static,
    {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = answer(request.uri().to_string());
            async move {
                let (code, object) = answer.await;
                let body = Body::from(object.to_string().into_bytes());
                http::Response::builder().status(code).body(body)
            }
        });
        let client = Client::new(service, "a");
        let sets = Api::namespaced_with(client.clone(), "a", &objects::resource());
        Cluster { client, namespace: "a".to_owned(), sets }
    }
}

fn set() -> Value {
    let status = json!({ "observedGeneration": 1, "updateRevision": "new", "readyReplicas": 0 });
    let metadata = json!({ "name": "web", "uid": "1", "generation": 1, "resourceVersion": "5" });
    json!({ "metadata": metadata, "spec": { "replicas": 0 }, "status": status })
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_server_cannot_take_is_retried_for_seconds_only() {
    assert!(!adjusted(Config::new(Uri::from_static("https://api.example.com")), |_| None).default_retry);
    let (sent, start) = (Arc::new(AtomicUsize::new(0)), tokio::time::Instant::now());
    let count = sent.clone();
    let service = tower::service_fn(move |_: http::Request<Body>| {
        count.fetch_add(1, Relaxed);
        ready(http::Response::builder().status(429).body(Body::empty()))
    });
    let client = Client::new(retries().layer(service), "a");
    let failed = client.request_text(http::Request::new(Vec::new())).await.unwrap_err();
    assert!(is_transient(&failed), "{failed}");
    assert!((2..9).contains(&sent.load(Relaxed)) && start.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn a_silent_connection_is_given_up() {
    let config = adjusted(Config::new(Uri::from_static("https://api.example.com")), |_| None);
    assert!(config.read_timeout.is_some_and(|limit| limit > Duration::from_secs(WATCH_SECONDS.into())));
    let watched = Cluster::testing(|path| {
        assert!(!path.contains("watch") || path.contains("timeoutSeconds=60"), "{path}");
        ready((200, json!({})))
    });
    let unready = serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": {} })).unwrap();
    assert_eq!(watched.follow_once(unready, 0, true, &mut String::new()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_rollout_is_followed_although_its_revision_cannot_be_read_at_times() {
    let tries = AtomicUsize::new(0);
    let cluster = Cluster::testing(move |path| {
        ready(match path.contains("controllerrevisions") {
            true if tries.fetch_add(1, Relaxed) == 0 => (503, json!({ "kind": "Status", "code": 503 })),
            true => {
                let owner = json!({ "apiVersion": "", "kind": "", "name": "web", "uid": "1", "controller": true });
                (200, json!({ "metadata": { "name": "web-new", "ownerReferences": [owner] }, "revision": 3 }))
            }
            false => (200, set()),
        })
    });
    let done = "podset \"web\" successfully rolled out";
    let set = cluster.get("web").await.unwrap();
    assert_eq!(cluster.follow(set.clone(), 3, true).await.unwrap(), done);
    let other = cluster.follow(set, 2, true).await.unwrap_err().to_string();
    assert!(other.ends_with("(2) is different from the running revision (3)"), "{other}");
}

#[test]
fn server_errors_are_retried_and_client_errors_are_not() {
    let answer = |code| kube::Error::Api(kube::core::Status { code, ..kube::core::Status::default() }.boxed());
    assert_eq!(
        [429, 500, 503, 401, 403, 404].map(|code| is_transient(&answer(code))),
        [true, true, true, false, false, false]
    );
    let no_credentials = AuthError::AuthExec("no token".to_owned());
    assert!(!is_transient(&kube::Error::Service(Box::new(no_credentials))));
    assert!(is_transient(&kube::Error::Service(std::io::Error::other("connection refused").into())));
}
