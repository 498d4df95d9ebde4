//! One PodSet. No I/O.

use std::sync::Arc;

use serde::{
    Deserialize,
    de::{DeserializeOwned, Error},
};
use serde_json::value::RawValue;

use super::pod::Pod;
use crate::{
    api::{self, PodReplacementPolicy, PodSetSpec, PodSetStatus, PodTemplate, condition},
    podset::{
        conditions,
        revision::{self, Revision, Update},
    },
};
use operator_kit::{
    ObjectKey,
    listwatch::Watched,
    meta::{self, Meta, Uid},
    statuses, text,
};

/// The largest template that is kept, in bytes: ten thousand sets must fit into memory. A larger one is read again when pods are created.
const LARGEST_KEPT: usize = 1 << 10;

/// A PodSet as the API server sends it. Spec and status are decoded later, from their text, so that one that does not decode stops no other
/// set. (API servers write the type of an event before its object. Otherwise serde would buffer the object, and its text would be lost.)
#[derive(Deserialize)]
struct SetWire {
    metadata: Meta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

/// A template as text. Its revision covers the whole template, not only the fields that this operator knows.
#[derive(Deserialize)]
struct TemplateText {
    #[serde(default)]
    template: Option<Box<RawValue>>,
}

/// Returns what the spec asks for. `text` is the spec as stored; the revision is computed from its template.
fn wanted(spec: PodSetSpec, text: Option<&RawValue>, collisions: i32) -> serde_json::Result<Wanted> {
    let template = decoded::<TemplateText>(text)?.template;
    let replicas = usize::try_from(spec.replicas).map_err(|_| Error::custom("replicas must not be less than 0"))?;
    Ok(Wanted {
        replicas,
        // The default pod is not stored, so its revision has no collisions.
        revision: Revision::of(template.as_deref(), template.as_ref().map_or(0, |_| collisions)),
        update: Update::new(&spec, replicas),
        template: PodsLike::Template(spec.template.map(Arc::new)),
    })
}

/// Decodes a part; one that is absent counts as `null`.
fn decoded<T: DeserializeOwned>(part: Option<&RawValue>) -> serde_json::Result<T> {
    serde_json::from_str(part.map_or("null", RawValue::get))
}

/// A PodSet, without its template if that is large.
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
    /// Why its template was changed, as its annotation says; a very long text is cut.
    pub change_cause: Option<Arc<str>>,
    /// The decoded spec, or why it cannot be decoded.
    pub wanted: Result<Wanted, String>,
    /// The generation at which this process first saw TerminationComplete; `None` with TerminationStarted. Before that, the cache may have
    /// dropped pods that were being deleted.
    pub waits_from: Option<i64>,
    /// The stored status, as far as it can be read.
    pub status: PodSetStatus,
}

/// What a spec wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub replicas: usize,
    pub revision: Revision,
    pub update: Update,
    pub template: PodsLike,
}

/// What new pods look like.
#[derive(Clone, Debug)]
pub enum PodsLike {
    /// As in the template; `None`: the operator's default pod.
    Template(Option<Arc<PodTemplate>>),
    /// As in a template of so many bytes that is not in memory.
    Large(usize),
}

/// The memory of a label or an annotation beside its text, in bytes: two strings, their allocations and free slots of the map.
const ENTRY: usize = 128;

impl PodTemplate {
    /// Whether both have the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        let spec = |template: &Self| template.spec.as_deref().map(revision::canonical);
        // Another client may have written a huge revision, and its canonical text takes long. Equal JSON is at most six times as long: `<` as
        // `\u003c`.
        let length = |template: &Self| template.spec.as_deref().map_or(0, |spec| spec.get().len());
        let is_similar = length(other) <= 6 * length(self) && length(self) <= 6 * length(other);
        self.metadata == other.metadata && is_similar && spec(self) == spec(other)
    }

    /// Its approximate size in bytes, in memory and in the body of a pod.
    pub fn bytes(&self) -> usize {
        let metadata = self.metadata.iter().flat_map(|metadata| [&metadata.labels, &metadata.annotations]);
        let entries = metadata.flatten().flatten().map(|(key, value)| ENTRY + key.len() + value.len());
        self.spec.as_ref().map_or(0, |spec| spec.get().len()) + entries.sum::<usize>()
    }
}

/// A PodSet with its template, however large.
#[derive(Debug, Deserialize)]
#[serde(from = "SetWire")]
pub struct Whole(pub Set);

impl Watched for Whole {
    fn version(&self) -> u64 {
        self.0.version
    }
}

impl Watched for Set {
    fn version(&self) -> u64 {
        self.version
    }
}

impl From<SetWire> for Set {
    fn from(wire: SetWire) -> Self {
        Whole::from(wire).0.trimmed()
    }
}

