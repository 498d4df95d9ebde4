//! Admission: the namespace's life cycle, a test's webhook, the schema and quotas may reject or change a create before it
//! reaches the store, in the order of the real server. A delete of a protected pod is rejected.

use serde_json::{Value, json};

use super::{
    kinds::{Kind, NAMESPACES, PODS},
    object, schema,
    status::Status,
    store::State,
};

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
        validate_name(kind, new)?;
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
        let Some(stored) = self.get(&NAMESPACES, "", namespace) else {
            return Err(Status::not_found(&NAMESPACES, namespace));
        };
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
    schema::set_defaults(kind, object);
    if *kind == PODS && object["spec"].is_object() {
        let grace = &mut object["spec"]["terminationGracePeriodSeconds"];
        if grace.is_null() {
            *grace = json!(30);
        }
    }
}

/// Rejects a pod without containers.
pub fn validate(kind: &'static Kind, object: &Value) -> Result<(), Status> {
    let name = object::name(object);
    if *kind == PODS && object["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
        let why = "Required value";
        return Err(Status::invalid(kind, name, "spec.containers", "FieldValueRequired", why));
    }
    Ok(())
}

fn validate_name(kind: &'static Kind, new: &Value) -> Result<(), Status> {
    let name = object::name(new);
    let label = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        !part.is_empty()
            && part.starts_with(inner)
            && part.ends_with(inner)
            && part.chars().all(|c| inner(c) || c == '-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        let why = format!(
            "Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        return Err(Status::invalid(kind, name, "metadata.name", "FieldValueInvalid", &why));
    }
    Ok(())
}
