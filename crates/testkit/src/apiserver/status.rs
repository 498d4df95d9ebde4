//! Error responses, in the words of kube-apiserver 1.36 (`apimachinery/pkg/api/errors`).

use super::*;

/// A `meta/v1` Status of a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub code: u16,
    /// Machine-readable reason; empty where the real server gives none.
    pub reason: &'static str,
    pub message: String,
    /// `details`, an object or null.
    pub details: Value,
}

impl Status {
    /// An error with this code, and its usual reason and message.
    pub fn of_code(code: u16) -> Self {
        let (reason, message) = match code {
            403 => ("Forbidden", "forbidden: rejected by the test"),
            404 => ("NotFound", "the server could not find the requested resource"),
            409 => ("Conflict", "the server reported a conflict"),
            429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            _ => ("InternalError", "Internal error occurred: injected by the test"),
        };
        let details = if matches!(code, 404 | 504) { json!({}) } else { Value::Null };
        Self::new(code, reason, message.to_owned(), details)
    }

    fn new(code: u16, reason: &'static str, message: String, details: Value) -> Self {
        Self { code, reason, message, details }
    }

    /// The details about an object. `called` is its kind or its resource: the real server is not consistent.
    pub fn about(kind: &Kind, called: &str, name: &str) -> Value {
        let mut details = json!({ "kind": called, "name": name });
        if !kind.group.is_empty() {
            details["group"] = kind.group.into();
        }
        details
    }

    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified(kind.plural));
        Self::new(404, "NotFound", message, Self::about(kind, kind.plural, name))
    }

    /// 409: the name is taken. It is `generated` if the object has a `generateName`, even if the client chose the name.
    pub fn already_exists(kind: &Kind, name: &str, generated: bool, terminating: bool) -> Self {
        let mut message = format!("{} \"{name}\" already exists", kind.qualified(kind.plural));
        let mut details = Self::about(kind, kind.plural, name);
        if generated {
            message += ", the server was not able to generate a unique name for the object";
            details["retryAfterSeconds"] = 1.into();
        }
        if terminating {
            message = format!("object is being deleted: {message}");
        }
        Self::new(409, "AlreadyExists", message, details)
    }

    /// 409: the object has changed, or a precondition of a delete does not hold. For a precondition, `called` is the kind.
    pub fn conflict(kind: &Kind, called: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified(called));
        Self::new(409, "Conflict", message, Self::about(kind, called, name))
    }

    /// 409: the resourceVersion that the client sent is not the stored one.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, kind.plural, name, why)
    }

    /// 422: one field is wrong. `cause` is the reason of that field's entry in `details.causes`.
    pub fn invalid(kind: &Kind, name: &str, field: &str, cause: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is invalid: {field}: {why}", kind.qualified(kind.kind));
        let mut details = Self::about(kind, kind.kind, name);
        details["causes"] = json!([{ "reason": cause, "message": why, "field": field }]);
        Self::new(422, "Invalid", message, details)
    }

    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified(kind.plural));
        Self::new(403, "Forbidden", message, Self::about(kind, kind.plural, name))
    }

    pub fn namespace_terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Self::forbidden(kind, name, &why);
        status.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        status
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into(), Value::Null)
    }

    /// 410: the requested resourceVersion is compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message.into(), Value::Null)
    }

    /// 504: the deadline of the request passed before it was executed.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self { message: message.to_owned(), ..Self::of_code(504) }
    }

    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            value["details"] = self.details.clone();
        }
        value
    }
}