impl From<SetWire> for Whole {
    fn from(wire: SetWire) -> Self {
        let status = wire.status.as_deref();
        let mut status: PodSetStatus =
            decoded(status).unwrap_or_else(|_| statuses::stored(decoded(status).unwrap_or_default()));
        // They stay in memory, and were decoded without knowing their length.
        status.pod_names.shrink_to_fit();
        status.conditions.shrink_to_fit();
        let text = wire.spec.as_deref();
        let spec = decoded::<PodSetSpec>(text);
        let waits = |spec: &PodSetSpec| spec.pod_replacement_policy == PodReplacementPolicy::TerminationComplete;
        let waits_from = spec.as_ref().is_ok_and(waits).then_some(wire.metadata.generation);
        let wanted = spec
            .and_then(|spec| wanted(spec, text, status.collision_count.unwrap_or_default()))
            .map_err(|error| format!("the spec cannot be read: {error}"));
        let cause = meta::value(&wire.metadata.annotations, api::ANNOTATION_CHANGE_CAUSE);
        Whole(Set {
            key: wire.metadata.key(),
            version: wire.metadata.version(),
            generation: wire.metadata.generation,
            is_deleting: wire.metadata.deletion_timestamp.is_some(),
            change_cause: cause.map(|cause| text::cut(cause, text::LONGEST).into()),
            wanted,
            waits_from,
            status,
            uid: wire.metadata.uid.into(),
        })
    }
}

impl Set {
    /// The set without its template if that is large.
    pub fn trimmed(mut self) -> Self {
        if let Ok(wanted) = &mut self.wanted
            && let PodsLike::Template(Some(template)) = &wanted.template
            && template.bytes() > LARGEST_KEPT
        {
            wanted.template = PodsLike::Large(template.bytes());
        }
        self
    }

    /// How many pods are wanted: none if that cannot be read.
    pub fn replicas(&self) -> usize {
        self.wanted.as_ref().map_or(0, |wanted| wanted.replicas)
    }

    /// The revision that all pods had last, if that is another one than the spec's.
    pub fn former_revision(&self) -> Option<Revision> {
        self.current_revision().filter(|current| Some(*current) != self.revision())
    }

    /// Whether the template of the spec is the one that all pods had last.
    pub fn has_current_template(&self) -> bool {
        self.current_revision().is_some_and(|current| Some(current) == self.revision())
    }

    fn current_revision(&self) -> Option<Revision> {
        self.status.current_revision.as_ref()?.parse().ok()
    }

    /// The revision of the spec's template; `None`: the spec cannot be read.
    pub fn revision(&self) -> Option<Revision> {
        self.wanted.as_ref().ok().map(|wanted| wanted.revision)
    }

    /// Whether the pod has the template of the spec. No pod has it while the spec cannot be read.
    pub fn is_template_of(&self, pod: &Pod) -> bool {
        pod.revision.is_some() && pod.revision == self.revision()
    }

    /// Whether the stored status has the condition ReplicaFailure with this reason.
    pub fn reports_failure(&self, reason: &str) -> bool {
        conditions::message(&self.status, condition::REPLICA_FAILURE, reason).is_some()
    }

    /// Whether the stored status names the revision of the spec. If not, the template has just changed, perhaps back to a stored one, whose
    /// ControllerRevision then becomes the newest.
    pub fn is_revision_reported(&self) -> bool {
        self.status.update_revision.as_deref() == self.revision().map(|revision| revision.to_string()).as_deref()
    }

