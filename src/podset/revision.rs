//! Revisions: which template a pod was made from, and how a change of the template reaches the pods. Pure.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    str::FromStr,
};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Serialize, Serializer, ser::Error};
use serde_json::{Value, value::RawValue};

use super::names::{self, ALPHABET};
use crate::api::{PodSetSpec, UpdateStrategyType};

/// How many characters a revision has.
const LENGTH: usize = 10;

/// A template, as the label `controller-revision-hash` of its pods names it: a hash of its content.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Revision([u8; LENGTH]);

impl Revision {
    /// The revision of a template; `None`: of the default pod, with any image. `collisions` makes another one of the same content.
    pub fn of(template: Option<&RawValue>, collisions: i32) -> Self {
        let mut content = template.map_or_else(|| "null".to_owned(), canonical);
        if collisions > 0 {
            content += &collisions.to_string();
        }
        Revision(names::letters(names::fnv1a(&content)))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.into_iter().try_for_each(|letter| f.write_char(char::from(letter)))
    }
}

impl FromStr for Revision {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let letters: [u8; LENGTH] = text.as_bytes().try_into().map_err(drop)?;
        if letters.iter().all(|letter| ALPHABET.contains(letter)) { Ok(Revision(letters)) } else { Err(()) }
    }
}

/// How deeply JSON may be nested, as in serde_json.
const DEEPEST: u8 = 127;

/// JSON with sorted fields, so that equal content gives equal text. What is nested too deeply or cannot be read is returned unchanged: the
/// API server sends its fields in a fixed order.
pub fn canonical(json: &RawValue) -> String {
    serde_json::to_string(&Sorted(json, DEEPEST)).unwrap_or_else(|_| json.get().to_owned())
}

/// JSON, nested at most so many levels, that is sorted level by level. A `Value` of tiny objects would take 60 times the memory of their text.
struct Sorted<'a>(&'a RawValue, u8);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Sorted(json, levels) = *self;
        let json = json.get();
        match json.as_bytes().first() {
            Some(b'{' | b'[') if levels == 0 => Err(S::Error::custom("nested too deeply")),
            Some(b'{') => {
                let fields: BTreeMap<String, &RawValue> = serde_json::from_str(json).map_err(S::Error::custom)?;
                serializer.collect_map(fields.into_iter().map(|(name, value)| (name, Sorted(value, levels - 1))))
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(json).map_err(S::Error::custom)?;
                serializer.collect_seq(items.into_iter().map(|item| Sorted(item, levels - 1)))
            }
            _ => serde_json::from_str::<Value>(json).map_err(S::Error::custom)?.serialize(serializer),
        }
    }
}

/// The update strategy, for a number of replicas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Update {
    /// How many pods may be unavailable; `None`: no pod is replaced because of its template.
    pub max_unavailable: Option<usize>,
    /// How many pods keep their former template.
    pub partition: usize,
    /// Whether the update is paused.
    pub is_paused: bool,
    /// For how many seconds a pod must be ready before it counts as available.
    pub min_ready: u32,
    /// For how many seconds a rollout may make no progress.
    pub deadline: u32,
    /// How many former revisions are kept.
    pub history: u32,
}

impl Update {
    /// Reads the update settings of a spec, and computes percentages from `replicas`.
    pub fn new(spec: &PodSetSpec, replicas: usize) -> Self {
        let rolling = &spec.update_strategy.rolling_update;
        let is_rolling = spec.update_strategy.type_ == UpdateStrategyType::RollingUpdate;
        let max_unavailable = number(rolling.max_unavailable.as_ref(), replicas, usize::div_euclid).max(1);
        Update {
            max_unavailable: is_rolling.then_some(max_unavailable),
            partition: number(rolling.partition.as_ref(), replicas, usize::div_ceil).min(replicas),
            is_paused: rolling.paused,
            min_ready: spec.min_ready_seconds,
            deadline: spec.progress_deadline_seconds,
            history: spec.revision_history_limit,
        }
    }

