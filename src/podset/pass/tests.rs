//! The requests of a pass before it creates pods.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::*;
use crate::api::condition;
use crate::podset::{Parts, PodSetController, promise::Rules, testing};
use leadership::{Leadership, env::testing::virtual_env};
use operator_kit::{
    client::{Clients, Reader, Writer},
    health::Health,
    listwatch::Change,
    queue,
    runner::{self, Controller},
    telemetry::metrics::Metrics,
};

/// The set `web` with this generation and version, and 2 replicas with a text of so many bytes.
fn stored(generation: i64, version: u64, bytes: usize) -> Value {
    let template = json!({ "spec": { "text": "x".repeat(bytes), "generation": generation } });
    json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "set-uid", "generation": generation,
            "resourceVersion": version.to_string(),
        },
        "spec": { "replicas": 2, "template": template },
    })
}

/// A controller, and the requests that it sends.
struct Play {
    controller: Arc<PodSetController>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Play {
    /// The watch shows the set as `watched`, and a read returns `read`. Before the first read is answered, the watch shows `meanwhile`.
    fn new(watched: Value, read: Value, meanwhile: Option<Value>) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, meanwhile) = (asked.clone(), Mutex::new(meanwhile));
        let reached: Arc<OnceLock<Arc<PodSetController>>> = Arc::default();
        let (within, has_denied) = (reached.clone(), Arc::new(AtomicBool::new(false)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (is_read, path) = (request.method() == Method::GET, request.uri().path().to_owned());
            if is_read && let Some(set) = meanwhile.lock().unwrap().take() {
                within.get().unwrap().set_changed(&None, Change::Applied(serde_json::from_value(set).unwrap()));
            }
            let (noted, read, method) = (noted.clone(), read.clone(), request.method().clone());
            let has_denied = has_denied.clone();
            async move {
                let body = request.into_body().collect().await?.to_bytes();
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let kind = path.rsplit('/').next().unwrap_or_default();
                let text = sent["spec"]["text"].as_str().map(str::len);
                let text = text.map_or(String::new(), |text| format!(" {text} of {}", sent["spec"]["generation"]));
                noted.lock().unwrap().push(format!("{method} {kind}{text}"));
                let mut made = sent;
                if method == Method::POST {
                    made["metadata"]["uid"] = made["metadata"]["name"].clone();
                    made["metadata"]["resourceVersion"] = "30".into();
                } else if method == Method::PATCH {
                    let mut stored = read.clone();
                    stored["metadata"]["resourceVersion"] = "40".into();
                    let mut status = made["status"].clone();
                    // Other clients own the conditions that the read shows, of some only a part. A policy rejects one write.
                    for kept in stored["status"]["conditions"].as_array().into_iter().flatten() {
                        let applied = status["conditions"].as_array_mut().unwrap();
                        if applied.iter().any(|condition| condition["type"] == kept["type"]) {
                            continue;
                        }
                        match kept["message"].as_str() {
                            Some("partly") => return Ok(invalid("status.conditions[1].reason: Required value")),
                            Some("denied") if !has_denied.swap(true, Ordering::Relaxed) => {
                                return Ok(invalid("ValidatingAdmissionPolicy 'p' denied request"));
                            }
                            Some("denied") => {}
                            _ => applied.push(kept.clone()),
                        }
                    }
                    stored["status"] = status;
                    made = stored;
                }
                let answer = if is_read { read } else { made };
                Ok::<_, BoxError>(Response::new(Body::from(serde_json::to_vec(&answer)?)))
            }
        });
        let (env, client) = (virtual_env(), kube::Client::new(service, "default"));
        let leadership = Leadership::always(env.clone());
        let write = Writer::new(client.clone(), &Uri::default(), leadership.clone());
        let shared = runner::Context {
            leadership,
            metrics: Metrics::new(env.clone()),
            health: Health::new(env.clone()),
            max_concurrent: 1,
            stop: CancellationToken::new(),
            env,
        };
        let parts = Parts {
            clients: Clients { read: Reader::new(client, &Uri::default()), write },
            rules: Rules { reads_first: false, ..Rules::default() },
            scopes: vec![None],
            default_image: String::new(),
            instance: String::new(),
            installation: String::new(),
        };
        let controller = Arc::new(PodSetController::new(&shared, parts));
        let _ = reached.set(controller.clone());
        let play = Play { controller, asked };
        play.controller.pod_changed(&None, Change::Snapshot { items: Vec::new(), version: 20 });
        let items = vec![serde_json::from_value(watched).unwrap()];
        play.controller.set_changed(&None, Change::Snapshot { items, version: 20 });
        play
    }

    /// The requests of one pass without its events, which other tasks send, and when the next pass is due.
    async fn pass(&self) -> (Vec<String>, Next) {
        let next = self.controller.reconcile(&ObjectKey::new("default", "web"), queue::SPEC).await;
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.retain(|request| request != "POST events");
        (asked, next)
    }
}

fn invalid(message: &str) -> Response<Body> {
    let status = json!({ "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": message });
    Response::builder().status(422).body(Body::from(status.to_string().into_bytes())).unwrap()
}

const LARGE: usize = 100_000;

