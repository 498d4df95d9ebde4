//! The part of an object's metadata that controllers read, decoded from what the API server sends. It does nothing.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

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
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Owners.
    #[serde(default)]
    pub owner_references: Vec<Owner>,
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
