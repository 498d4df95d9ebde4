//! GET and LIST: consistent reads of the store, paginated lists at one resourceVersion, and selectors.

use super::*;

/// A list. All its pages show one resourceVersion.
pub struct List {
    pub version: u64,
    pub objects: Vec<Arc<Value>>,
}

impl State {
    pub(super) fn read(&self, request: &ApiRequest) -> Result<Value, Status> {
        Ok(presented(&*self.stored(request)?, request.metadata_only()))
    }

    pub(super) fn list(&mut self, request: &ApiRequest) -> Result<Value, Status> {
        if !request.query("resourceVersion").is_empty() {
            return Err(Status::bad_request("this API server has no lists of a former state"));
        }
        let (kind, token) = (request.kind, request.query("continue"));
        let (number, from) = if token.is_empty() {
            let selector = Selector::of(request)?;
            let objects = self.of_kind(kind, &request.namespace).filter(|object| selector.matches(object));
            let list = List { version: self.resource_version, objects: objects.cloned().collect() };
            self.lists.push(list);
            (self.lists.len() - 1, 0)
        } else {
            let invalid = "invalid continue token: continue key is not valid: not made here";
            continued(&self.lists, token).ok_or_else(|| Status::bad_request(invalid))?
        };
        let List { version, objects } = &self.lists[number];
        let limit = request.query("limit").parse().unwrap_or(0).min(self.settings.page);
        let to = if limit > 0 { objects.len().min(from + limit) } else { objects.len() };
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if to < objects.len() {
            metadata["continue"] = format!("{number}/{to}").into();
            if request.query("labelSelector").is_empty() && request.query("fieldSelector").is_empty() {
                metadata["remainingItemCount"] = (objects.len() - to).into();
            }
        }
        let mut items: Vec<Value> =
            objects[from..to].iter().map(|object| presented(object, request.metadata_only())).collect();
        if !kind.custom && !request.metadata_only() {
            // Real lists of built-in kinds have these fields only in the list itself.
            let fields = items.iter_mut().filter_map(Value::as_object_mut);
            fields.for_each(|fields| fields.retain(|field, _| field != "apiVersion" && field != "kind"));
        }
        let (kind, api_version) = shown_as(kind, request.metadata_only());
        Ok(json!({ "kind": format!("{kind}List"), "apiVersion": api_version, "metadata": metadata, "items": items }))
    }
}

/// The number of the list that a token continues, and how many of its objects were on the pages before.
fn continued(lists: &[List], token: &str) -> Option<(usize, usize)> {
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
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

/// Kind and apiVersion of an object, or of its metadata alone.
pub fn shown_as(kind: &'static Kind, metadata_only: bool) -> (&'static str, String) {
    if metadata_only { ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()) } else { (kind.kind, kind.api_version()) }
}
