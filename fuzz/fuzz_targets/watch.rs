//! Feeds a watch with any lines in any pieces. No event is skipped: the changes match the first events that were sent,
//! and the next watch starts where they end, or a new list replaces them.
#![no_main]

use std::{
    io,
    sync::{Arc, Mutex},
};

use arbitrary::Arbitrary;
use bytes::Bytes;
use leadership::env::testing::virtual_env;
use libfuzzer_sys::fuzz_target;
use operator_kit::{
    client::Reader,
    listwatch::{self, Change, Source, is_stale, synced::Synced},
};
use podset_operator::podset::observe::Pod;
use podset_operator_fuzz::{Edit, Pieces, client, edited, run};
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Arbitrary, Debug)]
struct Input {
    parts: Vec<Part>,
    cuts: Vec<u8>,
    end: End,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum End {
    Closed,
    Broken,
    /// In the middle of a chunk, as hyper reports it.
    Chunk,
}

#[derive(Arbitrary, Debug)]
enum Part {
    Event {
        kind: u8,
        version: u8,
        edits: Vec<Edit>,
    },
    /// The first bytes of an event.
    Begun {
        kind: u8,
        version: u8,
        bytes: u8,
    },
    Line,
    Bytes(Vec<u8>),
}

fn event(kind: u8, version: u8, edits: &[Edit]) -> String {
    let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"][usize::from(kind) % 5];
    let metadata = json!({ "name": "a", "uid": "u", "resourceVersion": version.to_string() });
    let object = match kind {
        "ERROR" => json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired" }),
        _ => json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata }),
    };
    edited(&json!({ "type": kind, "object": object }), edits).to_string()
}

/// A change: its type, and its pod or version.
type Delivered = (&'static str, Option<Pod>, u64);

/// The changes from a body, and the version at which the next watch starts, or `None` if a list comes first.
fn delivered(body: Pieces) -> (Vec<Delivered>, Option<u64>) {
    run(async {
        let (changes, next, over) = (Mutex::new(Vec::new()), Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
        let (note, notify, mut body, mut is_first) = (next.clone(), over.clone(), Some(body), true);
        let list = br#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;
        let client = client(move |request| {
            if std::mem::take(&mut is_first) {
                return Some((200, vec![Ok(Bytes::from_static(list))]));
            }
            if let Some(body) = body.take() {
                return Some((200, body));
            }
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.contains("watch=true");
            let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).filter(|_| is_watch);
            *note.lock().unwrap() = from.map(|from| from.parse().unwrap());
            notify.notify_one();
            None
        });
        let source = Source { what: "pods", path: "/api/v1/pods".into(), labels: None, metadata_only: false, is_stale };
        let listing = Synced::default().register("pods", &None);
        let watch = listwatch::run(
            Reader::new(client, &http::Uri::default()),
            source,
            virtual_env(),
            listing,
            |change: Change<Pod>| {
                changes.lock().unwrap().extend(match change {
                    Change::Snapshot { .. } => None,
                    Change::Applied(pod) => Some(("applied", Some(pod), 0)),
                    Change::Deleted(pod) => Some(("deleted", Some(pod), 0)),
                    Change::Progress(version) => Some(("progress", None, version)),
                });
            },
        );
        tokio::select! { () = watch => unreachable!("it never ends"), () = over.notified() => {} }
        let from = next.lock().unwrap().take();
        (changes.into_inner().unwrap(), from)
    })
}

/// The sent changes, up to the first line that cannot be read, each with the version that was reached.
fn sent(body: &[u8]) -> Vec<(Delivered, u64)> {
    let (mut sent, mut reached) = (Vec::new(), 1);
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace)) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { break };
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), event["object"].clone());
        let change = if kind == "BOOKMARK" {
            ("progress", None, object["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse().unwrap_or(0))
        } else if let Ok(pod) = serde_json::from_value::<Pod>(object) {
            if pod.version < reached {
                continue;
            }
            (if kind == "DELETED" { "deleted" } else { "applied" }, Some(pod), 0)
        } else {
            break;
        };
        reached = reached.max(change.1.as_ref().map_or(change.2, |pod| pod.version));
        sent.push((change, reached));
    }
    sent
}

fuzz_target!(|input: Input| {
    let (mut body, mut is_plain) = (Vec::new(), true);
    for part in &input.parts {
        match part {
            Part::Event { kind, version, edits } => {
                body.extend(event(*kind, *version, edits).bytes());
                body.push(b'\n');
                is_plain &= edits.is_empty() && kind % 5 != 4;
            }
            Part::Begun { kind, version, bytes } => {
                body.extend(event(*kind, *version, &[]).bytes().take(usize::from(*bytes)));
                is_plain = false;
            }
            Part::Line => body.push(b'\n'),
            Part::Bytes(bytes) => {
                body.extend(bytes);
                is_plain = false;
            }
        }
    }
    let end = match input.end {
        End::Closed => None,
        End::Broken => Some("the connection broke"),
        End::Chunk => Some("unexpected EOF during chunk size line"),
    };
    let end = || end.map(|error| Err(io::Error::other(error)));
    let whole = Bytes::from(body);
    let mut rest = whole.clone();
    let mut pieces: Pieces = Vec::new();
    for cut in &input.cuts {
        pieces.push(Ok(rest.split_to(rest.len().min(usize::from(*cut)))));
    }
    pieces.push(Ok(rest));
    pieces.extend(end());

    let (changes, from) = delivered(pieces);
    assert_eq!((&changes, from), (&delivered(std::iter::once(Ok(whole.clone())).chain(end()).collect()).0, from));
    let sent = sent(&whole);
    assert!(changes.len() <= sent.len(), "more changes than were sent: {changes:?}");
    assert!(changes.iter().zip(&sent).all(|(change, (sent, _))| change == sent), "{changes:?} of {sent:?}");
    let reached = changes.len().checked_sub(1).map_or(1, |last| sent[last].1);
    assert!(from.is_none_or(|from| from == reached), "the next watch begins at {from:?}, not at {reached}");
    assert!(!is_plain || changes.len() == sent.len(), "{changes:?} of {sent:?}");
});
