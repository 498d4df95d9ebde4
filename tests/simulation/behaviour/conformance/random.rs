//! Random requests. Only the seed determines them, so both servers get the same. Each server gets the UIDs and versions that it returned.

use std::collections::BTreeMap;

use kube::Client;
use serde_json::{Value, json};

use super::{JSON, Recorder};
use crate::{apiserver::object::meta, world::dice::Dice};

const REQUESTS: usize = 60;
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn pod(metadata: Value) -> Value {
    let containers = json!([{ "name": "main", "image": "example.com/main" }]);
    // No scheduler has this name, so nothing else writes to the pod.
    let spec = json!({ "containers": containers, "schedulerName": "nobody" });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
}

fn set(metadata: Value, rest: Value) -> Value {
    let mut set = json!({ "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": metadata });
    for (field, value) in rest.as_object().into_iter().flatten() {
        set[field] = value.clone();
    }
    set
}

/// The requests of one seed to one server, in their own namespace.
struct Run {
    recorder: Recorder,
    dice: Dice,
    namespace: String,
    /// The first and the latest object that the server returned, by path.
    known: BTreeMap<String, [Value; 2]>,
}

pub async fn run(client: Client, seed: u64) -> Vec<Value> {
    let namespace = format!("random-{seed}");
    let mut recorder = Recorder::new(client);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    recorder.send("POST", "/api/v1/namespaces", JSON, object).await;
    let mut run = Run { recorder, dice: Dice::new(seed), namespace, known: BTreeMap::new() };
    for _ in 0..REQUESTS {
        run.one().await;
    }
    run.recorder.answers
}

impl Run {
    async fn one(&mut self) {
        let is_pod = self.dice.one_in(2);
        let name = self.dice.one(&["a", "b", "c"]);
        let group = if is_pod { "/api/v1" } else { "/apis/app.example.com/v1alpha1" };
        let plural = if is_pod { "pods" } else { "podsets" };
        let all = format!("{group}/namespaces/{}/{plural}", self.namespace);
        let path = format!("{all}/{name}");
        let status = format!("{path}/status");
        let label = json!(self.dice.one(&[None, Some("0"), Some("1")]));
        let number = self.dice.within(1..11);
        let labels = json!({ "labels": { "l": label } });
        let metadata = self.precondition(&path, labels);
        match self.dice.below(11) {
            0..=2 => self.create(&all, &path, name, is_pod, label).await,
            3 => self.send("GET", &path, JSON, Value::Null).await,
            4 => {
                let query = self.dice.one(&["", "?labelSelector=l%3D1"]);
                self.recorder.send("GET", &format!("{all}{query}"), JSON, Value::Null).await;
            }
            5 => self.send("PATCH", &path, MERGE, json!({ "metadata": metadata })).await,
            6 => self.send("PATCH", &path, MERGE, json!({ "metadata": { "finalizers": null } })).await,
            7 if !is_pod => {
                let rolling = json!({ "paused": self.dice.one_in(2) });
                let spec = json!({ "replicas": number, "updateStrategy": { "rollingUpdate": rolling } });
                // Without a UID: the real server reports all errors, and the simulated one only the first.
                let mut metadata = metadata;
                metadata.as_object_mut().and_then(|fields| fields.remove("uid"));
                self.send("PATCH", &path, MERGE, json!({ "metadata": metadata, "spec": spec })).await;
            }
            8 if !is_pod => {
                let patch = json!({ "metadata": metadata, "status": { "availableReplicas": number } });
                self.send("PATCH", &status, MERGE, patch).await;
            }
            9 if !is_pod => {
                let names: Vec<String> = (0..number % 3).map(|index| format!("{name}-{index}")).collect();
                let mut metadata = self.precondition(&path, json!({}));
                metadata["name"] = name.into();
                // The number differs from those of the merge patches. If an apply repeated the value of a merge patch, only
                // the field owner would change, which the simulation does not model.
                let applied = json!({ "availableReplicas": 20 + number, "podNames": names });
                let body = set(metadata, json!({ "status": applied }));
                let status = format!("{status}?fieldManager=podset-operator&force=true");
                self.send("PATCH", &status, APPLY, body).await;
            }
            _ => {
                let options = json!({ "preconditions": self.precondition(&path, json!({})) });
                self.send("DELETE", &path, JSON, options).await;
            }
        }
    }

    async fn create(&mut self, all: &str, path: &str, name: &str, is_pod: bool, label: Value) {
        let mut metadata = json!({ "name": name });
        if !label.is_null() {
            metadata["labels"] = json!({ "l": label });
        }
        // Pods get no finalizer: the pod garbage collector would soon mark them as failed.
        if !is_pod && self.dice.one_in(3) {
            metadata["finalizers"] = json!(["example.com/keep"]);
        }
        let object = if is_pod { pod(metadata) } else { set(metadata, json!({ "spec": {} })) };
        let answer = self.recorder.send("POST", all, JSON, object).await;
        self.learn(path, &answer);
    }

    async fn send(&mut self, method: &str, path: &str, content_type: &str, body: Value) {
        let answer = self.recorder.send(method, path, content_type, body).await;
        self.learn(path, &answer);
    }

    fn learn(&mut self, path: &str, answer: &Value) {
        let path = path.split("/status").next().unwrap_or_default();
        if !meta(answer, "uid").is_empty() {
            let first = self.known.get(path).map_or_else(|| answer.clone(), |[first, _]| first.clone());
            self.known.insert(path.to_owned(), [first, answer.clone()]);
        }
    }

    /// Adds a UID or a resourceVersion, right, old or foreign, to the metadata.
    fn precondition(&mut self, path: &str, mut metadata: Value) -> Value {
        let field = self.dice.one(&["uid", "resourceVersion"]);
        let (is_old, kind) = (self.dice.one_in(2), self.dice.below(4));
        let known = self.known.get(path).map(|known| meta(&known[usize::from(!is_old)], field));
        match (kind, known) {
            (0, Some(known)) => metadata[field] = known.into(),
            (1, _) if field == "uid" => metadata[field] = "11111111-2222-3333-4444-555555555555".into(),
            _ => {}
        }
        metadata
    }
}
