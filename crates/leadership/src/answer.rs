//! What the API server's answers prove.

use http::StatusCode;
use kube::core::{Status, response::reason};

/// Whether the API server says that the object of this name does not exist. Only a Status that names the object proves that: an API
/// server that does not serve the resource yet also answers 404, and so do proxies and load balancers.
pub fn is_absent(status: &Status, name: &str) -> bool {
    status.reason == reason::NOT_FOUND && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// Whether an answer with this code proves that the request was not carried out. 408 is a timeout by another name, and 429 may
/// come from a proxy or a load balancer.
pub fn is_rejection(code: StatusCode) -> bool {
    code.is_client_error() && !matches!(code, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}
