//! One PodSet as this controller sees it. No I/O.

use std::sync::Arc;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    api::{self, PodSetStatus, PodTemplateMetadata},
    controllers::{
        ObjectKey,
        meta::{Meta, Uid},
        statuses,
    },
    listwatch::Watched,
};

/// A PodSet as the API server sends it. Spec and status are decoded later and from their text, so that one that does not
/// decode stops no other. (API servers write the type of an event before its object, which is therefore decoded as it comes, and has a
/// text.)
#[derive(Deserialize)]
struct SetWire {
    metadata: Meta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

/// A spec as the API server sends it.
#[derive(Deserialize)]
#[serde(rename = "PodSetSpec")]
struct SpecWire {
    #[serde(default = "api::default_replicas")]
    replicas: i32,
    #[serde(default)]
    template: Option<Template>,
}

/// What the text of a part says; what is not there is `null`.
fn decoded<T: DeserializeOwned>(part: Option<&RawValue>) -> serde_json::Result<T> {
    serde_json::from_str(part.map_or("null", RawValue::get))
}

/// A PodSet.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "SetWire")]
pub struct Set {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Uid,
    /// resourceVersion.
    pub version: u64,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether its deletion has been asked for.
    pub is_deleting: bool,
    /// What is wanted, or why that cannot be read.
    pub wanted: Result<Wanted, String>,
    /// The stored status, as far as it can be read.
    pub status: PodSetStatus,
}

/// What a spec wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// How many pods.
    pub replicas: usize,
    /// What new pods look like.
    pub template: Option<Arc<Template>>,
}

/// The template of a set's pods.
#[derive(Debug, Deserialize)]
pub struct Template {
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: Option<PodTemplateMetadata>,
    /// The spec of the pods: the text that it is, for all that is done with it is to go on into them. It takes less than a tenth of what it
    /// would take decoded.
    #[serde(default)]
    pub spec: Option<Box<RawValue>>,
}

impl Watched for Set {
    fn version(&self) -> u64 {
        self.version
    }
}

impl From<SetWire> for Set {
    fn from(wire: SetWire) -> Self {
        let status = wire.status.as_deref();
        let mut status: PodSetStatus =
            decoded(status).unwrap_or_else(|_| statuses::stored(decoded(status).unwrap_or_default()));
        // It stays, and was read without knowing how long it is.
        status.pod_names.shrink_to_fit();
        status.conditions.shrink_to_fit();
        let wanted = decoded::<SpecWire>(wire.spec.as_deref())
            .map(|spec| Wanted {
                replicas: usize::try_from(spec.replicas).unwrap_or(0),
                template: spec.template.map(Arc::new),
            })
            .map_err(|error| format!("the spec cannot be read: {error}"));
        Set {
            key: wire.metadata.key(),
            version: wire.metadata.version(),
            generation: wire.metadata.generation,
            is_deleting: wire.metadata.deletion_timestamp.is_some(),
            wanted,
            status,
            uid: wire.metadata.uid.into(),
        }
    }
}

impl Set {
    /// How many pods are wanted: none if that cannot be read.
    pub fn replicas(&self) -> usize {
        self.wanted.as_ref().map_or(0, |wanted| wanted.replicas)
    }

    /// Whether the change from `self` to `newer` is one that is acted upon: spec or deletion, not labels or status.
    pub fn calls_for_action(&self, newer: &Set) -> bool {
        self.uid != newer.uid || self.generation != newer.generation || self.is_deleting != newer.is_deleting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::testing;

    #[test]
    fn what_others_have_written_into_a_status_does_not_spoil_it() {
        let condition = |kind: &str, time: &str| {
            format!(r#"{{"type":"{kind}","status":"True","reason":"A","message":"","lastTransitionTime":"{time}"}}"#)
        };
        let read = |theirs: &str| {
            let conditions = [condition("Theirs", theirs), condition("Ready", "2026-01-01T12:00:00Z")].join(",");
            let metadata = r#"{"name":"web","namespace":"default","uid":"u","resourceVersion":"3"}"#;
            let status = format!(r#"{{"observedGeneration":7,"conditions":[{conditions}]}}"#);
            let set: Set = serde_json::from_str(&format!(r#"{{"metadata":{metadata},"status":{status}}}"#)).unwrap();
            let types: Vec<String> = set.status.conditions.into_iter().map(|condition| condition.type_).collect();
            (set.status.observed_generation, types.join(","))
        };
        assert_eq!(read("2026-01-01T12:00:00Z"), (Some(7), "Theirs,Ready".to_owned()));
        // The API server takes the first of them, which is past all that can be read.
        for odd in ["9999-12-31T23:59:59Z", "never"] {
            assert_eq!(read(odd), (Some(7), "Ready".to_owned()), "{odd}");
        }
    }

    #[test]
    fn a_template_goes_on_as_it_is() {
        // Deeper than serde_json decodes, and with a number that no type of its holds.
        let spec = format!(r#"{{"a":1.10,"b":{}123456789012345678901234567890{}}}"#, "[".repeat(200), "]".repeat(200));
        let template = format!(r#"{{"metadata":{{"labels":{{"tier":"front"}}}},"spec":{spec}}}"#);
        let metadata = r#"{"name":"web","namespace":"default","uid":"u","resourceVersion":"3"}"#;
        let text = format!(r#"{{"metadata":{metadata},"spec":{{"replicas":2,"template":{template}}}}}"#);
        let wanted = serde_json::from_str::<Set>(&text).unwrap().wanted.unwrap();
        let template = wanted.template.unwrap();
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()).unwrap();
        assert_eq!((wanted.replicas, &*labels["tier"]), (2, "front"));
        assert_eq!(template.spec.as_ref().unwrap().get(), spec);
    }

    #[test]
    fn a_change_of_the_status_or_of_a_label_is_not_acted_upon() {
        let set = testing::set(3);
        let changed = |change: fn(&mut Set)| {
            let mut newer = set.clone();
            newer.version += 1;
            change(&mut newer);
            set.calls_for_action(&newer)
        };
        assert!(!changed(|newer| newer.status.ready_replicas += 1));
        assert!(changed(|newer| newer.generation += 1));
        assert!(changed(|newer| newer.is_deleting = true));
        assert!(changed(|newer| newer.uid = "another".into()));
    }
}
