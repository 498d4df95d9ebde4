//! The defaults of the two custom resources, from their CRDs.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::kinds::Kind;

const CRDS: [&str; 2] = [
    include_str!("../../../../config/crd/bases/app.example.com_podsets.yaml"),
    include_str!("../../../../config/crd/bases/poc.test.domain_mycustomresources.yaml"),
];

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let crds = CRDS.map(|file| serde_saphyr::from_str::<Value>(file).expect("YAML")["spec"].take());
    let schema = |crd: &Value| crd["versions"][0]["schema"]["openAPIV3Schema"].clone();
    crds.iter().map(|crd| (crd["names"]["kind"].as_str().expect("a kind").to_owned(), schema(crd))).collect()
});

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
