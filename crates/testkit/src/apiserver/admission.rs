//! Admission: the namespace's life cycle, a test's webhook, the schema and quotas may reject or change a create before it
//! reaches the store, in the order of the real server. A delete of a protected pod is rejected.

use std::sync::LazyLock;

use super::*;

/// The CRDs of the custom resources, for their defaults.
const CRDS: [&str; 2] = [
    include_str!("../../../../config/crd/bases/app.example.com_podsets.yaml"),
    include_str!("../../../../config/crd/bases/poc.test.domain_mycustomresources.yaml"),
];

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let crds = CRDS.map(|file| serde_saphyr::from_str::<Value>(file).expect("YAML")["spec"].take());
    let schema = |crd: &Value| crd["versions"][0]["schema"]["openAPIV3Schema"].clone();
    crds.iter().map(|crd| (crd["names"]["kind"].as_str().expect("a kind").to_owned(), schema(crd))).collect()
});

impl State {
    /// Runs all checks that can reject a create before the name is looked up.
    pub(super) fn admit_create(&mut self, kind: &'static Kind, namespace: &str, new: &mut Value) -> Result<(), Status> {
        self.admit_namespace(kind, namespace, new)?;
        if *kind == PODS
            && let Some((webhook, action)) = self.admission.webhook.clone()
        {
            self.coverage.hit(action);
            webhook(new)?;
        }
        validate(kind, new)?;
        self.admit_quota(kind, namespace, new)
    }

    pub(super) fn admit_delete(&mut self, kind: &'static Kind, stored: &Value) -> Result<(), Status> {
        match self.admission.protected.get(object::uid(stored)).filter(|_| object::is_live(stored)) {
            Some(action) => {
                self.coverage.hit(action);
                Err(Status::forbidden(kind, object::name(stored), "a webhook protects it"))
            }
            None => Ok(()),
        }
    }

    fn admit_namespace(&self, kind: &'static Kind, namespace: &str, new: &Value) -> Result<(), Status> {
        if *kind == NAMESPACES {
            return Ok(());
        }
        let stored = self.get(&NAMESPACES, "", namespace).ok_or_else(|| Status::not_found(&NAMESPACES, namespace))?;
        if object::phase(stored) == "Terminating" {
            return Err(Status::namespace_terminating(kind, object::name(new), namespace));
        }
        Ok(())
    }

    fn admit_quota(&mut self, kind: &'static Kind, namespace: &str, new: &Value) -> Result<(), Status> {
        let Some(&(pods, action)) = self.admission.quotas.get(namespace).filter(|_| *kind == PODS) else {
            return Ok(());
        };
        let used = self.of_kind(&PODS, namespace).filter(|pod| !object::is_finished(pod)).count();
        if used < pods {
            return Ok(());
        }
        self.coverage.hit(action);
        let why = format!("exceeded quota: pods, requested: pods=1, used: pods={used}, limited: pods={pods}");
        Err(Status::forbidden(kind, object::name(new), &why))
    }
}

/// Fills in the defaults of the CRDs and of the built-in kinds.
pub fn set_defaults(kind: &'static Kind, object: &mut Value) {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    if let Some(schema) = SCHEMAS.get(kind.kind) {
        fill(schema, object);
    }
    if *kind == PODS && object["spec"].is_object() && object["spec"]["terminationGracePeriodSeconds"].is_null() {
        object["spec"]["terminationGracePeriodSeconds"] = 30.into();
    }
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object().into_iter().flatten();
            for (name, schema) in known {
                if let Some(default) = schema.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(schema, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}

/// Rejects a wrong name, and a pod without containers.
fn validate(kind: &'static Kind, new: &Value) -> Result<(), Status> {
    let name = object::name(new);
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label =
        |part: &str| part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|c| inner(c) || c == '-');
    if name.len() > 253 || !name.split('.').all(label) {
        let why = format!(
            "Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        return Err(Status::invalid(kind, name, "metadata.name", "FieldValueInvalid", &why));
    }
    if *kind == PODS && new["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
        return Err(Status::invalid(kind, name, "spec.containers", "FieldValueRequired", "Required value"));
    }
    Ok(())
}
