//! Classifies a rejected create or delete, and makes its message for users. Pure.

use jiff::SignedDuration;
use kube::core::Status;

use operator_kit::{
    failures::Waits,
    text::{LONGEST, cut},
};

/// The first and the longest wait after a write that was rejected or got no answer.
pub const BACKOFF: Waits = (SignedDuration::from_secs(1), SignedDuration::from_secs(30));

/// Why the API server rejected a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// The message, without the parts that change each time.
    pub message: String,
    /// Decides when a retry can succeed.
    pub kind: RejectionKind,
    /// The generation of the rejected spec.
    pub generation: i64,
}

impl Rejection {
    /// Whether the template of this generation is invalid.
    pub fn is_invalid_template(&self, generation: i64) -> bool {
        self.kind == RejectionKind::InvalidTemplate && self.generation == generation
    }

    /// Whether it tells something new after this one.
    pub fn differs(&self, former: &Rejection) -> bool {
        self.kind != former.kind || !self.says(&former.message)
    }

    /// Whether its message tells the same as this one. The message of a quota says how much of it is used, and the message of an unclear
    /// failure differs each time.
    pub fn says(&self, message: &str) -> bool {
        let words = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
        match self.kind {
            RejectionKind::Unclear => true,
            RejectionKind::Forbidden => words(&self.message) == words(message),
            RejectionKind::InvalidTemplate | RejectionKind::NamespaceTerminating => self.message == message,
        }
    }
}

/// The kind of a rejection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectionKind {
    /// A later try may succeed: quota, admission.
    Forbidden,
    /// The API server failed or did not answer, so the pod may exist; or the request was not sent.
    Unclear,
    /// The template is invalid, so no try will succeed.
    InvalidTemplate,
    /// The namespace is being deleted, so no try will succeed.
    NamespaceTerminating,
}

/// The rejection of the pod with this name, for this generation of the spec.
pub fn read(status: &Status, pod: &str, prefix: &str, generation: i64) -> Rejection {
    Rejection { kind: kind(status), message: words(&status.message, pod, prefix), generation }
}

/// The API server's message about the pod with this name. The prefix replaces the name, which may differ with each try.
pub fn words(message: &str, pod: &str, prefix: &str) -> String {
    cut(&message.replace(pod, prefix), LONGEST)
}

fn kind(status: &Status) -> RejectionKind {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    if causes.clone().any(|cause| cause.reason == "NamespaceTerminating") {
        return RejectionKind::NamespaceTerminating;
    }
    // Webhooks reject with any reason and code, and may accept the pod later.
    if status.message.starts_with("admission webhook") {
        return RejectionKind::Forbidden;
    }
    // Admission policies reject with the same reason, but without a field.
    let is_invalid = status.reason == "Invalid" && causes.clone().any(|cause| !cause.field.is_empty());
    // Unknown fields and wrong types.
    let is_unreadable = status.code == 400;
    if is_invalid || is_unreadable { RejectionKind::InvalidTemplate } else { RejectionKind::Forbidden }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(status: Value) -> Rejection {
        super::read(&serde_json::from_value(status).unwrap(), "web-podabcde", "web-pod", 1)
    }

    #[test]
    fn rejections_are_distinguished() {
        let quota = read(json!({
            "code": 403, "reason": "Forbidden", "details": { "name": "web-podabcde", "kind": "pods" },
            "message": "pods \"web-podabcde\" is forbidden: exceeded quota: two, requested: pods=1, used: pods=2",
        }));
        assert_eq!(quota.kind, RejectionKind::Forbidden);
        assert_eq!(
            quota.message,
            "pods \"web-pod\" is forbidden: exceeded quota: two, requested: pods=1, used: pods=2"
        );

        let invalid = read(json!({
            "code": 422, "reason": "Invalid", "message": "Pod \"web-podabcde\" is invalid: spec.containers: Required value",
            "details": { "causes": [{ "reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers" }] },
        }));
        assert_eq!(invalid.kind, RejectionKind::InvalidTemplate);

        let policy = read(json!({
            "code": 422, "reason": "Invalid", "message": "ValidatingAdmissionPolicy 'p' denied request",
            "details": { "causes": [{ "message": "denied request" }] },
        }));
        assert_eq!(policy.kind, RejectionKind::Forbidden);

        let unknown_field = read(json!({
            "code": 400, "reason": "BadRequest", "message": "strict decoding error: unknown field \"spec.contaners\"",
        }));
        assert_eq!(unknown_field.kind, RejectionKind::InvalidTemplate);

        for (code, reason) in [(400, ""), (422, "Invalid")] {
            let webhook = read(json!({
                "code": code, "reason": reason, "message": "admission webhook \"x\" denied the request: no",
                "details": { "causes": [{ "reason": "FieldValueForbidden", "message": "no", "field": "spec.hostNetwork" }] },
            }));
            assert_eq!(webhook.kind, RejectionKind::Forbidden, "{code}");
        }

        let terminating = read(json!({
            "code": 403, "reason": "Forbidden", "message": "because it is being terminated",
            "details": { "causes": [{ "reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace" }] },
        }));
        assert_eq!(terminating.kind, RejectionKind::NamespaceTerminating);
    }
}
