//! GET and LIST: consistent reads of the store, and paginated lists at one resourceVersion.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    kinds::Kind,
    object,
    request::ApiRequest,
    status::Status,
    store::{ChangeKind, State},
};

/// Where a page of a list begins.
struct Page {
    resource_version: u64,
    after: (String, String),
}

type Snapshot = BTreeMap<(String, String), Arc<Value>>;

impl State {
    /// GET.
    pub fn read(&self, request: &ApiRequest) -> Result<Value, Status> {
        Ok(presented(&*self.stored(request)?, request.metadata_only()))
    }

    /// LIST.
    pub fn list(&self, request: &ApiRequest) -> Result<Value, Status> {
        let selector = Selector::of(request)?;
        let token = request.query("continue");
        let page = if token.is_empty() { None } else { Some(decode(token)?) };
        let version = page.as_ref().map_or(self.resource_version, |page| page.resource_version);
        let mut objects = self.snapshot(request.kind, version);
        objects.retain(|key, object| {
            (request.namespace.is_empty() || key.0 == request.namespace)
                && page.as_ref().is_none_or(|page| *key > page.after)
                && selector.matches(object)
        });
        let limit: usize = request.query("limit").parse().unwrap_or(0).min(self.settings.page);
        let paged = limit > 0 && limit < objects.len();
        let taken = if paged { limit } else { objects.len() };
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if paged && let Some(last) = objects.keys().nth(taken - 1) {
            metadata["continue"] = encode(version, last).into();
            if request.query("labelSelector").is_empty() && request.query("fieldSelector").is_empty() {
                metadata["remainingItemCount"] = (objects.len() - taken).into();
            }
        }
        let mut items: Vec<Value> =
            objects.values().take(taken).map(|o| presented(o, request.metadata_only())).collect();
        if !request.kind.custom && !request.metadata_only() {
            // Real lists of built-in kinds have these fields only in the list itself.
            let fields = items.iter_mut().filter_map(Value::as_object_mut);
            fields.for_each(|fields| fields.retain(|field, _| field != "apiVersion" && field != "kind"));
        }
        Ok(list_of(request, metadata, items))
    }

    /// All objects of a kind as they were at a resourceVersion.
    fn snapshot(&self, kind: &'static Kind, version: u64) -> Snapshot {
        let place = |o: &Arc<Value>| (object::namespace(o).to_owned(), object::name(o).to_owned());
        let mut snapshot: Snapshot = self.of_kind(kind, "").map(|o| (place(o), Arc::clone(o))).collect();
        let later = self.history.iter().rev().take_while(|c| c.resource_version > version);
        for change in later.filter(|change| *change.kind == *kind) {
            match (&change.change, &change.before) {
                (ChangeKind::Added, _) | (_, None) => snapshot.remove(&place(&change.object)),
                (_, Some(before)) => snapshot.insert(place(before), Arc::clone(before)),
            };
        }
        snapshot
    }
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

    /// Whether the object matches.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.label.as_ref().is_none_or(|(key, value)| labels[key] == value.as_str())
            && self.name.as_ref().is_none_or(|name| object::name(object) == name)
    }
}

/// The object, or its metadata alone.
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

fn list_of(request: &ApiRequest, metadata: Value, items: Vec<Value>) -> Value {
    let (kind, api_version) = if request.metadata_only() {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", request.kind.kind), request.kind.api_version())
    };
    json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items })
}

/// The token of the next page: resourceVersion, namespace and name of the last object that was sent.
fn encode(version: u64, (namespace, name): &(String, String)) -> String {
    format!("{version}/{namespace}/{name}")
}

fn decode(token: &str) -> Result<Page, Status> {
    let invalid = || Status::bad_request("invalid continue token: continue key is not valid: not made here");
    let page = |token: &str| {
        let (version, last) = token.split_once('/')?;
        let (namespace, name) = last.split_once('/')?;
        Some(Page { resource_version: version.parse().ok()?, after: (namespace.to_owned(), name.to_owned()) })
    };
    page(token).ok_or_else(invalid)
}
