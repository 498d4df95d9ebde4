//! The part of an object's metadata that controllers read, decoded from what the API server sends. It does nothing.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};

use super::ObjectKey;
use crate::listwatch;

/// The UID of an object.
pub type Uid = Arc<str>;

/// Metadata of an object; what is not named here is not decoded. What others may write is bytes: the API server takes it in protobuf
/// whether it is text or not, and one odd object must not stop the watch of all others.
#[derive(Clone, Deserialize, Message)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Namespace.
    #[serde(default)]
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// UID.
    #[serde(default)]
    #[prost(string, tag = "5")]
    pub uid: String,
    /// resourceVersion, as the API server writes it.
    #[serde(default)]
    #[prost(string, tag = "6")]
    pub resource_version: String,
    /// Generation of the spec; 0 where the kind has none.
    #[serde(default)]
    #[prost(int64, tag = "7")]
    pub generation: i64,
    /// When it was created.
    #[serde(default)]
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    /// When its deletion was asked for.
    #[serde(default)]
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    /// Labels.
    #[serde(default, deserialize_with = "entries")]
    #[prost(message, repeated, tag = "11")]
    pub labels: Vec<Entry>,
    /// Annotations.
    #[serde(default, deserialize_with = "entries")]
    #[prost(message, repeated, tag = "12")]
    pub annotations: Vec<Entry>,
    /// Owners.
    #[serde(default)]
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<Owner>,
}

/// A label or an annotation.
#[derive(Clone, Message)]
pub struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// What these labels or annotations have under this key.
pub fn value<'a>(entries: &'a [Entry], key: &str) -> Option<&'a str> {
    let entry = entries.iter().find(|entry| entry.key == key)?;
    std::str::from_utf8(&entry.value).ok()
}

/// Reads labels or annotations.
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    deserializer.deserialize_map(Entries)
}

/// Reads labels or annotations where they stand.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels or annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Option<String>>()? {
            entries.extend(value.map(|value| Entry { key: key.into(), value: value.into() }));
        }
        Ok(entries)
    }
}

/// Reads a text; nothing is an empty one.
///
/// # Errors
///
/// When there is something else.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default().into())
}

/// What these bytes say, if they are not empty, and as far as they are text.
pub fn said(bytes: &[u8]) -> Option<Arc<str>> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).as_ref().into())
}

/// An owner reference.
#[derive(Clone, Deserialize, Message)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Group and version of the owner.
    #[serde(deserialize_with = "text")]
    #[prost(bytes = "bytes", tag = "5")]
    pub api_version: Bytes,
    /// Kind of the owner.
    #[serde(deserialize_with = "text")]
    #[prost(bytes = "bytes", tag = "1")]
    pub kind: Bytes,
    /// UID of the owner.
    #[serde(deserialize_with = "text")]
    #[prost(bytes = "bytes", tag = "4")]
    pub uid: Bytes,
    /// Whether the owner is the controller of the object.
    #[serde(default)]
    #[prost(bool, tag = "6")]
    pub controller: bool,
}

/// A time. One that cannot be read, as that of a far future, or that is older than all clusters, is none, but was said: it must not stop
/// the object, and with it the watch of all others.
#[derive(Clone, Copy, Eq, Message, PartialEq)]
pub struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanoseconds: i32,
}

impl Time {
    /// As a timestamp, if it can be read.
    pub fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.seconds, self.nanoseconds).ok().filter(|_| self.seconds > 0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TimeText)
    }
}

/// Reads a time where it stands: five of them come with every state of a pod.
struct TimeText;

impl Visitor<'_> for TimeText {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let read = |time: Timestamp| Time { seconds: time.as_second(), nanoseconds: time.subsec_nanosecond() };
        Ok(text.parse().map(read).unwrap_or_default())
    }
}

impl Meta {
    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.as_str(), self.name.as_str())
    }

    /// The resourceVersion as a number.
    pub fn version(&self) -> u64 {
        listwatch::version(&self.resource_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_label_is_found_by_its_key() {
        let meta: Meta = serde_json::from_value(json!({
            "name": "web",
            "labels": { "app": "web", "nobody": null },
            "annotations": { "note": "x", "app": "another" },
        }))
        .unwrap();
        let found = ["app", "note", "nobody"].map(|key| (value(&meta.labels, key), value(&meta.annotations, key)));
        assert_eq!(found, [(Some("web"), Some("another")), (None, Some("x")), (None, None)]);
    }

    #[test]
    fn what_is_no_text_is_not_found_and_stops_nothing() {
        let entry = Entry { key: Bytes::from_static(b"app"), value: Bytes::from_static(b"\xff") };
        let meta = Meta { name: "web".to_owned(), annotations: vec![entry], ..Meta::default() };
        let meta = Meta::decode(Bytes::from(meta.encode_to_vec())).unwrap();
        assert_eq!((meta.name.as_str(), value(&meta.annotations, "app")), ("web", None));
    }

    #[test]
    fn a_time_that_cannot_be_read_is_none_but_was_said() {
        let read = |time| {
            let meta: Meta = serde_json::from_value(json!({ "name": "web", "deletionTimestamp": time }))?;
            let time = meta.deletion_timestamp;
            Ok::<_, serde_json::Error>((time.is_some(), time.and_then(Time::timestamp).map(|time| time.to_string())))
        };
        let (said, time) = read(json!("2026-01-01T12:00:00Z")).unwrap();
        assert_eq!((said, time.as_deref()), (true, Some("2026-01-01T12:00:00Z")));
        assert_eq!(read(json!(null)).unwrap(), (false, None));
        assert_eq!(read(json!("+292277022-01-01T00:00:00Z")).unwrap(), (true, None));
        read(json!(1)).unwrap_err();
        for seconds in [i64::MIN, Timestamp::MIN.as_second(), 0, i64::MAX] {
            assert_eq!(Time { seconds, nanoseconds: 0 }.timestamp(), None);
        }
    }
}
