//! Server-side apply, for the objects and fields an operator applies: who owns which field, what a
//! manager's next apply takes away, and what conflicts.
//!
//! Lists are atomic, but for `conditions`, which is a map keyed by `type`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{object, request::ApiRequest, status::Status, store::State};

/// Content type of a JSON merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// One step of the way to a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    /// The condition of this type.
    Condition(String),
}

type Path = Vec<Step>;

/// Which manager applied which fields, by UID of the object.
#[derive(Default)]
pub struct Ownership {
    managers: BTreeMap<String, BTreeMap<Manager, BTreeSet<Path>>>,
}

/// A field manager, for one subresource.
type Manager = (String, String);

impl Ownership {
    /// The object is gone.
    pub fn forget(&mut self, uid: &str) {
        self.managers.remove(uid);
    }

    fn others<'a>(
        &'a self,
        uid: &str,
        manager: &'a Manager,
    ) -> impl Iterator<Item = (&'a Manager, &'a BTreeSet<Path>)> {
        let of_object = self.managers.get(uid).into_iter().flatten();
        of_object.filter(move |(other, _)| *other != manager)
    }
}

impl State {
    /// PATCH with `application/apply-patch+yaml`.
    ///
    /// A `metadata.uid` in the body of a `/status` apply to a custom resource is *not* compared
    /// with the stored one: the real server (seen on 1.36.3) answers 200 and writes. Only
    /// `metadata.resourceVersion` is a precondition there.
    pub fn apply(&mut self, request: &ApiRequest) -> Result<Arc<Value>, Status> {
        let (kind, name) = (request.kind, request.name.as_str());
        let field_manager = request.query("fieldManager");
        if field_manager.is_empty() {
            let why = "Required value: is required for apply patch";
            let cause = "FieldValueRequired";
            return Err(Status::invalid_options("PatchOptions", "fieldManager", cause, why));
        }
        let Some(stored) = self.get(kind, &request.namespace, name).cloned() else {
            return self.apply_creates(request);
        };
        let version = object::meta(&request.body, "resourceVersion");
        if !version.is_empty() && version != object::meta(&stored, "resourceVersion") {
            return Err(Status::modified(kind, name));
        }
        let uid = object::uid(&request.body);
        if request.subresource.is_empty() && !uid.is_empty() && uid != object::uid(&stored) {
            let why = format!("Invalid value: \"{uid}\": field is immutable");
            return Err(Status::invalid(kind, name, "metadata.uid", "FieldValueInvalid", &why));
        }
        let manager = (field_manager.to_owned(), request.subresource.clone());
        let applied = applied_part(&request.body, &request.subresource);
        self.check_conflicts(request, &stored, &manager, &applied)?;
        let new = self.merge_applied(&stored, &manager, &applied);
        self.replace(kind, &request.subresource, &stored, new, &request.instance)
    }

    /// An apply to an object that does not exist creates it, unless it is a subresource or the
    /// body insists on a UID.
    fn apply_creates(&mut self, request: &ApiRequest) -> Result<Arc<Value>, Status> {
        if !request.subresource.is_empty() {
            return Err(Status::not_found(request.kind, &request.name));
        }
        let uid = object::uid(&request.body);
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was \
                 found"
            );
            return Err(Status::conflict(request.kind, &request.name, &why));
        }
        let mut paths = BTreeSet::new();
        leaves(&applied_part(&request.body, ""), &mut Vec::new(), &mut paths);
        let created = self.create(request)?;
        let manager = (request.query("fieldManager").to_owned(), String::new());
        let managers = self.ownership.managers.entry(object::uid(&created).to_owned()).or_default();
        managers.insert(manager, paths);
        Ok(created)
    }

    fn check_conflicts(
        &self,
        request: &ApiRequest,
        stored: &Value,
        manager: &Manager,
        applied: &Value,
    ) -> Result<(), Status> {
        if request.flag("force") {
            return Ok(());
        }
        let mut paths = BTreeSet::new();
        leaves(applied, &mut Vec::new(), &mut paths);
        let mut causes = Vec::new();
        for (other, owned) in self.ownership.others(object::uid(stored), manager) {
            for path in owned.intersection(&paths) {
                if read(stored, path) != read(applied, path) {
                    causes.push((quoted(other), text(path)));
                }
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::apply_conflict(&causes)) }
    }

    /// The stored object with the applied fields set, and without the fields that this manager
    /// applied before, leaves out now, and shares with nobody.
    fn merge_applied(&mut self, stored: &Value, manager: &Manager, applied: &Value) -> Value {
        let mut paths = BTreeSet::new();
        leaves(applied, &mut Vec::new(), &mut paths);
        let mut new = stored.clone();
        for path in &paths {
            write(&mut new, path, read(applied, path).cloned().unwrap_or(Value::Null));
        }
        let uid = object::uid(stored);
        let shared: BTreeSet<Path> = self.ownership.others(uid, manager).flat_map(|(_, owned)| owned.clone()).collect();
        let managers = self.ownership.managers.entry(uid.to_owned()).or_default();
        let former = managers.insert(manager.clone(), paths.clone()).unwrap_or_default();
        for path in former.difference(&paths).filter(|path| !shared.contains(*path)) {
            erase(&mut new, path);
        }
        // Who forces a field with another value takes it from the others.
        for (_, owned) in managers.iter_mut().filter(|(other, _)| *other != manager) {
            owned.retain(|path| !paths.contains(path) || read(stored, path) == read(applied, path));
        }
        new
    }
}

