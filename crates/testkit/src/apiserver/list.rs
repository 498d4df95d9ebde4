//! Lists and their pages, selectors, and how objects are presented.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{kinds::Kind, object, request::ApiRequest, status::Status};

/// A list. All its pages show one resourceVersion.
pub struct List {
    pub version: u64,
    pub objects: Vec<Arc<Value>>,
}

/// The number of the list that a token continues, and how many of its objects were on the pages before.
pub fn continued(lists: &[List], token: &str) -> Option<(usize, usize)> {
    let (number, from) = token.split_once('/')?;
    let (number, from): (usize, usize) = (number.parse().ok()?, from.parse().ok()?);
    (from <= lists.get(number)?.objects.len()).then_some((number, from))
}

/// The objects on the pages before the one that this request reads.
pub fn former_pages<'a>(lists: &'a [List], request: &ApiRequest) -> &'a [Arc<Value>] {
    let (number, from) = continued(lists, request.query("continue")).unwrap_or_default();
    lists.get(number).map_or(&[], |list| &list.objects[..from])
}

/// `labelSelector=key=value` and `fieldSelector=metadata.name=x`, the only selectors of the operator.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    label: Option<(String, String)>,
    name: Option<String>,
}

impl Selector {
    /// The selector of a list or a watch. Rejects other selectors.
    pub fn of(request: &ApiRequest) -> Result<Self, Status> {
        let (label, field) = (request.query("labelSelector"), request.query("fieldSelector"));
        let unknown = |text: &str| Status::bad_request(format!("this API server does not know the selector {text}"));
        let label = match label.split_once('=') {
            None if label.is_empty() => None,
            Some((key, value)) if !value.contains([',', '=']) && !key.ends_with('!') => {
                Some((key.to_owned(), value.to_owned()))
            }
            _ => return Err(unknown(label)),
        };
        let name = match field.strip_prefix("metadata.name=") {
            None if !field.is_empty() => return Err(unknown(field)),
            name => name.map(str::to_owned),
        };
        Ok(Self { label, name })
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.label.as_ref().is_none_or(|(key, value)| labels[key] == value.as_str())
            && self.name.as_ref().is_none_or(|name| object::name(object) == name)
    }
}

pub fn presented(object: &Value, metadata_only: bool) -> Value {
    if !metadata_only {
        return object.clone();
    }
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// Kind and apiVersion of an object, or of its metadata alone.
pub fn shown_as(kind: &'static Kind, metadata_only: bool) -> (&'static str, String) {
    if metadata_only { ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()) } else { (kind.kind, kind.api_version()) }
}
