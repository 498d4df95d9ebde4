//! The events of a watch, one line of JSON each.
//!
//! kube's own stream would parse an error response, for instance from a proxy, as an event.

use std::{future::ready, io};

use futures::{Stream, StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt;
use kube::core::WatchEvent;
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    io::StreamReader,
};

use crate::client::{Reader, status};
use crate::meta::Watched;

/// The longest line. etcd stores at most a few MiB for an object.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// Requests a watch, and returns its events.
pub async fn events<T: Watched>(
    reader: &Reader,
    request: Request<Vec<u8>>,
) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<T>>> + Unpin + use<T>> {
    let body = reader.ask(request).await?;
    let bytes = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    let lines = FramedRead::new(bytes, LinesCodec::new_with_max_length(MAX_LINE_BYTES))
        .try_filter(|line| ready(!line.is_empty()));
    Ok(lines.scan((), |(), line| ready(event(line))))
}

/// The event in a line. `None`: the line is not whole, and ends the watch. The next watch continues after the last whole line.
fn event<T: Watched>(line: Result<String, LinesCodecError>) -> Option<kube::Result<WatchEvent<T>>> {
    let line = match line {
        Ok(line) => line,
        Err(LinesCodecError::Io(error)) if error.to_string().contains("unexpected EOF during chunk") => return None,
        Err(LinesCodecError::Io(error)) => return Some(Err(kube::Error::ReadEvents(error))),
        Err(LinesCodecError::MaxLineLengthExceeded) => {
            return Some(Err(kube::Error::LinesCodecMaxLineLengthExceeded));
        }
    };
    match serde_json::from_str(&line) {
        Ok(event) => Some(Ok(event)),
        Err(error) if error.is_eof() => None,
        Err(error) => Some(Err(match status(line.as_bytes()) {
            Some(status) => kube::Error::Api(status.boxed()),
            None => kube::Error::SerdeError(error),
        })),
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::{Client, client::Body, core::Status};
    use serde::Deserialize;
    use tower::BoxError;

    #[derive(Deserialize)]
    struct Named {
        name: String,
    }

    impl Watched for Named {
        fn version(&self) -> u64 {
            0
        }
    }

    #[derive(Deserialize)]
    struct Recorded {
        metadata: ObjectMeta,
    }

    impl Watched for Recorded {
        fn version(&self) -> u64 {
            0
        }
    }

    /// A watch whose response has this code and these pieces.
    async fn answered(
        code: u16,
        pieces: &[&'static str],
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<Named>>> + Unpin> {
        let pieces = pieces.iter().map(|piece| piece.as_bytes()).collect();
        answered_in(code, pieces).await
    }

    async fn answered_in<T: Watched>(
        code: u16,
        pieces: Vec<&'static [u8]>,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<T>>> + Unpin + use<T>> {
        let service = tower::service_fn(move |_: Request<Body>| {
            let frames = pieces.clone().into_iter().map(|piece| match piece {
                b"broken" => Err(std::io::Error::other("the connection broke")),
                b"cut" => Err(std::io::Error::other("unexpected EOF during chunk size line")),
                piece => Ok(Frame::data(Bytes::from_static(piece))),
            });
            let response = Response::builder().status(code);
            let response = response.body(StreamBody::new(stream::iter(frames))).unwrap();
            async move { Ok::<_, BoxError>(response) }
        });
        let request = Request::get("/").body(Vec::new()).unwrap();
        let reader = Reader::new(Client::new(service, "default"), &http::Uri::default());
        super::events(&reader, request).await
    }

    /// What is decoded of a response in these pieces, up to its end or an error.
    async fn decoded(pieces: &[&'static str]) -> Vec<String> {
        let mut events = answered(200, pieces).await.unwrap();
        let mut decoded = Vec::new();
        while let Some(event) = events.next().await {
            let is_last = event.is_err();
            decoded.push(match event {
                Ok(WatchEvent::Added(object)) => format!("added {}", object.name),
                Ok(WatchEvent::Deleted(object)) => format!("deleted {}", object.name),
                Ok(WatchEvent::Bookmark(bookmark)) => format!("bookmark {}", bookmark.metadata.resource_version),
                Ok(_) => "another".to_owned(),
                Err(kube::Error::Api(status)) => format!("rejected {}", status.code),
                Err(kube::Error::SerdeError(_)) => "no event".to_owned(),
                Err(_) => "failed".to_owned(),
            });
            if is_last {
                break;
            }
        }
        decoded
    }

    #[tokio::test]
    async fn events_are_decoded_however_their_bytes_arrive() {
        let a = r#"{"type":"ADDED","object":{"name":"a"}}"#;
        let lines = [a, "\n", r#"{"type":"DELETED","#, r#""object":{"name":"b"}}"#, "\n"];
        assert_eq!(decoded(&lines).await, ["added a", "deleted b"]);
        let both =
            "{\"type\":\"ADDED\",\"object\":{\"name\":\"a\"}}\n{\"type\":\"DELETED\",\"object\":{\"name\":\"b\"}}\n";
        assert_eq!(decoded(&[both]).await, ["added a", "deleted b"]);
        let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\"}}}\n";
        assert_eq!(decoded(&[bookmark]).await, ["bookmark 7"]);
        assert_eq!(decoded(&[]).await, [""; 0]);
    }

    /// A watch of pods that Kubernetes 1.36 sent, with a bookmark.
    #[tokio::test]
    async fn a_recorded_watch_is_read() {
        let json = include_bytes!("../../../../tests/data/pods.watch.json");
        let mut events = answered_in::<Recorded>(200, json.chunks(1000).collect()).await.unwrap();
        let Some(Ok(WatchEvent::Added(pod))) = events.next().await else { panic!("a pod") };
        assert_eq!(pod.metadata.name.as_deref(), Some("web-pod12345"));
        let Some(Ok(WatchEvent::Bookmark(bookmark))) = events.next().await else { panic!("a bookmark") };
        assert_eq!(bookmark.metadata.resource_version, "316");
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn an_end_in_the_middle_of_a_line_loses_only_that_line() {
        let a = "{\"type\":\"ADDED\",\"object\":{\"name\":\"a\"}}\n";
        assert_eq!(decoded(&[a, r#"{"type":"DELE"#]).await, ["added a"]);
        assert_eq!(decoded(&[a, r#"{"type":"DELE"#, "cut"]).await, ["added a"]);
        assert_eq!(decoded(&[a, "broken"]).await, ["added a", "failed"]);
    }

    /// Otherwise the next watch would continue after the lost event.
    #[tokio::test]
    async fn a_watch_ends_at_an_incomplete_line() {
        let a = "{\"type\":\"ADDED\",\"object\":{\"name\":\"a\"}}\n";
        assert_eq!(decoded(&[a, "{\"type\":\"DELE\n", a]).await, ["added a"]);
        assert_eq!(decoded(&["\n", a, "\r\n", a]).await, ["added a", "added a"], "empty lines are skipped");
    }

    #[tokio::test]
    async fn the_last_event_needs_no_newline() {
        let a = r#"{"type":"ADDED","object":{"name":"a"}}"#;
        assert_eq!(decoded(&[a]).await, ["added a"]);
        assert_eq!(decoded(&[a, "\n", a]).await, ["added a", "added a"]);
    }

    #[tokio::test]
    async fn a_status_is_decoded_with_or_without_a_newline() {
        let status = r#"{"kind":"Status","status":"Failure","message":"no","reason":"Expired","code":410}"#;
        assert_eq!(decoded(&[status]).await, ["rejected 410"]);
        assert_eq!(decoded(&[status, "\n"]).await, ["rejected 410"]);
        assert_eq!(decoded(&["<html>"]).await, ["no event"]);
    }

    #[tokio::test]
    async fn an_object_that_is_neither_event_nor_status_is_an_error() {
        for object in ["{}", r#"{"error":"overloaded"}"#, r#"{"kind":"Pod","metadata":{"name":"a"}}"#] {
            assert_eq!(decoded(&[object, "\n"]).await, ["no event"], "{object}");
        }
        assert_eq!(decoded(&[r#"{"kind":"Status","status":"Failure","message":"no"}"#]).await, ["rejected 0"]);
    }

    /// The Status with which a watch fails that gets this response.
    async fn rejected(code: u16, pieces: &[&'static str]) -> Status {
        match answered(code, pieces).await {
            Err(kube::Error::Api(status)) => *status,
            Err(error) => panic!("no Status: {error}"),
            Ok(_) => panic!("accepted"),
        }
    }

    #[tokio::test]
    async fn a_rejection_need_not_be_a_status() {
        let status =
            rejected(410, &[r#"{"kind":"Status","status":"Failure","#, r#""reason":"Expired","code":410}"#]).await;
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        let without_code = rejected(503, &[r#"{"kind":"Status","status":"Failure","message":"no"}"#]).await;
        assert_eq!((without_code.code, without_code.message.as_str()), (503, "no"));
        let cases: [(u16, &[&'static str], &str); 5] = [
            (429, &["Too many requests, please ", "try again later.\n"], "Too many requests, please try again later."),
            (502, &["<html>\n  <h1>Bad Gateway</h1>\n</html>\n"], "<html> <h1>Bad Gateway</h1> </html>"),
            (503, &[r#"{"message":"overloaded"}"#], r#"{"message":"overloaded"}"#),
            (503, &["upstream ", "broken"], "the response has no message"),
            (504, &[], "the response has no message"),
        ];
        for (code, pieces, message) in cases {
            let status = rejected(code, pieces).await;
            assert_eq!((status.code, status.message.as_str()), (code, message));
        }
        let endless = [["0123456789"; 100].concat().leak() as &'static str; 100];
        assert_eq!(rejected(500, &endless).await.message.len(), 200);
    }
}
