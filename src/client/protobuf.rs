//! What the API server says in protobuf, which is less work than JSON for it as for us: 10,000 pods are listed in two thirds of the
//! time. Kubernetes' own objects have that form, custom resources have none. Pure.
//!
//! A message declares the fields that are read; whatever else comes is skipped. Their numbers are those of the `generated.proto`
//! files of k8s.io/apimachinery and k8s.io/api, which never change.

use bytes::{Buf, Bytes};
use http::{
    HeaderMap, HeaderValue, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::core::Status;
use prost::Message;
use serde::de::Error as _;

/// The media type of protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The media type of JSON.
const JSON: &str = "application/json";

/// With what each object begins that stands for itself.
const MAGIC: &[u8] = b"k8s\0";

/// The form of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// JSON, or the text of whatever stands before the API server.
    Text,
    /// Protobuf.
    Protobuf,
}

impl Form {
    /// The form of an answer with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
        if kind.starts_with(PROTOBUF.as_bytes()) { Form::Protobuf } else { Form::Text }
    }
}

/// Asks for an answer in protobuf, or in JSON where there is none.
pub fn prefer<B>(request: &mut Request<B>) {
    let accepted = request.headers().get(ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or(JSON);
    let preferred = format!("{},{accepted}", accepted.replace(JSON, PROTOBUF));
    if let Ok(preferred) = HeaderValue::try_from(preferred) {
        request.headers_mut().insert(ACCEPT, preferred);
    }
}

/// What stands around an object: its kind, which whoever asks knows, and its bytes.
#[derive(Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// The bytes of an object that stands for itself.
///
/// # Errors
///
/// When it is none.
pub fn opened(mut bytes: Bytes) -> kube::Result<Bytes> {
    if !bytes.starts_with(MAGIC) {
        return Err(unreadable("there is no object in an answer that should be protobuf"));
    }
    bytes.advance(MAGIC.len());
    Ok(read::<Envelope>(bytes)?.raw)
}

/// Reads a message.
///
/// # Errors
///
/// When it is none.
pub fn read<M: Message + Default>(bytes: Bytes) -> kube::Result<M> {
    M::decode(bytes).map_err(unreadable)
}

/// That an answer cannot be read, whatever its form.
pub fn unreadable(why: impl std::fmt::Display) -> kube::Error {
    kube::Error::SerdeError(serde_json::Error::custom(why))
}

/// A refusal, as far as it is read: whom it speaks of, only those ask who ask for JSON. Its words may hold any bytes.
#[derive(Message)]
struct StatusWire {
    #[prost(bytes = "bytes", tag = "3")]
    message: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    reason: Bytes,
    #[prost(int32, tag = "6")]
    code: i32,
}

/// The refusal that stands for itself in these bytes.
pub fn status(bytes: Bytes) -> Option<Status> {
    let StatusWire { message, reason, code } = read(opened(bytes).ok()?).ok()?;
    let refusal = Status::failure(&String::from_utf8_lossy(&message), &String::from_utf8_lossy(&reason));
    Some(refusal.with_code(u16::try_from(code).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_asked_for_before_json() {
        let accepted = |accepts: Option<&str>| {
            let mut request = Request::get("/").body(()).unwrap();
            if let Some(accepts) = accepts {
                request.headers_mut().insert(ACCEPT, accepts.parse().unwrap());
            }
            prefer(&mut request);
            request.headers()[ACCEPT].to_str().unwrap().to_owned()
        };
        assert_eq!(accepted(None), "application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(
            accepted(Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")),
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        );
    }

    #[test]
    fn the_form_of_an_answer_is_what_its_header_says() {
        for (kind, form) in [
            ("application/vnd.kubernetes.protobuf", Form::Protobuf),
            ("application/vnd.kubernetes.protobuf;stream=watch", Form::Protobuf),
            ("application/json", Form::Text),
            ("text/html", Form::Text),
        ] {
            let headers = [(CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect();
            assert_eq!(Form::of(&headers), form, "{kind}");
        }
        assert_eq!(Form::of(&HeaderMap::new()), Form::Text);
    }

    #[test]
    fn a_status_is_read_in_protobuf() {
        // Kubernetes 1.36 said it of a pod.
        let status = status(Bytes::from_static(include_bytes!("../../tests/data/status.pb"))).unwrap();
        assert_eq!((status.code, &*status.reason, &*status.message), (404, "NotFound", "pods \"none\" not found"));
        assert!(status.is_failure());
        let odd = b"k8s\0\x12\x08\x1a\x03no\xff0\x9a\x03";
        assert_eq!(
            super::status(Bytes::from_static(odd)).map(|status| (status.code, status.message.len())),
            Some((410, 5))
        );
        assert!(super::status(Bytes::from_static(b"too many requests")).is_none());
    }

    #[test]
    fn what_is_no_object_is_told_to_be_none() {
        for bytes in [&b""[..], b"<html>", b"k8s\0\xff", b"k8s"] {
            assert!(matches!(opened(Bytes::copy_from_slice(bytes)), Err(kube::Error::SerdeError(_))), "{bytes:?}");
        }
    }
}