    /// Whether the stored status is about the current spec.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation == Some(self.generation)
    }

    /// Whether the stored status says that pods get the template of the spec in a rollout. After a change back, only the condition Ready tells.
    pub fn is_rolling(&self) -> bool {
        self.former_revision().is_some() || (conditions::reports_rollout(&self.status) && self.is_revision_reported())
    }

    /// Whether pods that are being deleted count until they have ended.
    pub fn waits_for_termination(&self) -> bool {
        self.waits_from.is_some()
    }

    /// Whether `newer` has another spec, begins to be deleted, or is another set, so that a plan for `self` no longer applies. A change of
    /// labels or of the status does not count.
    pub fn calls_for_action(&self, newer: &Set) -> bool {
        self.uid != newer.uid || self.generation != newer.generation || self.is_deleting != newer.is_deleting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::testing;

    #[test]
    fn an_unreadable_foreign_condition_does_not_spoil_the_status() {
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
        // The API server accepts the first one, which is beyond the range of a Timestamp.
        for odd in ["9999-12-31T23:59:59Z", "never"] {
            assert_eq!(read(odd), (Some(7), "Ready".to_owned()), "{odd}");
        }
    }

    #[test]
    fn a_template_is_passed_on_unchanged() {
        // Nested deeper than serde_json decodes, and with a number beyond its types.
        let spec = format!(r#"{{"a":1.10,"b":{}123456789012345678901234567890{}}}"#, "[".repeat(200), "]".repeat(200));
        let template = format!(r#"{{"metadata":{{"labels":{{"tier":"front"}}}},"spec":{spec}}}"#);
        let metadata = r#"{"name":"web","namespace":"default","uid":"u","resourceVersion":"3"}"#;
        let text = format!(r#"{{"metadata":{metadata},"spec":{{"replicas":2,"template":{template}}}}}"#);
        let wanted = serde_json::from_str::<Set>(&text).unwrap().wanted.unwrap();
        let PodsLike::Template(Some(template)) = wanted.template else { panic!("{wanted:?}") };
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()).unwrap();
        assert_eq!((wanted.replicas, &*labels["tier"]), (2, "front"));
        assert_eq!(template.spec.as_ref().unwrap().get(), spec);
    }

    /// A set whose template has a spec and an annotation of so many bytes: as decoded from a watch, and as decoded from a read.
    fn templated(spec: usize, annotation: usize) -> (Set, Set) {
        let metadata = r#"{"name":"web","namespace":"default","uid":"u","resourceVersion":"3","generation":2}"#;
        let (spec, annotation) = ("x".repeat(spec - 2), "y".repeat(annotation - 1));
        let template = format!(r#"{{"metadata":{{"annotations":{{"a":"{annotation}"}}}},"spec":"{spec}"}}"#);
        let text = format!(r#"{{"metadata":{metadata},"spec":{{"replicas":2,"template":{template}}}}}"#);
        let Whole(whole) = serde_json::from_str(&text).unwrap();
        (serde_json::from_str(&text).unwrap(), whole)
    }

    #[test]
    fn a_template_is_kept_unless_it_is_large() {
        // Whether the template is in memory, and its size.
        let kept = |set: &Set| match &set.wanted.as_ref().unwrap().template {
            PodsLike::Template(template) => (true, template.as_ref().map_or(0, |template| template.bytes())),
            PodsLike::Large(bytes) => (false, *bytes),
        };
        for (spec, annotation, is_kept) in
            [(100, 100, true), (LARGEST_KEPT - 130, 2, true), (LARGEST_KEPT - 129, 2, false), (2, LARGEST_KEPT, false)]
        {
            let (watched, whole) = templated(spec, annotation);
            let bytes = spec + annotation + ENTRY;
            assert_eq!((kept(&watched), kept(&whole)), ((is_kept, bytes), (true, bytes)), "{spec} {annotation}");
            assert_eq!((watched.replicas(), whole.replicas()), (2, 2));
        }
        assert_eq!(kept(&testing::set(3).trimmed()), (true, 0));
    }

    #[test]
    fn negative_replicas_are_an_error() {
        let wanted = |replicas: i32| {
            let text = format!(r#"{{"metadata":{{}},"spec":{{"replicas":{replicas}}}}}"#);
            serde_json::from_str::<Set>(&text).unwrap().wanted.map(|wanted| wanted.replicas)
        };
        assert_eq!(wanted(0), Ok(0));
        let error = wanted(-1).unwrap_err();
        assert!(error.starts_with("the spec cannot be read: ") && error.contains("replicas"), "{error}");
    }

    #[test]
    fn a_large_spec_that_cannot_be_read_is_an_error() {
        let metadata = r#"{"name":"web","namespace":"default","uid":"u","resourceVersion":"3"}"#;
        let spec = format!(r#"{{"replicas":"two","template":{{"spec":"{}"}}}}"#, "x".repeat(2 * LARGEST_KEPT));
        let set: Set = serde_json::from_str(&format!(r#"{{"metadata":{metadata},"spec":{spec}}}"#)).unwrap();
        let error = set.wanted.as_ref().unwrap_err();
        assert!(error.starts_with("the spec cannot be read: invalid type: string \"two\""), "{error}");
    }

    #[test]
    fn a_collision_changes_only_the_revisions_of_templates() {
        let revision = |spec: &str, collisions: i32| {
            let metadata = r#"{"name":"web","namespace":"default","uid":"u","resourceVersion":"3"}"#;
            let status = format!(r#"{{"collisionCount":{collisions}}}"#);
            let text = format!(r#"{{"metadata":{metadata},"spec":{spec},"status":{status}}}"#);
            serde_json::from_str::<Set>(&text).unwrap().revision()
        };
        let templated = r#"{"template":{"spec":{}}}"#;
        assert_ne!(revision(templated, 1), revision(templated, 0));
        assert_eq!(revision("{}", 1), Some(Revision::of(None, 0)));
    }

    #[test]
    fn a_change_of_the_status_calls_for_no_action() {
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
