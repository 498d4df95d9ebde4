//! Shared by the fuzz targets: random edits of JSON documents, and an API server that responds with any bytes.

use std::{future::Future, io, sync::LazyLock};

use arbitrary::Arbitrary;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::BoxError;

/// A pod with all fields that the operator reads, as Kubernetes 1.36 sends it, without the largest other fields.
pub static POD: LazyLock<Value> = LazyLock::new(|| {
    let watch = include_str!("../../tests/data/pods.watch.json");
    let event = watch.lines().next().expect("the recorded watch has an event");
    let mut event: Value = serde_json::from_str(event).expect("the event is JSON");
    let mut pod = event["object"].take();
    pod["metadata"]["managedFields"].take();
    pod["spec"] = json!({ "nodeName": pod["spec"]["nodeName"] });
    pod
});

/// Texts with a meaning for some parser.
const WORDS: [&str; 32] = [
    "",
    "0",
    "8",
    "-1",
    "18446744073709551616",
    "7 ",
    "50%",
    "300%",
    "True",
    "False",
    "Ready",
    "PodScheduled",
    "DisruptionTarget",
    "Pending",
    "Running",
    "Succeeded",
    "Failed",
    "Success",
    "Failure",
    "NotFound",
    "Expired",
    "PodSet",
    "podset-operator",
    "app.example.com/v1alpha1",
    "app.example.comet/v1",
    "njg4qh94mc",
    "OnDelete",
    "TerminationComplete",
    "1969-12-31T23:59:59.999999Z",
    "2026-11-23T13:03:24.5+01:00",
    "9999-12-31T23:59:59Z",
    "+292277022-01-01T00:00:00Z",
];

/// Replaces or removes the value at one place of a document.
#[derive(Arbitrary, Clone, Debug)]
pub struct Edit {
    place: u16,
    to: To,
}

#[derive(Arbitrary, Clone, Debug)]
enum To {
    Absent,
    Null,
    Bool(bool),
    Small(i8),
    Number(i64),
    Fraction(f64),
    Word(u8),
    Text(String),
    List,
    Object,
    /// A copy of the value at another place.
    Copy(u16),
    /// A list twice; another value as a list.
    Twice,
}

/// Applies these edits to the document, one after the other.
pub fn edited(document: &Value, edits: &[Edit]) -> Value {
    let mut document = document.clone();
    for Edit { place, to } in edits.iter().take(8) {
        let mut places = Vec::new();
        collect(&document, "", &mut places);
        let at = |index: u16| &*places[usize::from(index) % places.len()];
        let new = match to {
            To::Absent | To::Null => Value::Null,
            To::Bool(is_true) => json!(is_true),
            To::Small(number) => json!(number),
            To::Number(number) => json!(number),
            To::Fraction(number) => json!(number),
            To::Word(index) => json!(WORDS[usize::from(*index) % WORDS.len()]),
            To::Text(text) => json!(text),
            To::List => json!([]),
            To::Object => json!({}),
            To::Copy(other) => document.pointer(at(*other)).cloned().unwrap_or_default(),
            To::Twice => match document.pointer(at(*place)) {
                Some(Value::Array(items)) => json!([&items[..], &items[..]].concat()),
                other => json!([other]),
            },
        };
        let (parent, key) = at(*place).rsplit_once('/').unwrap_or_default();
        match (to, document.pointer_mut(parent)) {
            (To::Absent, Some(Value::Object(fields))) => {
                drop(fields.remove(&key.replace("~1", "/").replace("~0", "~")))
            }
            _ => {
                if let Some(value) = document.pointer_mut(at(*place)) {
                    *value = new;
                }
            }
        }
    }
    document
}

/// The JSON pointers of all values in a document.
fn collect(value: &Value, at: &str, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), places);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, &format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
    places.push(at.to_owned());
}

/// The pieces of a body. It ends with an error, or after the last one.
pub type Pieces = Vec<io::Result<Bytes>>;

/// A client of an API server with these responses; `None` is no response. Call it within [`run`].
pub fn client(mut answer: impl FnMut(Request<Body>) -> Option<(u16, Pieces)> + Send + 'static) -> Client {
    let service = tower::service_fn(move |request| {
        let answer = answer(request);
        async move {
            let Some((code, pieces)) = answer else { return std::future::pending().await };
            let frames = pieces.into_iter().map(|piece| piece.map(Frame::data));
            Ok::<_, BoxError>(Response::builder().status(code).body(StreamBody::new(stream::iter(frames)))?)
        }
    });
    Client::new(service, "default")
}

/// Runs the future on virtual time.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime needs nothing").block_on(future)
}
