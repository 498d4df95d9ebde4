//! What the API server's answers prove.

use http::StatusCode;
use kube::core::{Status, response::reason};

/// Whether the API server says that the object of this name does not exist. Only a Status that names the object proves that: an API
/// server that does not serve the resource yet also answers 404, and so do proxies and load balancers.
pub fn is_absent(status: &Status, name: &str) -> bool {
    status.reason == reason::NOT_FOUND && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// The outcome of a write, as far as its answer proves it.
#[derive(Debug)]
pub enum Proof {
    /// The write succeeded.
    Done,
    /// The write was rejected for certain.
    Rejected(Box<Status>),
    /// The write may or may not take effect. Contains the error of the API server; `None` if the answer is not a Status about the request.
    Unclear(Option<Box<Status>>),
}

impl Proof {
    /// What an answer with this code and body proves. Only a Status about the request itself proves a rejection.
    pub fn of(code: StatusCode, body: &[u8]) -> Self {
        if code.is_success() {
            return Proof::Done;
        }
        let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.code == code.as_u16());
        match status {
            Some(status) if is_rejection(&status) => Proof::Rejected(Box::new(status)),
            status => Proof::Unclear(status.map(Box::new)),
        }
    }

    /// Whether the write may take effect later.
    pub fn may_land(&self) -> bool {
        matches!(self, Proof::Unclear(_))
    }
}

/// Whether this Status proves that the API server did not carry out the request.
fn is_rejection(status: &Status) -> bool {
    match status.code {
        // A timeout, and an answer that may come from a proxy or a load balancer.
        408 | 429 => false,
        // An admission webhook with `failurePolicy: Fail` did not answer. The API server calls webhooks before it stores anything.
        500 => status.message.starts_with("Internal error occurred: failed calling webhook"),
        code => (400..500).contains(&code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(code: u16, body: &[u8]) -> &'static str {
        match Proof::of(StatusCode::from_u16(code).unwrap(), body) {
            Proof::Done => "done",
            Proof::Rejected(_) => "rejected",
            Proof::Unclear(Some(_)) => "unclear",
            Proof::Unclear(None) => "unknown",
        }
    }

    fn status(code: u16, message: &str) -> Vec<u8> {
        serde_json::to_vec(&Status::failure(message, "any").with_code(code)).unwrap()
    }

    #[test]
    fn a_response_proves_only_what_the_api_server_said() {
        for (code, body, expected) in [
            (201, b"{}".to_vec(), "done"),
            (409, status(409, "no"), "rejected"),
            (403, status(403, "no"), "rejected"),
            (429, status(429, "no"), "unclear"),
            (429, b"Too many requests, please try again later.\n".to_vec(), "unknown"),
            (403, status(500, "no"), "unknown"),
            (408, status(408, "no"), "unclear"),
            (504, status(504, "no"), "unclear"),
            (502, b"<html>".to_vec(), "unknown"),
        ] {
            assert_eq!(proof(code, &body), expected, "{code} {}", String::from_utf8_lossy(&body));
            let may_land = Proof::of(StatusCode::from_u16(code).unwrap(), &body).may_land();
            assert_eq!(may_land, ["unclear", "unknown"].contains(&expected), "{code}");
        }
    }

    #[test]
    fn only_an_answer_that_names_the_object_proves_its_absence() {
        let status = r#"{"code": 404, "reason": "NotFound", "details": {"name": "web"}}"#;
        let status: Status = serde_json::from_str(status).unwrap();
        assert!(is_absent(&status, "web") && !is_absent(&status, "another"));
        // As an API server that does not serve the resource, or a load balancer.
        assert!(!is_absent(&Status::failure("the server could not find the requested resource", "NotFound"), "web"));
    }

    #[test]
    fn a_failing_webhook_means_that_nothing_was_stored() {
        let message = "Internal error occurred: failed calling webhook \"pods.example.com\": connection refused";
        assert_eq!(proof(500, &status(500, message)), "rejected");
        assert_eq!(proof(500, &status(500, "Internal error occurred: etcdserver: no leader")), "unclear");
        assert_eq!(proof(504, &status(500, message)), "unknown");
    }
}
