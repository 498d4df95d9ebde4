//! GET and LIST: consistent reads of the store, pages of a list at one resourceVersion, and reads
//! from an old cache for those who ask for `resourceVersion=0`.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    kinds::Kind,
    object,
    request::ApiRequest,
    selector::Selector,
    status::Status,
    store::{ChangeKind, State},
};

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent \
     list result. You can start a new list without the continue parameter, or use the continue \
     token in this response to retrieve the remainder of the results. Continuing with the provided \
     token results in an inconsistent list - objects that were created, modified, or deleted \
     between the time the first chunk was returned and now may show up in the list.";

/// Where a page of a list begins.
struct Page {
    resource_version: u64,
    after: (String, String),
}

type Snapshot = BTreeMap<(String, String), Arc<Value>>;

impl State {
    /// GET of one object.
    pub fn read(&self, request: &ApiRequest) -> Result<Value, Status> {
        let object = match self.old_cache(request) {
            None => self.stored(request)?,
            Some(version) => {
                let key = (request.namespace.clone(), request.name.clone());
                let cached = self.snapshot(request.kind, version).remove(&key);
                cached.ok_or_else(|| Status::not_found(request.kind, &request.name))?
            }
        };
        Ok(presented(&object, request.metadata_only()))
    }

    /// LIST.
    pub fn list(&self, request: &ApiRequest) -> Result<Value, Status> {
        let selector = Selector::parse(request.query("labelSelector")).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(request.query("fieldSelector"))?;
        let page = self.page(request)?;
        let version = page.as_ref().map_or(self.list_version(request)?, |p| p.resource_version);
        let mut objects = self.snapshot(request.kind, version);
        objects.retain(|key, object| {
            (request.namespace.is_empty() || key.0 == request.namespace)
                && page.as_ref().is_none_or(|page| *key > page.after)
                && selector.matches(object)
                && fields.matches(object)
        });
        let limit: usize = request.query("limit").parse().unwrap_or(0).min(self.settings.page);
        // Real lists from the cache ignore the limit.
        let paged = limit > 0 && limit < objects.len() && request.query("resourceVersion") != "0";
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
            // Real lists of built-in kinds say it once.
            let fields = items.iter_mut().filter_map(Value::as_object_mut);
            fields.for_each(|fields| fields.retain(|field, _| field != "apiVersion" && field != "kind"));
        }
        Ok(list_of(request, metadata, items))
    }

    fn list_version(&self, request: &ApiRequest) -> Result<u64, Status> {
        if let Some(version) = self.old_cache(request) {
            return Ok(version);
        }
        let asked: u64 = request.query("resourceVersion").parse().unwrap_or(0);
        if asked > self.resource_version {
            return Err(Status::too_large_resource_version(asked, self.resource_version));
        }
        Ok(self.resource_version)
    }

    /// The resourceVersion of the cache that answers this read; none for the store itself.
    fn old_cache(&self, request: &ApiRequest) -> Option<u64> {
        let age = self.settings.cache_age;
        if request.query("resourceVersion") != "0" || age.is_zero() {
            return None;
        }
        let then = self.clock.elapsed().saturating_sub(age);
        let seen = self.history.iter().take_while(|change| change.at <= then).last();
        Some(seen.map_or(1, |change| change.resource_version))
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

    fn page(&self, request: &ApiRequest) -> Result<Option<Page>, Status> {
        let token = request.query("continue");
        if token.is_empty() {
            return Ok(None);
        }
        let Some(page) = decode(token) else {
            return Err(Status::bad_request("invalid continue token: continue key is not valid: not made here"));
        };
        if page.resource_version < self.compacted {
            return Err(Status::expired(CONTINUE_EXPIRED));
        }
        Ok(Some(page))
    }
}

/// `metadata.name=x` and `metadata.namespace=x`, as watches of one object use them.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    requirements: Vec<(String, String)>,
}

impl FieldSelector {
    /// Reads a field selector; other fields are refused as the real server refuses unknown ones.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let mut requirements = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((field @ ("metadata.name" | "metadata.namespace"), value)) => {
                    let field = field.trim_start_matches("metadata.").to_owned();
                    requirements.push((field, value.trim_start_matches('=').to_owned()));
                }
                _ => {
                    let message = format!("field label not supported: {part}");
                    return Err(Status::bad_request(message));
                }
            }
        }
        Ok(Self { requirements })
    }

    /// Whether an object meets every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements.iter().all(|(field, value)| object::meta(object, field) == value)
    }
}

/// An object as the client asked to see it.
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

/// An opaque token: resourceVersion, namespace and name of the last object that was sent.
fn encode(version: u64, last: &(String, String)) -> String {
    let text = format!("{version}/{}/{}", last.0, last.1);
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(token: &str) -> Option<Page> {
    let bytes: Option<Vec<u8>> =
        (0..token.len()).step_by(2).map(|i| u8::from_str_radix(token.get(i..i + 2)?, 16).ok()).collect();
    let text = String::from_utf8(bytes?).ok()?;
    let mut parts = text.splitn(3, '/');
    Some(Page {
        resource_version: parts.next()?.parse().ok()?,
        after: (parts.next()?.to_owned(), parts.next()?.to_owned()),
    })
}
