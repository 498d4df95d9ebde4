//! The events of a watch, out of the bytes of its answer: one line of JSON each.
//!
//! kube's own stream of events copies and checks every line once more before it decodes it. All that happens to any pod
//! comes by here, so each line is decoded where it lies. It only reads.

use std::marker::PhantomData;

use bytes::{Buf, BytesMut};
use http::Request;
use http_body_util::BodyExt;
use kube::{
    client::Body,
    core::{Status, WatchEvent},
};
use serde::de::DeserializeOwned;

use crate::client::{Reader, in_full};

/// A watch that was answered.
pub struct Events<T> {
    body: Body,
    /// What has come and is not decoded yet.
    bytes: BytesMut,
    /// How much of it holds no end of a line.
    searched: usize,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Events<T> {
    /// Asks for a watch.
    ///
    /// # Errors
    ///
    /// When the API server is not reached. That it refuses is said by the first event.
    pub async fn ask(reader: &Reader, request: Request<Vec<u8>>) -> kube::Result<Self> {
        let body = reader.ask(request).await?.into_body();
        Ok(Events { body, bytes: BytesMut::new(), searched: 0, of: PhantomData })
    }

    /// The next event; `None`: there are no more. May be given up and asked again.
    ///
    /// # Errors
    ///
    /// When the connection breaks, the API server refuses, or what it says is no event.
    pub async fn next(&mut self) -> Option<kube::Result<WatchEvent<T>>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.bytes[self.searched..]) {
                let end = self.searched + end;
                let event = decoded(&self.bytes[..end]);
                self.bytes.advance(end + 1);
                self.searched = 0;
                return Some(event);
            }
            self.searched = self.bytes.len();
            match self.body.frame().await {
                Some(Ok(frame)) => self.bytes.extend(frame.into_data().ok()),
                // However a watch ends in the middle of a line, it goes on from the last whole one.
                Some(Err(error)) if !in_full(&error).contains("unexpected EOF during chunk") => {
                    return Some(Err(error));
                }
                Some(Err(_)) => return None,
                // A refusal need not end its line.
                None => {
                    self.searched = 0;
                    return last(&std::mem::take(&mut self.bytes));
                }
            }
        }
    }
}

fn decoded<T: DeserializeOwned>(line: &[u8]) -> kube::Result<WatchEvent<T>> {
    serde_json::from_slice(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => kube::Error::Api(status.boxed()),
        Err(_) => kube::Error::SerdeError(error),
    })
}

/// What a line without an end says, if it is whole.
fn last<T: DeserializeOwned>(line: &[u8]) -> Option<kube::Result<WatchEvent<T>>> {
    match decoded(line) {
        Err(kube::Error::SerdeError(error)) if error.is_eof() => None,
        event => Some(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::stream;
    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use kube::Client;
    use serde::Deserialize;
    use tower::BoxError;

    #[derive(Deserialize)]
    struct Named {
        name: String,
    }

    /// What is understood of an answer that comes in these pieces, up to its end or an error.
    async fn told(pieces: &[&'static str]) -> Vec<String> {
        let pieces = pieces.to_vec();
        let service = tower::service_fn(move |_: Request<Body>| {
            let frames = pieces.clone().into_iter().map(|piece| match piece {
                "broken" => Err(std::io::Error::other("the connection broke")),
                "cut" => Err(std::io::Error::other("unexpected EOF during chunk size line")),
                piece => Ok(Frame::data(Bytes::from_static(piece.as_bytes()))),
            });
            async move { Ok::<_, BoxError>(Response::new(StreamBody::new(stream::iter(frames)))) }
        });
        let request = Request::get("/").body(Vec::new()).unwrap();
        let reader = Reader::untraced(Client::new(service, "default"));
        let mut events = Events::<Named>::ask(&reader, request).await.unwrap();
        let mut told = Vec::new();
        while let Some(event) = events.next().await {
            let is_last = event.is_err();
            told.push(match event {
                Ok(WatchEvent::Added(object)) => format!("added {}", object.name),
                Ok(WatchEvent::Deleted(object)) => format!("deleted {}", object.name),
                Ok(WatchEvent::Bookmark(bookmark)) => format!("bookmark {}", bookmark.metadata.resource_version),
                Ok(_) => "another".to_owned(),
                Err(kube::Error::Api(status)) => format!("refused {}", status.code),
                Err(kube::Error::SerdeError(_)) => "no event".to_owned(),
                Err(_) => "failed".to_owned(),
            });
            if is_last {
                break;
            }
        }
        told
    }

    #[tokio::test]
    async fn events_are_told_however_their_bytes_come() {
        let a = r#"{"type":"ADDED","object":{"name":"a"}}"#;
        let lines = [a, "\n", r#"{"type":"DELETED","#, r#""object":{"name":"b"}}"#, "\n"];
        assert_eq!(told(&lines).await, ["added a", "deleted b"]);
        let both =
            "{\"type\":\"ADDED\",\"object\":{\"name\":\"a\"}}\n{\"type\":\"DELETED\",\"object\":{\"name\":\"b\"}}\n";
        assert_eq!(told(&[both]).await, ["added a", "deleted b"]);
        let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\"}}}\n";
        assert_eq!(told(&[bookmark]).await, ["bookmark 7"]);
        assert_eq!(told(&[]).await, [""; 0]);
    }

    #[tokio::test]
    async fn an_end_in_the_middle_of_a_line_loses_that_line_alone() {
        let a = "{\"type\":\"ADDED\",\"object\":{\"name\":\"a\"}}\n";
        assert_eq!(told(&[a, r#"{"type":"DELE"#]).await, ["added a"]);
        assert_eq!(told(&[a, r#"{"type":"DELE"#, "cut"]).await, ["added a"]);
        assert_eq!(told(&[a, "broken"]).await, ["added a", "failed"]);
    }

    #[tokio::test]
    async fn the_last_event_need_not_end_its_line() {
        let a = r#"{"type":"ADDED","object":{"name":"a"}}"#;
        assert_eq!(told(&[a]).await, ["added a"]);
        assert_eq!(told(&[a, "\n", a]).await, ["added a", "added a"]);
    }

    #[tokio::test]
    async fn a_refusal_is_told_with_or_without_an_end_of_its_line() {
        let refusal = r#"{"kind":"Status","status":"Failure","message":"no","reason":"Expired","code":410}"#;
        assert_eq!(told(&[refusal]).await, ["refused 410"]);
        assert_eq!(told(&[refusal, "\n"]).await, ["refused 410"]);
        assert_eq!(told(&["<html>"]).await, ["no event"]);
    }
}
