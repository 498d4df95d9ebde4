//! What a new pod of a set looks like, and whether what was made is that. Pure.

use std::collections::BTreeMap;

use kube::Resource;
use serde_json::{Map, Value, json};

use super::{
    names,
    observe::{Pod, Set, Wanted},
};
use crate::{
    api::{self, PodSet},
    controllers::meta::Uid,
};

/// The manifest of a pod under this name. `replacements` counts the replacements in a row that led to it; 0 for a pod
/// that replaces none.
pub fn manifest(set: &Set, wanted: &Wanted, default_image: &str, name: &str, replacements: u32) -> Value {
    let template = wanted.template.as_deref();
    let metadata = template.and_then(|template| template.metadata.clone()).unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    labels.extend(own_labels(&set.key.name));
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.remove(api::ANNOTATION_REPLACEMENTS);
    if replacements > 0 {
        annotations.insert(api::ANNOTATION_REPLACEMENTS.to_owned(), replacements.to_string());
    }
    let spec = template.and_then(|template| template.spec.clone()).unwrap_or_else(|| default_spec(default_image));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": names::prefix(&set.key.name),
            "namespace": set.key.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": PodSet::api_version(&()),
                "kind": PodSet::kind(&()),
                "name": set.key.name,
                "uid": set.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

/// The labels that make a pod recognisable as one of the set's.
fn own_labels(set: &str) -> BTreeMap<String, String> {
    [(api::LABEL_APP, set), (api::LABEL_VERSION, api::VERSION), (api::LABEL_MANAGED_BY, api::MANAGER)]
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .into()
}

/// The set's labels as a selector, for the scale subresource.
pub fn selector(set: &str) -> String {
    let labels = [(api::LABEL_APP, set), (api::LABEL_VERSION, api::VERSION), (api::LABEL_MANAGED_BY, api::MANAGER)];
    labels.map(|(label, value)| format!("{label}={value}")).join(",")
}

/// The spec of a pod without a template: it passes PodSecurity `restricted`.
fn default_spec(image: &str) -> Map<String, Value> {
    let spec = json!({
        "containers": [{
            "name": "fancy-alpine",
            "image": image,
            "command": ["sleep", "3600"],
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
        }],
    });
    match spec {
        Value::Object(spec) => spec,
        _ => Map::new(),
    }
}

/// In what the pod that was made differs from what was ordered: a webhook may have changed what the operator finds its
/// pods by.
pub fn difference(pod: &Pod, name: &str, set: &Uid) -> Option<String> {
    if pod.owner.as_ref() != Some(set) {
        Some("without the owner reference to its PodSet".to_owned())
    } else if !pod.is_labelled {
        Some(format!("without the label {}={}", api::LABEL_MANAGED_BY, api::MANAGER))
    } else if &*pod.key.name != name {
        Some(format!("under the name {} instead of {name}", pod.key.name))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::podset::{observe::Pod, testing};

    #[test]
    fn the_default_pod_is_as_documented() {
        let set = testing::set(3);
        let pod = manifest(&set, set.wanted.as_ref().unwrap(), "registry.example/image", "web-podabcde", 0);
        assert_eq!(
            pod["metadata"],
            json!({
                "name": "web-podabcde",
                "generateName": "web-pod",
                "namespace": "default",
                "labels": { "app": "web", "version": "v0.1", "app.kubernetes.io/managed-by": "podset-operator" },
                "annotations": {},
                "ownerReferences": [{
                    "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web", "uid": "set-uid",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            })
        );
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["name"], "fancy-alpine");
        assert_eq!(container["image"], "registry.example/image");
        assert_eq!(container["command"], json!(["sleep", "3600"]));
        assert_eq!(container["securityContext"]["runAsUser"], 65532);
    }

    #[test]
    fn a_template_adds_to_the_labels_and_replaces_the_spec() {
        let mut set = testing::set(3);
        let template = json!({
            "metadata": { "labels": { "tier": "front" }, "annotations": { "note": "x", "app.example.com/replacements": "9" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        });
        let wanted = set.wanted.as_mut().unwrap();
        wanted.template = Some(std::sync::Arc::new(serde_json::from_value(template).unwrap()));
        let pod = manifest(&set, set.wanted.as_ref().unwrap(), "unused", "web-podabcde", 2);
        assert_eq!(pod["metadata"]["labels"]["tier"], "front");
        assert_eq!(pod["metadata"]["labels"]["app"], "web");
        assert_eq!(pod["metadata"]["annotations"], json!({ "note": "x", "app.example.com/replacements": "2" }));
        assert_eq!(pod["spec"], json!({ "containers": [{ "name": "c", "image": "i" }] }));
    }

    #[test]
    fn what_a_webhook_took_away_is_named() {
        let set = testing::set(1);
        let ordered = manifest(&set, set.wanted.as_ref().unwrap(), "i", "web-podabcde", 0);
        let told = |change: fn(&mut Value)| {
            let mut made = ordered.clone();
            change(&mut made);
            let made: Pod = serde_json::from_value(made).unwrap();
            difference(&made, "web-podabcde", &set.uid)
        };
        assert_eq!(told(|_| {}), None);
        assert!(told(|pod| pod["metadata"]["ownerReferences"] = json!([])).unwrap().contains("owner reference"));
        assert!(told(|pod| pod["metadata"]["labels"] = json!({})).unwrap().contains("label"));
        assert!(told(|pod| pod["metadata"]["name"] = json!("other")).unwrap().contains("other"));
    }
}
