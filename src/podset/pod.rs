//! The manifest of a set's pods, and the check that a created pod matches it. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::Serialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use super::{
    names,
    observe::{Pod, Set},
    revision::Revision,
};
use crate::api::{self, PodSet, PodTemplate, PodTemplateMetadata};
use operator_kit::meta::Uid;

/// The manifest of a pod.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectMeta,
    spec: &'a RawValue,
}

/// The manifest of a pod with this name. `default_spec` is used if the template has no spec. `replacements` is how many replacements in a
/// row there were, including this one; 0 if it replaces none.
pub fn manifest<'a>(
    set: &'a Set,
    template: Option<&'a PodTemplate>,
    default_spec: &'a RawValue,
    name: &'a str,
    replacements: u32,
    revision: Revision,
) -> Manifest<'a> {
    let spec = template.and_then(|template| template.spec.as_deref());
    let PodTemplateMetadata { labels, annotations } =
        template.and_then(|template| template.metadata.clone()).unwrap_or_default();
    let (mut labels, mut annotations) = (labels.unwrap_or_default(), annotations.unwrap_or_default());
    labels.extend(own_labels(&set.key.name).map(|(label, value)| (label.to_owned(), value.to_owned())));
    labels.insert(api::LABEL_REVISION.to_owned(), revision.to_string());
    annotations.remove(api::ANNOTATION_REPLACEMENTS);
    if replacements > 0 {
        annotations.insert(api::ANNOTATION_REPLACEMENTS.to_owned(), replacements.to_string());
    }
    Manifest {
        api_version: "v1",
        kind: "Pod",
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            generate_name: Some(names::prefix(&set.key.name)),
            namespace: Some(set.key.namespace.to_string()),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(set)]),
            ..ObjectMeta::default()
        },
        spec: spec.unwrap_or(default_spec),
    }
}

/// The owner reference to a set.
pub fn owner(set: &Set) -> OwnerReference {
    OwnerReference {
        api_version: PodSet::api_version(&()).into_owned(),
        kind: PodSet::kind(&()).into_owned(),
        name: set.key.name.to_string(),
        uid: set.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The labels in the set's selector. Each pod is created with them.
fn own_labels(set: &str) -> [(&'static str, &str); 3] {
    [(api::LABEL_APP, set), (api::LABEL_VERSION, api::VERSION), (api::LABEL_MANAGED_BY, api::MANAGER)]
}

/// The set's labels as a selector, for the scale subresource.
pub fn selector(set: &str) -> String {
    own_labels(set).map(|(label, value)| format!("{label}={value}")).join(",")
}

/// The spec of a pod without a template: it passes PodSecurity `restricted`.
pub fn default_spec(image: &str) -> Box<RawValue> {
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
    // This cannot fail.
    to_raw_value(&spec).unwrap_or_default()
}

/// How a created pod differs from its manifest: a webhook may have changed the name, label or owner that identifies it.
pub fn difference(pod: &Pod, name: &str, set: &Uid, revision: Revision) -> Option<String> {
    let difference = if pod.owner.as_ref() != Some(set) {
        "the owner reference to the PodSet is missing".to_owned()
    } else if !pod.is_labelled {
        format!("the label {}={} is missing", api::LABEL_MANAGED_BY, api::MANAGER)
    } else if pod.revision != Some(revision) {
        format!("the label {}={revision} is missing", api::LABEL_REVISION)
    } else if &*pod.key.name != name {
        format!("the name is {} instead of {name}", pod.key.name)
    } else {
        return None;
    };
    Some(format!("an admission webhook or policy changed the pod while it was created: {difference}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podset::{
        observe::{Pod, PodsLike, Wanted},
        testing,
    };
    use serde_json::Value;

    /// The manifest that the API server gets.
    fn sent(set: &Set, image: &str, replacements: u32) -> Value {
        let spec = default_spec(image);
        let Ok(Wanted { template: PodsLike::Template(template), .. }) = &set.wanted else { panic!("{set:?}") };
        let manifest = manifest(set, template.as_deref(), &spec, "web-podabcde", replacements, set.revision().unwrap());
        serde_json::to_value(manifest).unwrap()
    }

    #[test]
    fn the_default_pod_is_as_documented() {
        let set = testing::set(3);
        let pod = sent(&set, "registry.example/image", 0);
        assert_eq!((&pod["apiVersion"], &pod["kind"]), (&json!("v1"), &json!("Pod")));
        assert_eq!(
            pod["metadata"],
            json!({
                "name": "web-podabcde",
                "generateName": "web-pod",
                "namespace": "default",
                "labels": {
                    "app": "web",
                    "version": "v0.1",
                    "app.kubernetes.io/managed-by": "podset-operator",
                    "controller-revision-hash": "njg4qh94mc",
                },
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

    /// A set with this template.
    fn with(template: Value) -> Set {
        let mut set = testing::set(3);
        let wanted = set.wanted.as_mut().unwrap();
        let template = serde_json::from_str(&template.to_string()).unwrap();
        wanted.template = PodsLike::Template(Some(std::sync::Arc::new(template)));
        set
    }

    #[test]
    fn a_template_adds_to_the_labels_and_replaces_the_spec() {
        let set = with(json!({
            "metadata": {
                "labels": { "tier": "front", "app": "another" },
                "annotations": { "note": "x", "app.example.com/replacements": "9" },
            },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        }));
        let pod = sent(&set, "unused", 2);
        assert_eq!(pod["metadata"]["labels"]["tier"], "front");
        assert_eq!(pod["metadata"]["labels"]["app"], "web", "the label belongs to the set");
        assert_eq!(pod["metadata"]["annotations"], json!({ "note": "x", "app.example.com/replacements": "2" }));
        assert_eq!(pod["spec"], json!({ "containers": [{ "name": "c", "image": "i" }] }));
        let first = sent(&set, "unused", 0);
        assert_eq!(first["metadata"]["annotations"], json!({ "note": "x" }), "it replaces no pod");
    }

    #[test]
    fn fields_missing_in_a_template_have_their_defaults() {
        let (default, spec) =
            (sent(&testing::set(3), "i", 0), json!({ "containers": [{ "name": "c", "image": "i" }] }));
        assert_eq!(sent(&with(json!({})), "i", 0), default);
        assert_eq!(sent(&with(json!({ "metadata": {} })), "i", 0), default);
        assert_eq!(sent(&with(json!({ "metadata": { "labels": {} } })), "i", 0), default);
        let of_spec = sent(&with(json!({ "spec": spec })), "i", 0);
        assert_eq!((&of_spec["metadata"], &of_spec["spec"]), (&default["metadata"], &spec));
    }

    #[test]
    fn a_change_by_a_webhook_is_named() {
        let set = testing::set(1);
        let manifest = sent(&set, "i", 0);
        let changed = |change: fn(&mut Value)| {
            let mut made = manifest.clone();
            change(&mut made);
            let made: Pod = serde_json::from_value(made).unwrap();
            difference(&made, "web-podabcde", &set.uid, Revision::of(None, 0))
        };
        assert_eq!(changed(|_| {}), None);
        assert!(changed(|pod| pod["metadata"]["ownerReferences"] = json!([])).unwrap().contains("owner reference"));
        assert!(changed(|pod| pod["metadata"]["labels"] = json!({})).unwrap().contains("label"));
        assert!(changed(|pod| pod["metadata"]["name"] = json!("other")).unwrap().contains("other"));
    }
}
