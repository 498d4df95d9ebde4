//! The part of an object's metadata that controllers read, decoded from what the API server sends. It does nothing.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::ObjectKey;
use crate::listwatch;

/// The UID of an object.
pub type Uid = Arc<str>;

/// Labels or annotations. People can store `null` in those of a custom resource.
pub type Entries = HashMap<String, Option<String>>;

/// Metadata of an object; what is not named here is not decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// resourceVersion, as the API server writes it.
    pub resource_version: String,
    /// Generation of the spec; 0 where the kind has none.
    pub generation: i64,
    /// When it was created.
    #[serde(deserialize_with = "time")]
    pub creation_timestamp: Option<Timestamp>,
    /// Present once its deletion was asked for. The time may lie too far in the future to be read.
    pub deletion_timestamp: Option<IgnoredAny>,
    /// Labels.
    pub labels: Entries,
    /// Annotations.
    pub annotations: Entries,
    /// Owners.
    pub owner_references: Vec<Owner>,
}

/// What these labels or annotations have under this key.
pub fn value<'a>(entries: &'a Entries, key: &str) -> Option<&'a str> {
    entries.get(key)?.as_deref()
}

/// This text, if it is not empty.
pub fn said(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// An owner reference.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// UID of the owner.
    pub uid: String,
    /// Whether the owner is the controller of the object.
    pub controller: bool,
}

/// Reads a time. One that cannot be read, such as one of a far future, is none: it must not stop the watch of all other objects.
///
/// # Errors
///
/// When it is no text.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
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
    fn a_time_that_cannot_be_read_stops_nothing() {
        let read = |time| {
            let meta = json!({ "name": "web", "deletionTimestamp": time, "creationTimestamp": time });
            let meta: Meta = serde_json::from_value(meta)?;
            Ok::<_, serde_json::Error>((meta.deletion_timestamp.is_some(), meta.creation_timestamp.is_some()))
        };
        assert_eq!(read(json!("2026-01-01T12:00:00Z")).unwrap(), (true, true));
        assert_eq!(read(json!(null)).unwrap(), (false, false));
        assert_eq!(read(json!("+292277022-01-01T00:00:00Z")).unwrap(), (true, false));
        read(json!(1)).unwrap_err();
    }
}
