//! The part of an object's metadata that controllers read, decoded from what the API server sends. It does nothing.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

use super::ObjectKey;
use crate::listwatch;

/// The UID of an object.
pub type Uid = Arc<str>;

/// Metadata of an object; what is not named here is not decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
    /// UID.
    #[serde(default)]
    pub uid: String,
    /// resourceVersion, as the API server writes it.
    #[serde(default)]
    pub resource_version: String,
    /// Generation of the spec; 0 where the kind has none.
    #[serde(default)]
    pub generation: i64,
    /// When it was created.
    #[serde(default, deserialize_with = "time")]
    pub creation_timestamp: Option<Timestamp>,
    /// When its deletion was asked for; only whether it was is ever read.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: Labels,
    /// Annotations.
    #[serde(default)]
    pub annotations: Annotations,
    /// Owners.
    #[serde(default)]
    pub owner_references: Vec<Owner>,
}

/// The label that is read. That it is called as [`crate::api`] has it, a test shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// Who looks after the object.
    #[serde(rename = "app.kubernetes.io/managed-by")]
    pub managed_by: Option<String>,
}

/// The annotations that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Annotations {
    /// What it costs to delete the pod, as its users see it.
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
    pub deletion_cost: Option<String>,
    /// How many replacements in a row led to the pod.
    #[serde(rename = "app.example.com/replacements")]
    pub replacements: Option<String>,
}

/// An owner reference.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// UID of the owner.
    pub uid: String,
    /// Whether the owner is the controller of the object.
    #[serde(default)]
    pub controller: bool,
}

/// Reads a time. One that cannot be read, as that of a far future, counts as none: it must not stop the object, and with
/// it the watch of all others.
///
/// # Errors
///
/// When there is neither a text nor nothing.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    deserializer.deserialize_option(Time)
}

/// Reads a time where it stands: five of them come with every state of a pod.
struct Time;

impl<'de> Visitor<'de> for Time {
    type Value = Option<Timestamp>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time, or nothing")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.parse().ok())
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
    use crate::api;
    use serde_json::json;

    #[test]
    fn what_is_read_is_called_as_the_api_calls_it() {
        let meta: Meta = serde_json::from_value(json!({
            "name": "web",
            "labels": { api::LABEL_MANAGED_BY: api::MANAGER, "app": "web" },
            "annotations": { api::ANNOTATION_REPLACEMENTS: "2", "note": "x" },
        }))
        .unwrap();
        assert_eq!(meta.labels.managed_by.as_deref(), Some(api::MANAGER));
        assert_eq!(meta.annotations.replacements.as_deref(), Some("2"));
    }

    #[test]
    fn a_time_that_cannot_be_read_is_none() {
        let read = |created| {
            serde_json::from_value::<Meta>(json!({ "name": "web", "creationTimestamp": created }))
                .map(|meta| meta.creation_timestamp.map(|time| time.to_string()))
        };
        assert_eq!(read(json!("2026-01-01T12:00:00Z")).unwrap().as_deref(), Some("2026-01-01T12:00:00Z"));
        assert_eq!(read(json!(null)).unwrap(), None);
        assert_eq!(read(json!("+292277022-01-01T00:00:00Z")).unwrap(), None);
        read(json!(1)).unwrap_err();
    }
}
