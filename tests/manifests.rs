//! The committed CRDs match the types. `make manifests` runs this with `UPDATE_MANIFESTS=1`, which writes the files
//! instead of comparing them. The types also read the objects of former releases.

use std::{fs, path::Path};

use podset_operator::api::{self, MyCustomResource, PodSet};
use serde::{Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};
use serde_saphyr::FlowMap;

/// Client-side `kubectl apply` keeps the whole manifest as JSON in an annotation, of at most 256 KiB.
const LARGEST: usize = 200_000;

/// The folders of the CRDs: for kustomize, and for the chart, which cannot use files outside its folder.
const FOLDERS: [&str; 2] = ["config/crd/bases", "charts/podset-operator/files/crds"];

#[test]
fn committed_crds_are_current() {
    for (file, crd) in api::crds() {
        let json = serde_json::to_value(&crd).expect("a CRD can be written as JSON");
        let current = yaml(&json);
        for size in [current.len(), json.to_string().len()] {
            assert!(size < LARGEST, "{file} has {size} bytes: too many for kubectl apply");
        }
        assert!(serde_saphyr::from_str::<Value>(&current).expect("YAML") == json, "{file}: the YAML differs");
        for folder in FOLDERS {
            assert_current(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), file, &current);
        }
    }
}

fn assert_current(folder: &Path, file: &str, current: &str) {
    let path = folder.join(file);
    if std::env::var_os("UPDATE_MANIFESTS").is_some() {
        fs::create_dir_all(folder).expect("the folder can be made");
        fs::write(&path, current).expect("the CRD can be written");
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == current, "{} is out of date: run `make manifests`", path.display());
}

/// A CRD as a YAML document. Each field without subfields is on one line: the schema of a PodSpec is deep, and
/// otherwise most of the document would be indentation.
fn yaml(crd: &Value) -> String {
    let text = serde_saphyr::to_string(&Node(crd)).expect("a CRD can be written as YAML");
    format!("{}\n", text.trim_end())
}

/// A node of a YAML document.
struct Node<'a>(&'a Value);

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) if is_field(fields) => FlowMap(fields).serialize(serializer),
            Value::Object(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, Node(value)))),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Node)),
            scalar => scalar.serialize(serializer),
        }
    }
}

/// Whether this is the schema of a field without subfields.
fn is_field(schema: &Map<String, Value>) -> bool {
    let has = |name| schema.get(name).is_some_and(|value| !value.is_object());
    (has("type") || has("x-kubernetes-int-or-string"))
        && !schema.contains_key("properties")
        && !has("x-kubernetes-validations")
        && schema.values().filter_map(Value::as_object).all(is_field)
}

/// hack/verify checks the same objects with the CRDs.
#[test]
fn the_types_keep_all_fields_of_objects_of_former_releases() {
    let releases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/releases");
    let mut kinds = [0, 0];
    for release in fs::read_dir(releases).expect("the records of the releases can be read") {
        let text = fs::read_to_string(release.expect("a release").path().join("objects.json")).expect("its objects");
        for stored in serde_json::from_str::<Vec<Value>>(&text).expect("a list of objects") {
            let (kind, read) = match stored["kind"].as_str() {
                Some("PodSet") => (0, round_trip::<PodSet>(&stored)),
                Some("MyCustomResource") => (1, round_trip::<MyCustomResource>(&stored)),
                kind => panic!("this test does not know the kind {kind:?}"),
            };
            assert_kept(&stored["metadata"]["name"].to_string(), &stored, &read);
            kinds[kind] += 1;
        }
    }
    assert!(!kinds.contains(&0), "there are no objects of a kind: {kinds:?}");
}

fn round_trip<T: DeserializeOwned + Serialize>(stored: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(stored.clone()).expect("it can be read")).expect("JSON")
}

/// Fails if `after` lacks a part of `before`. Defaults of later fields may be added.
fn assert_kept(at: &str, before: &Value, after: &Value) {
    match (before, after) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().for_each(|(name, value)| assert_kept(&format!("{at}.{name}"), value, &after[name]));
        }
        (Value::Array(items), Value::Array(others)) => {
            assert_eq!(items.len(), others.len(), "{at}");
            items.iter().zip(others).for_each(|(item, other)| assert_kept(&format!("{at}[]"), item, other));
        }
        _ => assert_eq!(before, after, "{at}"),
    }
}