    /// Whether a changed template replaces running pods: not with OnDelete.
    pub fn replaces_pods(&self) -> bool {
        self.max_unavailable.is_some()
    }

    /// How many pods may be unavailable, while pods are replaced because of their template.
    pub fn budget(&self) -> Option<usize> {
        self.max_unavailable.filter(|_| !self.is_paused)
    }
}

/// A number, or a percentage of `all`, rounded by `divide`; 0 if there is none.
fn number(value: Option<&IntOrString>, all: usize, divide: fn(usize, usize) -> usize) -> usize {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or_default(),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok()).unwrap_or_default();
            divide(all * usize::from(percent), 100)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{RollingUpdate, UpdateStrategy};

    fn of(template: &str) -> Revision {
        Revision::of(Some(&RawValue::from_string(template.to_owned()).unwrap()), 0)
    }

    #[test]
    fn a_revision_depends_on_the_content_and_survives_a_label() {
        let revision = of(r#"{"spec":{"a":1,"b":2}}"#);
        assert_eq!(revision, of(r#"{ "spec": { "b": 2, "a": 1 } }"#));
        assert_ne!(revision, of(r#"{"spec":{"a":1,"b":3}}"#));
        assert_ne!(revision, Revision::of(None, 0));
        assert_ne!(Revision::of(None, 1), Revision::of(None, 0));
        assert_eq!(revision.to_string().len(), 10);
        assert_eq!(revision.to_string().parse(), Ok(revision));
        for foreign in ["", "abc", "aaaaaaaaaa", "bbbbbbbbbbb"] {
            assert_eq!(foreign.parse::<Revision>(), Err(()), "{foreign}");
        }
        assert_eq!(Revision::of(None, 0).to_string(), "njg4qh94mc", "if it changed, all pods would be replaced");
    }

    /// If the text changed, all pods would be replaced.
    #[test]
    fn the_canonical_text_is_that_of_sorted_values() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let invalid = [nested(128), r#"{"a":1e999}"#.to_owned(), r#"[ "\ud800" ]"#.to_owned()];
        let valid = [
            "null".to_owned(),
            nested(127),
            r#"{ "b": [1, -2, 0.50, 1e3, true, null, {}, []], "a\u0062\n": "\u003c\u00e9\"", "a": 1, "a": {"d": 2, "c": []} }"#
                .to_owned(),
        ];
        for (json, is_valid) in valid.map(|json| (json, true)).into_iter().chain(invalid.map(|json| (json, false))) {
            let value = serde_json::from_str::<Value>(&json).ok().map(|value| value.to_string());
            assert_eq!(value.is_some(), is_valid, "{json}");
            let text = canonical(&RawValue::from_string(json.clone()).unwrap());
            assert_eq!(text, value.unwrap_or(json));
        }
    }

    #[test]
    fn percentages_are_of_the_replicas() {
        let update = |max_unavailable: IntOrString, partition: IntOrString, replicas| {
            let rolling_update =
                RollingUpdate { max_unavailable: Some(max_unavailable), partition: Some(partition), paused: false };
            let update_strategy = UpdateStrategy { rolling_update, ..UpdateStrategy::default() };
            let update = Update::new(&PodSetSpec { update_strategy, ..PodSetSpec::default() }, replicas);
            (update.max_unavailable, update.partition)
        };
        let percent = |text: &str| IntOrString::String(text.to_owned());
        assert_eq!(update(IntOrString::Int(2), IntOrString::Int(3), 10), (Some(2), 3));
        assert_eq!(update(percent("25%"), percent("25%"), 10), (Some(2), 3), "rounded down, and rounded up");
        assert_eq!(update(percent("1%"), percent("1%"), 10), (Some(1), 1));
        assert_eq!(update(percent("100%"), IntOrString::Int(99), 5), (Some(5), 5));
        assert_eq!(update(percent("nonsense"), IntOrString::Int(-1), 5), (Some(1), 0));
    }
}
