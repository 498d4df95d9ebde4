//! Revisions: which template a pod was made from, and how a change of the template reaches the pods. Pure.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    str::FromStr,
};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
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
        let letters = text.as_bytes().try_into().map_err(drop)?;
        let is_valid = |Revision(letters): &Revision| letters.iter().all(|letter| ALPHABET.contains(letter));
        Some(Revision(letters)).filter(is_valid).ok_or(())
    }
}

/// JSON with sorted fields, so that equal content gives equal text. What is nested too deeply for serde_json is returned unchanged: the API
/// server sends its fields in a fixed order.
pub fn canonical(json: &RawValue) -> String {
    let mut text = String::new();
    let written = Sorted(&mut text).deserialize(&mut serde_json::Deserializer::from_str(json.get()));
    written.map_or_else(|_| json.get().to_owned(), |()| text)
}

/// Parses JSON and appends it to a text with sorted fields, without a `Value`: tiny objects would take 60 times the memory of their text.
struct Sorted<'a>(&'a mut String);

impl Sorted<'_> {
    fn push<E>(self, scalar: impl Into<Value>) -> Result<(), E> {
        self.0.push_str(&scalar.into().to_string());
        Ok(())
    }

    /// Ends an array or an object. Each item ends with a comma.
    fn close(self, bracket: char) {
        if self.0.ends_with(',') {
            self.0.pop();
        }
        self.0.push(bracket);
    }
}

impl<'de> DeserializeSeed<'de> for Sorted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sorted<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.push(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.push(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.push(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.push(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.push(value)
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.push(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push('[');
        while items.next_element_seed(Sorted(self.0))?.is_some() {
            self.0.push(',');
        }
        self.close(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut sorted = BTreeMap::new();
        while let Some(name) = fields.next_key::<String>()? {
            let mut value = String::new();
            fields.next_value_seed(Sorted(&mut value))?;
            sorted.insert(name, value);
        }
        self.0.push('{');
        for (name, value) in sorted {
            Sorted(self.0).push(name)?;
            self.0.push(':');
            self.0.push_str(&value);
            self.0.push(',');
        }
        self.close('}');
        Ok(())
    }
}

/// How a change of the template reaches the pods, for a number of replicas.
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
