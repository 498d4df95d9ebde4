//! Explains why a list or a watch failed. Pure.

use kube::client::AuthError;
use leadership::connect::PluginFailed;

use crate::client::ReadError;

/// Whether the API server does not serve the resource.
pub fn is_missing(error: &ReadError) -> bool {
    matches!(error, ReadError::Api(kube::Error::Api(status)) if status.code == 404)
}

/// Whether this names a custom resource: the groups of Kubernetes itself are empty or end in `.k8s.io`.
fn is_custom(what: &str) -> bool {
    what.split_once('.').is_some_and(|(_, group)| !group.ends_with(".k8s.io"))
}

/// What failed, and what to do about it, without the API server's message, because anyone can read the probes.
pub fn explain(what: &str, error: &ReadError) -> String {
    let why = match error {
        ReadError::Timeout(_) => "the API server did not answer in time",
        ReadError::TooLarge(_) | ReadError::Api(kube::Error::LinesCodecMaxLineLengthExceeded) => {
            "the answer is too large"
        }
        ReadError::Idle => "the watch ends as soon as it is idle; perhaps a proxy before the API server closes it",
        ReadError::Api(kube::Error::Api(status)) => match status.code {
            401 => "the API server does not accept the operator's credentials",
            403 => "forbidden: the operator's role lacks the verb list or watch",
            404 if is_custom(what) => "the API server does not know it: install its CRD",
            404 => "not found",
            code => return format!("cannot watch {what}: the API server answered with code {code}"),
        },
        ReadError::Api(kube::Error::SerdeError(_)) => "the answer cannot be read",
        ReadError::Api(kube::Error::Service(error)) if error.is::<PluginFailed>() => {
            "the kubeconfig's exec plugin returned no credentials"
        }
        ReadError::Api(kube::Error::Service(error)) if error.is::<AuthError>() => {
            "the operator's credentials cannot be used"
        }
        ReadError::Api(_) => "the API server cannot be reached",
    };
    format!("cannot watch {what}: {why}")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str) -> ReadError {
        ReadError::Api(kube::Error::Api(Status::failure(message, "").with_code(code).boxed()))
    }

    #[test]
    fn only_a_custom_resource_needs_crds() {
        for own in ["names of pods", "leases.coordination.k8s.io"] {
            let missing = explain(own, &refused(404, "not found"));
            assert!(!missing.contains("CRD") && missing.contains("not found"), "{missing}");
        }
    }

    #[test]
    fn probes_name_the_kind_of_failure_and_no_details() {
        const SECRET: &str = "top-secret";
        let away = || kube::Error::Service(SECRET.into());
        let unreadable = || kube::Error::SerdeError(serde_json::from_str::<u32>("\"top-secret\"").unwrap_err());
        for (what, error, expected) in [
            ("podsets.app.example.com", refused(404, SECRET), "install its CRD"),
            ("pods", refused(404, SECRET), "cannot watch pods: not found"),
            (
                "pods",
                refused(403, SECRET),
                "cannot watch pods: forbidden: the operator's role lacks the verb list or watch",
            ),
            ("pods", refused(401, SECRET), "the API server does not accept the operator's credentials"),
            ("pods", refused(500, SECRET), "the API server answered with code 500"),
            ("pods", ReadError::Timeout(std::time::Duration::from_secs(1)), "did not answer in time"),
            (
                "pods",
                ReadError::Api(kube::Error::Service(AuthError::AuthExec(SECRET.to_owned()).into())),
                "the operator's credentials cannot be used",
            ),
            ("pods", ReadError::Api(kube::Error::LinesCodecMaxLineLengthExceeded), "the answer is too large"),
            ("pods", ReadError::Api(away()), "the API server cannot be reached"),
            ("pods", ReadError::Api(unreadable()), "the answer cannot be read"),
        ] {
            let failure = explain(what, &error);
            assert!(failure.starts_with(&format!("cannot watch {what}: ")), "{failure}");
            assert!(failure.ends_with(expected) && !failure.contains(SECRET), "{failure}");
        }
    }
}
