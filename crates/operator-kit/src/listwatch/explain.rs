//! Explains why a list or a watch failed: in full for the log, in short for the probes. Pure.

use leadership::connect::PluginFailed;

use crate::{
    client::ReadError,
    text::{LONGEST, cut, in_full},
};

/// Whether the API server does not serve the resource.
pub fn is_missing(error: &ReadError) -> bool {
    matches!(error, ReadError::Api(kube::Error::Api(status)) if status.code == 404)
}

/// Whether this names a custom resource: the groups of Kubernetes itself are empty or end in `.k8s.io`.
fn is_custom(what: &str) -> bool {
    what.split_once('.').is_some_and(|(_, group)| !group.ends_with(".k8s.io"))
}

/// The error, and what to do about it.
pub fn explain(what: &str, error: &ReadError) -> String {
    match error {
        error if is_missing(error) && is_custom(what) => format!(
            "the API server does not know {what}: install the CRDs with `kubectl apply -k config/crd`; waiting for them"
        ),
        ReadError::Api(kube::Error::Api(status)) if status.code == 403 || status.code == 401 => {
            let message = cut(&status.message, LONGEST);
            format!("not allowed to watch {what}: {message}; check the operator's role and token")
        }
        error => format!("cannot watch {what}, trying again: {}", in_full(error)),
    }
}

/// The error without the API server's message, because anyone can read the probes.
pub fn reason(what: &str, error: &ReadError) -> String {
    let why = match error {
        error if is_missing(error) && is_custom(what) => return explain(what, error),
        ReadError::Timeout(_) => "the API server did not answer in time",
        ReadError::TooLarge(_) => "the answer is too large",
        ReadError::Api(kube::Error::Api(status)) => match status.code {
            401 => "the API server does not accept the operator's credentials",
            403 => "forbidden: the operator's role lacks the verb list or watch",
            404 => "not found",
            code => return format!("cannot watch {what}: the API server answered with code {code}; see the log"),
        },
        ReadError::Api(kube::Error::SerdeError(_)) => "the answer cannot be read",
        ReadError::Api(kube::Error::Service(error)) if error.is::<PluginFailed>() => {
            "the kubeconfig's exec plugin returned no credentials"
        }
        ReadError::Api(_) => "the API server cannot be reached",
    };
    format!("cannot watch {what}: {why}; see the log")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str) -> ReadError {
        ReadError::Api(kube::Error::Api(Status::failure(message, "").with_code(code).boxed()))
    }

    #[test]
    fn the_log_says_what_to_do() {
        let missing = explain("podsets.app.example.com", &refused(404, "not found"));
        assert!(missing.contains("kubectl apply -k config/crd"), "{missing}");
        for own in ["names of pods", "leases.coordination.k8s.io"] {
            let missing = explain(own, &refused(404, "not found"));
            assert!(!missing.contains("CRD") && missing.contains("not found"), "{missing}");
        }
        let forbidden = explain("pods", &refused(403, "pods is forbidden"));
        assert!(forbidden.contains("pods is forbidden") && forbidden.contains("role"), "{forbidden}");
        let long = explain("pods", &refused(403, &"x".repeat(LONGEST * 2)));
        assert!(long.len() < LONGEST + 200, "{long}");
    }

    #[test]
    fn probes_name_the_kind_of_failure_and_no_details() {
        const SECRET: &str = "top-secret";
        let away = || kube::Error::Service(SECRET.into());
        let unreadable = || kube::Error::SerdeError(serde_json::from_str::<u32>("\"top-secret\"").unwrap_err());
        for (what, error, expected) in [
            ("podsets.app.example.com", refused(404, SECRET), "install the CRDs"),
            ("pods", refused(404, SECRET), "cannot watch pods: not found; see the log"),
            (
                "pods",
                refused(403, SECRET),
                "cannot watch pods: forbidden: the operator's role lacks the verb list or watch; ",
            ),
            ("pods", refused(401, SECRET), "the API server does not accept the operator's credentials; see the log"),
            ("pods", refused(500, SECRET), "the API server answered with code 500; see the log"),
            ("pods", ReadError::Timeout(std::time::Duration::from_secs(1)), "did not answer in time; see the log"),
            ("pods", ReadError::Api(away()), "the API server cannot be reached; see the log"),
            ("pods", ReadError::Api(unreadable()), "the answer cannot be read; see the log"),
        ] {
            let reason = reason(what, &error);
            assert!(reason.contains(what) && reason.contains(expected) && !reason.contains(SECRET), "{reason}");
        }
    }
}