/// The part of the body that an apply to this subresource is about.
fn applied_part(body: &Value, subresource: &str) -> Value {
    if subresource == "status" {
        return json!({ "status": body["status"] });
    }
    let mut part = body.clone();
    if let Some(map) = part.as_object_mut() {
        for field in ["apiVersion", "kind", "status"] {
            map.remove(field);
        }
    }
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        object::meta_mut(&mut part).remove(field);
    }
    part
}

/// Collects the paths of all leaves of `value`.
fn leaves(value: &Value, at: &mut Path, found: &mut BTreeSet<Path>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (field, inner) in map {
                at.push(Step::Field(field.clone()));
                leaves(inner, at, found);
                at.pop();
            }
        }
        Value::Array(items) if at.last() == Some(&Step::Field("conditions".to_owned())) => {
            for item in items {
                let kind = item["type"].as_str().unwrap_or_default();
                at.push(Step::Condition(kind.to_owned()));
                leaves(item, at, found);
                at.pop();
            }
        }
        Value::Null => {}
        _ => {
            found.insert(at.clone());
        }
    }
}

fn read<'a>(value: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, step| match step {
        Step::Field(field) => at.get(field),
        Step::Condition(kind) => at.as_array()?.iter().find(|c| c["type"] == kind.as_str()),
    })
}

fn write(value: &mut Value, path: &[Step], leaf: Value) {
    let mut at = value;
    for step in path {
        at = match step {
            Step::Field(field) => {
                if !at.is_object() {
                    *at = json!({});
                }
                &mut at[field]
            }
            Step::Condition(kind) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let list = at.as_array_mut().expect("made an array just above");
                let position = list.iter().position(|c| c["type"] == kind.as_str());
                let position = position.unwrap_or_else(|| {
                    list.push(json!({ "type": kind }));
                    list.len() - 1
                });
                &mut list[position]
            }
        };
    }
    // Applying an empty map keeps the fields that other managers set in it.
    if !(leaf.is_object() && at.is_object()) {
        *at = leaf;
    }
}

/// Removes a leaf, and every parent that becomes empty. A map that others have filled stays.
fn erase(value: &mut Value, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (step, value) {
        (Step::Field(field), Value::Object(map)) => {
            let Some(inner) = map.get_mut(field) else { return };
            erase(inner, rest);
            if (rest.is_empty() && !inner.is_object()) || is_empty(inner) {
                map.remove(field);
            }
        }
        (Step::Condition(kind), Value::Array(list)) => {
            let Some(position) = list.iter().position(|c| c["type"] == kind.as_str()) else {
                return;
            };
            erase(&mut list[position], rest);
            // The key goes with the last of the fields that made the entry worth having.
            if list[position].get("type").is_none() || is_empty(&list[position]) {
                list.remove(position);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// A manager as conflicts quote it.
fn quoted((name, subresource): &Manager) -> String {
    let of = if subresource.is_empty() { String::new() } else { format!(" with subresource \"{subresource}\"") };
    format!("\"{name}\"{of}")
}

/// A path as conflicts quote it.
fn text(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(field) => format!(".{field}"),
            Step::Condition(kind) => format!("[type=\"{kind}\"]"),
        })
        .collect()
}
