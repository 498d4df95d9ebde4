//! Lists and events of watches in protobuf, as far as they are read. Pure.

use bytes::Bytes;
use kube::core::{
    Status, TypeMeta, WatchEvent,
    watch::{Bookmark, BookmarkMeta},
};
use prost::Message;

use super::{List, ListMeta, Watched};
use crate::client::protobuf::{opened, read, status, unreadable};

/// How the bytes of an object are read, without what stands around it.
pub type Decode<T> = fn(Bytes) -> Result<T, prost::DecodeError>;

#[derive(Message)]
struct ListWire {
    #[prost(message, required, tag = "1")]
    metadata: ListMetaWire,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

#[derive(Message)]
struct ListMetaWire {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    next: String,
}

#[derive(Message)]
struct EventWire {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, required, tag = "2")]
    object: RawWire,
}

#[derive(Message)]
struct RawWire {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

/// What is read of an object of whatever kind.
#[derive(Message)]
struct ObjectWire {
    #[prost(message, required, tag = "1")]
    metadata: MetaWire,
}

#[derive(Message)]
struct MetaWire {
    #[prost(string, tag = "6")]
    resource_version: String,
}

/// How objects of this kind are read.
fn decode<T: Watched>() -> kube::Result<Decode<T>> {
    T::PROTOBUF.ok_or_else(|| unreadable("the API server answers in protobuf, for which it was not asked"))
}

/// Reads a page of a list.
///
/// # Errors
///
/// When it is none.
pub fn list<T: Watched>(bytes: Bytes) -> kube::Result<List<T>> {
    let decode = decode::<T>()?;
    let ListWire { metadata: ListMetaWire { resource_version, next }, items } = read(opened(bytes)?)?;
    let items = items.into_iter().map(decode).collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(List { metadata: ListMeta { resource_version, next }, items: Some(items) })
}

/// Reads an event of a watch.
///
/// # Errors
///
/// When it is none.
pub fn event<T: Watched>(bytes: Bytes) -> kube::Result<WatchEvent<T>> {
    let decode = decode::<T>()?;
    let EventWire { kind, object: RawWire { raw } } = read(bytes)?;
    let object = || decode(opened(raw.clone())?).map_err(unreadable);
    match kind.as_str() {
        "ADDED" => object().map(WatchEvent::Added),
        "MODIFIED" => object().map(WatchEvent::Modified),
        "DELETED" => object().map(WatchEvent::Deleted),
        "BOOKMARK" => {
            let ObjectWire { metadata: MetaWire { resource_version } } = read(opened(raw)?)?;
            let metadata = BookmarkMeta { resource_version, annotations: Default::default() };
            Ok(WatchEvent::Bookmark(Bookmark { types: TypeMeta::default(), metadata }))
        }
        "ERROR" => {
            let status = status(raw).unwrap_or_else(|| Status::failure("without a reason", ""));
            Ok(WatchEvent::Error(status.boxed()))
        }
        kind => Err(unreadable(format!("there are no events of the type {kind:?}"))),
    }
}
