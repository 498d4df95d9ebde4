//! The schema of `spec.template.spec`: that of a PodSpec of Kubernetes 1.36, as small as a CRD needs it. No I/O.
//!
//! `kubectl apply` keeps the whole CRD in an annotation of 256 KiB at most. The full schema with its documentation is larger, so each
//! description is cut to its first sentence.

use k8s_openapi::api::core::v1;
use schemars::{
    JsonSchema, Schema, SchemaGenerator,
    transform::{RecursiveTransform, Transform},
};
use serde_json::{Map, Value, json};

/// The lists of a PodSpec that server-side apply merges item by item, with their keys. It replaces all other lists as a whole. These are the
/// keys of the API server's own schema, which the schemas of `k8s_openapi` lack.
const KEYED_LISTS: [(&str, &[&str]); 13] = [
    ("claims", &["name"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// The keys of lists that an item may leave out, with the value that the API server then gives them.
const OPTIONAL_KEYS: [(&str, &str, &str); 2] = [("imagePullSecrets", "name", ""), ("ports", "protocol", "TCP")];

/// The schema of a PodSpec. Its generator inlines subschemas, because a CRD must not contain references.
pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = v1::PodSpec::json_schema(generator);
    if let Some(properties) = properties(&mut schema) {
        // A pod is never created with them.
        properties.remove("ephemeralContainers");
    }
    RecursiveTransform(adapt).transform(&mut schema);
    schema
}

/// Adapts one node: its description and what concerns its properties.
fn adapt(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        description.truncate(first_sentence(description).len());
    }
    for (name, property) in properties(schema).into_iter().flatten() {
        // Of a volume claim's metadata a pod may set no more.
        if name == "metadata"
            && let Some(Value::Object(fields)) = property.get_mut("properties")
        {
            fields.retain(|field, _| field == "labels" || field == "annotations");
        }
        if let Some(items) = property.get_mut("items").and_then(Value::as_object_mut) {
            // The list has its own.
            items.remove("description");
        }
        for (_, keys) in KEYED_LISTS.iter().filter(|(list, _)| list == name) {
            property["x-kubernetes-list-type"] = json!("map");
            property["x-kubernetes-list-map-keys"] = json!(keys);
        }
        for (_, key, default) in OPTIONAL_KEYS.iter().filter(|(list, ..)| list == name) {
            property["items"]["properties"][key]["default"] = json!(default);
        }
    }
}

fn properties(schema: &mut Schema) -> Option<&mut Map<String, Value>> {
    schema.get_mut("properties")?.as_object_mut()
}

/// A text up to the first full stop that a capital letter follows, or up to the end of its first line.
fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    let mut ends = line.match_indices(". ").map(|(at, _)| at);
    let end = ends.find(|at| line[at + 2..].trim_start().starts_with(char::is_uppercase));
    end.map_or(line, |at| &line[..=at])
}
