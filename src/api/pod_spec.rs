//! The schema of `spec.template.spec`: a PodSpec of Kubernetes 1.36. No I/O.
//!
//! `kubectl apply` keeps the whole CRD in an annotation of at most 256 KiB. The full schema with its documentation is larger, so each
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

/// The schema of a PodSpec. Its generator inlines subschemas, because a CRD must not contain references.
pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = v1::PodSpec::json_schema(generator);
    if let Some(properties) = properties(&mut schema) {
        // The API server rejects a new pod that has them.
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
        // The API server accepts no other metadata in the template of a volume claim.
        if name == "metadata"
            && let Some(Value::Object(fields)) = property.get_mut("properties")
        {
            fields.retain(|field, _| field == "labels" || field == "annotations");
        }
        for content in ["items", "additionalProperties"] {
            if let Some(Value::Object(content)) = property.get_mut(content) {
                // The list or map has a description itself.
                content.remove("description");
            }
        }
        for (_, keys) in KEYED_LISTS.iter().filter(|(list, _)| list == name) {
            property["x-kubernetes-list-type"] = json!("map");
            property["x-kubernetes-list-map-keys"] = json!(keys);
        }
        // A key must be required or have a default.
        if name == "ports" {
            property["items"]["properties"]["protocol"]["default"] = json!("TCP");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    /// The schema in the CRD.
    fn in_crd() -> Value {
        let (_, crd) = api::crds().swap_remove(0);
        let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
            .clone()
    }

    /// Calls `visit` with the path and the schema of each node.
    fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, visit);
        }
        for content in ["items", "additionalProperties"] {
            if schema[content].is_object() {
                walk(&format!("{path}.{content}"), &schema[content], visit);
            }
        }
    }

    #[test]
    fn the_schema_is_structural() {
        let schema = in_crd();
        let text = schema.to_string();
        assert!(!text.contains("\"$ref\"") && !text.contains("Of\":") && !text.contains("preserve-unknown"), "{text}");
        let mut nodes = 0;
        walk("spec", &schema, &mut |path, node| {
            nodes += 1;
            let is_int_or_string = node["x-kubernetes-int-or-string"] == json!(true);
            assert!(node["type"].is_string() != is_int_or_string, "{path}: {node}");
            assert!(node["type"] != "array" || node["items"].is_object(), "{path}: {node}");
            let has_content = node["properties"].is_object() || node["additionalProperties"].is_object();
            assert!(node["type"] != "object" || has_content, "fields of {path} would be lost");
        });
        assert!(nodes > 900, "{nodes}");
    }

    #[test]
    fn the_description_names_the_version_of_kubernetes() {
        let (_, feature) = include_str!("../../Cargo.toml").split_once(r#"features = ["v1_"#).unwrap();
        let version = format!("Kubernetes 1.{}.", feature.split('"').next().unwrap());
        assert!(in_crd()["description"].as_str().unwrap().contains(&version), "{version}");
    }

    #[test]
    fn lists_have_the_keys_of_a_pod() {
        let mut found = std::collections::BTreeSet::new();
        walk("spec", &in_crd(), &mut |path, node| {
            let keys = node["x-kubernetes-list-map-keys"].as_array();
            assert_eq!(node["x-kubernetes-list-type"] == "map", keys.is_some(), "{path}");
            for key in keys.into_iter().flatten().map(|key| key.as_str().unwrap()) {
                let required = node["items"]["required"].as_array().unwrap();
                let default = &node["items"]["properties"][key]["default"];
                assert!(required.contains(&json!(key)) || default.is_string(), "{path}: {key}");
                found.insert(path.rsplit_once('.').unwrap().1.to_owned());
            }
        });
        assert!(found.iter().eq(KEYED_LISTS.map(|(list, _)| list).iter()), "{found:?}");
    }

    #[test]
    fn fields_that_a_new_pod_cannot_have_are_unknown() {
        let schema = in_crd();
        assert!(
            schema["properties"]["containers"].is_object() && schema["properties"]["ephemeralContainers"].is_null()
        );
        let claim =
            &schema["properties"]["volumes"]["items"]["properties"]["ephemeral"]["properties"]["volumeClaimTemplate"];
        let metadata = claim["properties"]["metadata"]["properties"].as_object().unwrap();
        assert!(metadata.keys().eq(["annotations", "labels"]), "{metadata:?}");
    }

    #[test]
    fn descriptions_have_one_sentence() {
        for (text, sentence) in [
            ("One. Two.", "One."),
            ("One.", "One."),
            ("No stop", "No stop"),
            ("One.  Two.", "One."),
            ("One e.g. this. Two.", "One e.g. this."),
            ("By /etc/x. more. Two.", "By /etc/x. more."),
            ("One\n\nTwo. Three.", "One"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), sentence);
        }
        walk("spec.properties", &in_crd()["properties"]["containers"], &mut |path, node| {
            let description = node["description"].as_str().unwrap_or_default();
            assert_eq!(first_sentence(description), description, "{path}");
        });
    }
}
