//! Revisions: which template a pod was made from, and how a change of the template reaches the pods. Pure.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, value::RawValue};

use super::names::{self, ALPHABET};
use crate::api::{PodSetSpec, UpdateStrategyType};

/// How many characters a revision has.
const LENGTH: usize = 10;

/// A template, as the label `controller-revision-hash` of its pods names it: a hash of its content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
    serde_json::from_str(json.get()).map_or_else(|_| json.get().to_owned(), |content: Value| content.to_string())
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
