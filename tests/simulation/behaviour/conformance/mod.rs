//! Requests, and the responses of a real kube-apiserver to them: `recorded.json` beside this file, recorded from 1.36.3. The API server of
//! the simulation must answer the same.
//!
//! In a request, `<uid 1>` and `<version 1>` stand for what the server returned under this name, and `<continue>` and `<list version>` for
//! the token and the version of the last list. `as` is the content type, if it is not JSON. To add a request, add an entry and run
//! `make conformance`. It starts a cluster without nodes, installs both CRDs, and records the responses again. Then it sends random requests
//! to both servers and compares the answers. `SIMULATION_KUBECONFIG` names the kubeconfig of the cluster.

mod random;

use std::{collections::BTreeMap, time::Duration};

use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::apiserver::{ApiServer, PodScript, object::meta};

const RECORDED: &str = include_str!("recorded.json");
const JSON: &str = "application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Sends requests and keeps the responses, without the parts that differ from run to run.
struct Recorder {
    client: Client,
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    /// The last list.
    list: Value,
    answers: Vec<Value>,
}

impl Recorder {
    fn new(client: Client) -> Self {
        Self { client, uids: BTreeMap::new(), versions: BTreeMap::new(), list: Value::Null, answers: Vec::new() }
    }

    /// Puts what this server returned in the places of its names.
    fn filled(&self, text: &str) -> String {
        let [token, version] = ["continue", "resourceVersion"].map(|field| meta(&self.list, field));
        let text = text.replace("<continue>", token).replace("<list version>", version);
        let returned = self.uids.iter().chain(&self.versions);
        returned.fold(text, |text, (value, name)| text.replace(name, value))
    }

