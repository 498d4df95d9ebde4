//! GET and LIST: consistent reads of the store, and paginated lists at one resourceVersion.

use serde_json::{Value, json};

use super::{
    list::{List, Selector, continued, presented, shown_as},
    request::ApiRequest,
    status::Status,
    store::State,
};

impl State {
    pub(super) fn read(&self, request: &ApiRequest) -> Result<Value, Status> {
        Ok(presented(&*self.stored(request)?, request.metadata_only()))
    }

    pub(super) fn list(&mut self, request: &ApiRequest) -> Result<Value, Status> {
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
