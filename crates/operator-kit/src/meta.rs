//! The part of an object's metadata that controllers read.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use super::ObjectKey;

/// An object that can be listed and watched.
pub trait Watched: DeserializeOwned {
    /// The resourceVersion, as a number. From Kubernetes 1.35 on, the versions of one resource can be compared.
    fn version(&self) -> u64;
}

/// A resourceVersion as a number; 0 if it is not a number.
pub fn version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// The UID of an object.
pub type Uid = Arc<str>;

/// Labels or annotations. In a custom resource they can contain `null`.
pub type Entries = HashMap<String, Option<String>>;

/// Metadata of an object. Other fields are not decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
    /// Generation of the spec; 0 where the kind has none.
    pub generation: i64,
    /// When it was created.
    #[serde(deserialize_with = "time")]
    pub creation_timestamp: Option<Timestamp>,
    /// When its grace period ends; present once deletion was requested.
    pub deletion_timestamp: Option<Deletion>,
    /// The grace period of its deletion, in seconds.
    pub deletion_grace_period_seconds: i64,
    /// Labels.
    pub labels: Entries,
    /// Annotations.
    pub annotations: Entries,
    /// Owners.
    pub owner_references: Vec<Owner>,
}

/// The time of a deletion; `None` inside: too far in the future to be decoded.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Deletion(#[serde(deserialize_with = "time")] pub Option<Timestamp>);

/// The value of a label or annotation.
pub fn value<'a>(entries: &'a Entries, key: &str) -> Option<&'a str> {
    entries.get(key)?.as_deref()
}

/// The text, if it is not empty.
pub fn non_empty(text: &str) -> Option<Arc<str>> {
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

/// Decodes a time. One that is out of range is `None`, because it must not stop the watch of other objects.
///
/// # Errors
///
/// If it is not a string.
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
        version(&self.resource_version)
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
    fn a_time_out_of_range_is_no_error() {
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