    /// Sends a request. Returns the response as received.
    async fn send(&mut self, method: &str, path: &str, content_type: &str, body: Value) -> Value {
        let bytes = if body.is_null() { vec![] } else { body.to_string().into_bytes() };
        // `?partial` and `?partials` tell this recorder to ask for metadata only. API servers ignore them.
        let accept = match path {
            _ if path.contains("partials") => PARTIAL_LIST,
            _ if path.contains("partial") => PARTIAL,
            _ => JSON,
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", accept)
            .body(Body::from(bytes))
            .expect("a request");
        let response = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let text = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut sent = body;
        self.normalise(&mut sent);
        let lines: Vec<Value> = match serde_json::from_str(&text) {
            Ok(whole) => vec![whole],
            Err(_) => text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|_| l.into())).collect(),
        };
        let mut kept = lines.clone();
        // The server decides when it sends bookmarks.
        kept.retain(|line| line["type"] != "BOOKMARK");
        kept.iter_mut().for_each(|line| self.normalise(line));
        self.answers
            .push(json!({ "request": format!("{method} {path} {sent}"), "code": code, "type": kind, "answer": kept }));
        let answer = lines.into_iter().next().unwrap_or_default();
        if answer["items"].is_array() {
            let version = |list| meta(list, "resourceVersion").to_owned();
            assert!(
                !path.contains("continue=") || version(&answer) == version(&self.list),
                "a page of another version"
            );
            self.list = answer.clone();
        }
        answer
    }

    /// Removes or renames the parts that differ between servers: versions, times, identities, defaults of
    /// fields that no operator looks at. The version of an object keeps its name as long as the object does not change.
    fn normalise(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                // A list has no UID. Its version is that of the whole server, and differs between servers.
                if !map.contains_key("uid") {
                    map.remove("resourceVersion");
                }
                for field in ["managedFields", "creationTimestamp", "qosClass"] {
                    map.remove(field);
                }
                if map.contains_key("containers") || map.contains_key("phase") {
                    let kept = ["phase", "nodeName", "terminationGracePeriodSeconds"];
                    map.retain(|field, _| kept.contains(&field.as_str()));
                }
                if map.get("continue").is_some_and(|token| token == "") {
                    map.remove("continue");
                }
                for (field, inner) in map.iter_mut() {
                    match field.as_str() {
                        "deletionTimestamp" | "continue" => *inner = "<some>".into(),
                        // The real server names the cause of a foreign UID twice.
                        "causes" => {
                            self.normalise(inner);
                            inner.as_array_mut().into_iter().for_each(Vec::dedup);
                        }
                        "resourceVersion" => {
                            *inner = renamed(&mut self.versions, "version", inner.as_str().unwrap_or_default()).into();
                        }
                        "uid" => *inner = renamed(&mut self.uids, "uid", inner.as_str().unwrap_or_default()).into(),
                        "message" => *inner = self.named(inner.as_str().unwrap_or_default()).into(),
                        _ => self.normalise(inner),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalise(item)),
            _ => {}
        }
    }

    fn named(&self, text: &str) -> String {
        // The rest describes the encoding of the token, which differs.
        let text = text.split(": continue key is not valid").next().unwrap_or_default();
        let text = self.uids.iter().fold(text.to_owned(), |t, (uid, name)| t.replace(uid, name));
        let words = text.split(' ').map(|word| {
            let bare = word.trim_matches(['(', ')', '.', ',']);
            let version = word.starts_with('(') && bare.parse::<u64>().is_ok();
            if version { word.replace(bare, "<version>") } else { word.to_owned() }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The name of a UID or a version: its number in the order of first appearance.
fn renamed(known: &mut BTreeMap<String, String>, what: &str, value: &str) -> String {
    let next = format!("<{what} {}>", known.len());
    known.entry(value.to_owned()).or_insert(next).clone()
}

/// Sends the requests of the recording. Returns it with the responses of this server.
async fn replay(client: Client) -> Vec<Value> {
    let mut recorder = Recorder::new(client);
    let mut recorded: Vec<Value> = serde_json::from_str(RECORDED).expect("the recording");
    for entry in &mut recorded {
        let request = recorder.filled(entry["request"].as_str().expect("a request"));
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let body = serde_json::from_str(&recorder.filled(&entry["body"].to_string())).expect("a body");
        recorder.send(method, path, entry["as"].as_str().unwrap_or(JSON), body).await;
        let mut answered = recorder.answers.pop().expect("just recorded");
        for field in ["answer", "code", "type"] {
            entry[field] = answered[field].take();
        }
    }
    recorded
}

/// A client of the simulated API server. No pod is scheduled there.
fn simulated() -> Client {
    let server = ApiServer::new(1);
    server.set_pod_script(PodScript::unschedulable());
    server.settings(|s| s.collect_after = Duration::from_secs(60));
    server.client("conformance")
}

async fn real() -> Client {
    let path = std::env::var("SIMULATION_KUBECONFIG").expect("SIMULATION_KUBECONFIG names a kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

/// Fails if the responses of the simulated server differ from those of the real one.
fn compare(simulated: &[Value], real: &[Value]) {
    let pairs = real.iter().zip(simulated).filter(|(real, ours)| real != ours);
    let differences: Vec<String> =
        pairs.map(|(real, ours)| format!("we answer {ours:#}\nthe real server {real:#}")).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(simulated.len(), real.len());
}

#[tokio::test(start_paused = true)]
async fn the_simulation_answers_like_the_real_server() {
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).expect("the recording");
    compare(&replay(simulated()).await, &recorded);
}

#[tokio::test]
#[ignore = "needs a real API server: make conformance"]
async fn random_requests_get_the_same_answers() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (first, count) = (number("SIMULATION_FROM", 0), number("SIMULATION_SEEDS", 100));
    for seed in first..first + count {
        let theirs = random::run(real().await, seed).await;
        // On another thread, because it needs its own runtime with virtual time.
        let ours = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.expect("a runtime").block_on(async { random::run(simulated(), seed).await })
        });
        println!("seed {seed}");
        compare(&ours.join().expect("answers"), &theirs);
    }
}

#[tokio::test]
#[ignore = "writes the recording: make conformance"]
async fn record() {
    let answers = replay(real().await).await;
    let lines: Vec<String> = answers.iter().map(Value::to_string).collect();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulation/behaviour/conformance/recorded.json");
    std::fs::write(file, format!("[\n{}\n]\n", lines.join(",\n"))).expect("written");
}
