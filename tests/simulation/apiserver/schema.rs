//! The defaults of the two custom resources, from their CRDs.

use std::{collections::BTreeMap, sync::LazyLock};

use podset_operator::api;
use serde_json::Value;

use super::kinds::Kind;

/// Schemas by kind.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let crds = api::crds().into_iter().map(|(_, crd)| serde_json::to_value(crd.spec).expect("JSON"));
    let schema = |crd: &Value| crd["versions"][0]["schema"]["openAPIV3Schema"].clone();
    crds.map(|crd| (crd["names"]["kind"].as_str().expect("a kind").to_owned(), schema(&crd))).collect()
});

/// Fills in the defaults of the schema for fields that the object does not set.
pub fn set_defaults(kind: &'static Kind, object: &mut Value) {
    if let Some(schema) = SCHEMAS.get(kind.kind).filter(|_| kind.custom) {
        fill(schema, object);
    }
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object().into_iter().flatten();
            for (name, schema) in known {
                if let Some(default) = schema.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(schema, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}
