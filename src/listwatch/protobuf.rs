//! Lists and events of watches in protobuf, as far as they are read. Pure.

use bytes::Bytes;
use kube::core::{
    TypeMeta, WatchEvent,
    watch::{Bookmark, BookmarkMeta},
};
use prost::Message;

use super::{
    Watched,
    list::{List, ListMeta},
};
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

/// Reads an object, without what stands around it. Every field may be missing, so that what is none may look like an empty one.
fn object<T: Watched>(bytes: Bytes) -> kube::Result<T> {
    let decode =
        T::PROTOBUF.ok_or_else(|| unreadable("the API server answers in protobuf, for which it was not asked"))?;
    let object = decode(bytes).map_err(unreadable)?;
    if object.version() == 0 { Err(unreadable("an object has no resourceVersion")) } else { Ok(object) }
}

/// Reads an object that stands for itself.
///
/// # Errors
///
/// When it is none.
pub fn single<T: Watched>(bytes: Bytes) -> kube::Result<T> {
    object(opened(bytes)?)
}

/// Reads a page of a list.
///
/// # Errors
///
/// When it is none.
pub fn list<T: Watched>(bytes: Bytes) -> kube::Result<List<T>> {
    let ListWire { metadata: ListMetaWire { resource_version, next }, items } = read(opened(bytes)?)?;
    if resource_version.is_empty() {
        return Err(unreadable("a list has no resourceVersion"));
    }
    let items = items.into_iter().map(object).collect::<kube::Result<_>>()?;
    Ok(List { metadata: ListMeta { resource_version, next }, items: Some(items) })
}

/// Reads an event of a watch.
///
/// # Errors
///
/// When it is none.
pub fn event<T: Watched>(bytes: Bytes) -> kube::Result<WatchEvent<T>> {
    let EventWire { kind, object: RawWire { raw } } = read(bytes)?;
    match kind.as_str() {
        "ADDED" => object(opened(raw)?).map(WatchEvent::Added),
        "MODIFIED" => object(opened(raw)?).map(WatchEvent::Modified),
        "DELETED" => object(opened(raw)?).map(WatchEvent::Deleted),
        "BOOKMARK" => {
            let ObjectWire { metadata: MetaWire { resource_version } } = read(opened(raw)?)?;
            let metadata = BookmarkMeta { resource_version, annotations: Default::default() };
            Ok(WatchEvent::Bookmark(Bookmark { types: TypeMeta::default(), metadata }))
        }
        "ERROR" => {
            let status = status(raw).ok_or_else(|| unreadable("an error of a watch is no Status"))?;
            Ok(WatchEvent::Error(status.boxed()))
        }
        kind => Err(unreadable(format!("there are no events of the type {kind:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::observe::Pod;

    /// A page of Kubernetes 1.36, of one pod of two.
    const PAGE: &[u8] = include_bytes!("../../tests/data/pods.list.pb");

    /// The bytes of a watch's event with this type in place of `ADDED`.
    fn of_type(kind: &str) -> Bytes {
        let (_, watch) = crate::listwatch::events::WATCH;
        let length = u32::from_be_bytes(*watch.first_chunk().unwrap()) as usize;
        let EventWire { object, .. } = read(Bytes::from_static(&watch[4..4 + length])).unwrap();
        EventWire { kind: kind.to_owned(), object }.encode_to_vec().into()
    }

    #[test]
    fn a_page_is_read_with_what_it_says_of_itself() {
        let List { metadata, items } = list::<Pod>(Bytes::from_static(PAGE)).unwrap();
        assert_eq!((&*metadata.resource_version, metadata.next.len()), ("276", 82));
        assert_eq!(items.unwrap().len(), 1);
    }

    #[test]
    fn a_list_that_was_cut_is_none() {
        for cut in [4, 20, PAGE.len() - 1] {
            assert!(list::<Pod>(Bytes::from_static(&PAGE[..cut])).is_err(), "{cut}");
        }
        // As many bytes as stand before the list itself.
        assert!(list::<Pod>(Bytes::from_static(b"k8s\0\n\x0d\n\x02v1\x12\x07PodList")).is_err());
    }

    #[test]
    fn an_event_is_of_the_type_that_it_says() {
        assert!(matches!(event::<Pod>(of_type("ADDED")), Ok(WatchEvent::Added(_))));
        assert!(matches!(event::<Pod>(of_type("MODIFIED")), Ok(WatchEvent::Modified(_))));
        assert!(
            matches!(event::<Pod>(of_type("DELETED")), Ok(WatchEvent::Deleted(pod)) if &*pod.key.name == "web-pod12345")
        );
        assert!(event::<Pod>(of_type("ANOTHER")).is_err());
        let no_object = EventWire { kind: "ERROR".to_owned(), object: RawWire::default() };
        assert!(event::<Pod>(no_object.encode_to_vec().into()).is_err());
    }

    #[test]
    fn an_object_without_a_version_is_none() {
        let empty = Bytes::from_static(b"k8s\0\x12\0");
        let added = EventWire { kind: "ADDED".to_owned(), object: RawWire { raw: empty } };
        assert!(event::<Pod>(added.encode_to_vec().into()).is_err());
    }
}