#[tokio::test(start_paused = true)]
async fn a_small_template_is_not_read() {
    let play = Play::new(stored(1, 10, 100), stored(1, 10, 100), None);
    assert_eq!(
        play.pass().await.0,
        ["POST controllerrevisions", "POST pods 100 of 1", "POST pods 100 of 1", "PATCH status"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_template_is_read_once_for_all_pods_of_a_pass() {
    let play = Play::new(stored(1, 10, LARGE), stored(1, 10, LARGE), None);
    let (asked, _) = play.pass().await;
    assert_eq!(
        asked,
        ["GET web", "POST controllerrevisions", "POST pods 100000 of 1", "POST pods 100000 of 1", "PATCH status"]
    );
    assert!(
        play.controller.context.templates.try_acquire(&"default".into(), usize::MAX).is_some(),
        "nothing is held any more"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_follow_the_spec_that_was_read_if_it_is_newer() {
    let play = Play::new(stored(1, 10, LARGE), stored(2, 11, LARGE), None);
    let (asked, _) = play.pass().await;
    assert_eq!(
        asked,
        ["GET web", "POST controllerrevisions", "POST pods 100000 of 2", "POST pods 100000 of 2", "PATCH status"]
    );
    // Less room than was taken is enough, and one that is small needs none.
    let play = Play::new(stored(1, 10, LARGE), stored(2, 11, 7), None);
    assert_eq!(play.pass().await.0[..3], ["GET web", "POST controllerrevisions", "POST pods 7 of 2"]);
    // More room is taken first.
    let play = Play::new(stored(1, 10, LARGE), stored(2, 11, 2 * LARGE), None);
    let (asked, next) = play.pass().await;
    assert_eq!((&asked[..], next), (&["GET web".to_owned()][..], Next::At(play.controller.context.env.now())));
    assert_eq!(play.pass().await.0[..3], ["GET web", "POST controllerrevisions", "POST pods 200000 of 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_template_outdated_during_its_read_creates_no_pod() {
    let play = Play::new(stored(1, 10, LARGE), stored(1, 10, LARGE), Some(stored(2, 11, LARGE)));
    let (asked, next) = play.pass().await;
    assert_eq!((&asked[..], next), (&["GET web".to_owned()][..], Next::At(play.controller.context.env.now())));
}

#[tokio::test(start_paused = true)]
async fn a_set_without_room_for_its_template_waits_and_writes_its_status() {
    let play = Play::new(stored(1, 10, LARGE), stored(1, 10, LARGE), None);
    let context = &play.controller.context;
    let others = context.templates.try_acquire(&"default".into(), usize::MAX).unwrap();
    let (asked, next) = play.pass().await;
    let Next::At(again) = next else { panic!("{next:?}") };
    assert_eq!(asked, ["PATCH status"]);
    let small = Play::new(stored(1, 10, 5_000), stored(1, 10, 5_000), None);
    let _all = small.controller.context.templates.try_acquire(&"default".into(), usize::MAX).unwrap();
    assert_eq!(small.pass().await.0[1..3], ["POST controllerrevisions", "POST pods 5000 of 1"], "it needs no room");
    // Deletes need no template, so they are sent.
    let (mut finished, now) = (Vec::new(), context.env.now());
    for number in 0..5 {
        let pod = testing::pod(&format!("old-{number}")).failed(9).version(21).0;
        finished.push(pod);
    }
    context.change_pods(None, |caches| {
        finished.drain(..).for_each(|pod| caches.apply_pods(&None, Change::Applied(pod), now));
    });
    let (asked, _) = play.pass().await;
    assert!(asked.iter().any(|sent| sent.starts_with("DELETE")), "{asked:?}");
    assert!(again > context.env.now() && again < context.env.now() + ROOM_RETRY * 2);
    drop(others);
    assert_eq!(play.pass().await.0[..3], ["GET web", "POST controllerrevisions", "POST pods 100000 of 1"]);
}

/// For example, a restore of a backup wrote the status. A condition that only a policy kept is removed as usual.
#[tokio::test(start_paused = true)]
async fn a_condition_that_another_client_also_owns_becomes_false() {
    for message in ["wholly", "partly", "denied"] {
        let (time, name) = ("2026-01-01T00:00:00Z", ObjectKey::new("default", "web"));
        let stalled = json!({ "type": "Stalled", "status": "True", "reason": "Late", "message": message });
        let mut set = stored(1, 10, 100);
        set["status"] = json!({ "conditions": [stalled] });
        set["status"]["conditions"][0]["lastTransitionTime"] = time.into();
        let play = Play::new(set.clone(), set, None);
        for _ in 0..3 {
            play.pass().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let context = &play.controller.context;
        let set = lock(&context.observed).sets.get(&name).unwrap();
        let stalled = conditions::find(&set.status, condition::STALLED);
        let stalled = stalled.map(|stalled| (stalled.status.as_str(), stalled.reason.as_str()));
        assert_eq!(stalled, (message != "denied").then_some(("False", "Over")), "{message}");
        // Another leader does not know why.
        lock(&context.states).clear();
        assert!(!play.pass().await.0.contains(&"PATCH status".to_owned()), "nothing is left to write");
    }
}
