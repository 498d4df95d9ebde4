//! The operator's requests, counted in the API server's audit log: what it really sent, not what it says it did.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;

/// One request of an operator, as the API server logged it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// create, patch, watch, …
    pub verb: String,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// When it was received.
    pub request_received_timestamp: MicroTime,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Response,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    namespace: String,
    name: String,
    subresource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    code: u16,
}

impl Request {
    /// `create pods`, `patch podsets/status`, …
    pub fn kind(&self) -> String {
        let Object { resource, subresource, .. } = &self.object_ref;
        let separator = if subresource.is_empty() { "" } else { "/" };
        format!("{} {resource}{separator}{subresource}", self.verb)
    }

    /// The name in the request's path; a create has none there.
    pub fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// The HTTP status of the answer.
    pub fn code(&self) -> u16 {
        self.response_status.code
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.request_received_timestamp.0;
        write!(f, "{at:.6} {} {} {} {}", self.code(), self.verb, self.uri, self.name())
    }
}

/// Requests of operators in the order in which they were answered.
pub struct Requests(pub Vec<Request>);

impl Requests {
    /// All that operators have sent so far, in one namespace (empty: everywhere).
    pub fn read(log: &Path, namespace: &str) -> Result<Self> {
        let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
        Ok(Self::parse(&text, namespace))
    }

    fn parse(log: &str, namespace: &str) -> Self {
        let ours = log.lines().filter(|line| line.contains(r#""userAgent":"podset-operator/"#));
        // The last line may be half written.
        let requests = ours.filter_map(|line| serde_json::from_str::<Request>(line).ok());
        let here = |request: &Request| namespace.is_empty() || request.object_ref.namespace == namespace;
        Self(requests.filter(here).collect())
    }

    /// Those of a kind, as [`Request::kind`] writes it.
    pub fn of(&self, kind: &str) -> Vec<&Request> {
        self.0.iter().filter(|request| request.kind() == kind).collect()
    }

    /// All that are no watches, as lines to show.
    pub fn but_watches(&self) -> Vec<String> {
        let others = self.0.iter().filter(|request| request.verb != "watch");
        others.map(Request::to_string).collect()
    }

    /// Those after the first `n`: what came since they were counted.
    pub fn since(self, n: usize) -> Self {
        Self(self.0.into_iter().skip(n).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(agent: &str, verb: &str, namespace: &str, subresource: &str) -> String {
        format!(
            r#"{{"verb":"{verb}","requestURI":"/x","userAgent":"{agent}","requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","objectRef":{{"resource":"podsets","namespace":"{namespace}","subresource":"{subresource}"}},"responseStatus":{{"code":200}}}}"#
        )
    }

    #[test]
    fn counts_the_operators_requests_of_one_namespace() {
        let log = [
            line("podset-operator/0.1.0", "patch", "a", "status"),
            line("podset-operator/0.1.0", "patch", "b", "status"),
            line("kubectl/v1.36", "patch", "a", "status"),
            line("podset-operator/0.1.0", "watch", "a", ""),
            r#"{"userAgent":"podset-operator/0.1.0","verb":"pa"#.to_owned(),
        ]
        .join("\n");
        let requests = Requests::parse(&log, "a");
        assert_eq!(requests.of("patch podsets/status").len(), 1);
        assert_eq!(requests.but_watches(), ["2026-01-01T00:00:00.000000Z 200 patch /x "]);
        assert_eq!(Requests::parse(&log, "").len(), 3);
    }
}
