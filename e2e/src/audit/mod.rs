//! The operators' requests in the API server's audit log. [`writers`] checks that one replica at a time writes.

pub mod writers;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The prefix of an operator's user agent in the log.
const AGENT: &str = r#""userAgent":"podset-operator/"#;

/// One request, as the API server logged it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// create, patch, watch, …
    pub verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    #[serde(rename = "stageTimestamp")]
    pub answered: Timestamp,
    #[serde(default)]
    user: Value,
    #[serde(default)]
    object_ref: Value,
    #[serde(default)]
    response_status: Value,
    #[serde(default)]
    response_object: Value,
    #[serde(default)]
    annotations: Value,
}

impl Request {
    /// `create pods`, `patch podsets/status`, …; `dry-run pods` for a write that is only tried.
    pub fn kind(&self) -> String {
        let verb = if self.uri.contains("dryRun=All") { "dry-run" } else { &self.verb };
        match text(&self.object_ref["subresource"]) {
            "" => format!("{verb} {}", self.resource()),
            subresource => format!("{verb} {}/{subresource}", self.resource()),
        }
    }

    /// The plural of the kind.
    pub fn resource(&self) -> &str {
        text(&self.object_ref["resource"])
    }

    pub fn name(&self) -> &str {
        text(&self.object_ref["name"])
    }

    pub fn user(&self) -> &str {
        text(&self.user["username"])
    }

    pub fn code(&self) -> u64 {
        self.response_status["code"].as_u64().unwrap_or(0)
    }

    /// The resourceVersion of the object after a write, if the log has it.
    fn version(&self) -> Option<u64> {
        self.response_object["metadata"]["resourceVersion"].as_str()?.parse().ok()
    }

    /// The holder and the duration in seconds after a write of a Lease.
    fn lease(&self) -> (&str, i64) {
        let spec = &self.response_object["spec"];
        (text(&spec["holderIdentity"]), spec["leaseDurationSeconds"].as_i64().unwrap_or(0))
    }

    /// Whether it is a write, and succeeded.
    pub fn took_effect(&self) -> bool {
        let writes = matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        writes && (200..300).contains(&self.code())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user().rsplit(':').next().unwrap_or_default();
        write!(f, "{:.6} {user} {} {} {} {}", self.received, self.code(), self.verb, self.uri, self.name())
    }
}

/// Parses the lines that are wanted, of one namespace (empty: all), in the order of the responses.
fn entries(log: &str, namespace: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    // The last line may be half written.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    for line in whole.lines().filter(|line| line.contains(namespace) && is_wanted(line)) {
        let request: Request = serde_json::from_str(line).with_context(|| format!("in the audit log: {line}"))?;
        if namespace.is_empty() || request.object_ref["namespace"] == namespace {
            requests.push(request);
        }
    }
    Ok(requests)
}

fn read(log: &Path) -> Result<String> {
    std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))
}

/// Requests in the order of their responses.
pub struct Requests(pub Vec<Request>);

impl Requests {
    /// All requests of operators so far, in one namespace (empty: all).
    pub fn read(log: &Path, namespace: &str) -> Result<Self> {
        Ok(Self(entries(&read(log)?, namespace, |line| line.contains(AGENT))?))
    }

    /// All requests of operators so far that name this namespace. It can be the namespace of the account or of the object.
    pub fn naming(log: &Path, namespace: &str) -> Result<Self> {
        Ok(Self(entries(&read(log)?, "", |line| line.contains(AGENT) && line.contains(namespace))?))
    }

    /// All requests in a part of the log. A last line that is half written is left out.
    pub fn parse(log: &str) -> Result<Self> {
        Ok(Self(entries(log, "", |_| true)?))
    }

    /// All but watches, as lines to show.
    pub fn but_watches(&self) -> Vec<String> {
        let others = self.0.iter().filter(|request| request.verb != "watch");
        others.map(Request::to_string).collect()
    }

    /// Those that were forbidden, as lines to show. A process outside the cluster may not list all Leases, and starts without this list.
    pub fn forbidden(&self) -> Vec<String> {
        let is_search = |request: &Request| request.verb == "list" && request.uri.contains("/v1/leases");
        let is_rejected = |request: &Request| request.annotations["authorization.k8s.io/decision"] == "forbid";
        let is_forbidden = |request: &&Request| is_rejected(request) && !is_search(request);
        self.0.iter().filter(is_forbidden).map(Request::to_string).collect()
    }

    /// Those that the API server received in this time. It logs them a little later.
    pub fn received_in(self, time: Range<Timestamp>) -> Self {
        Self(self.0.into_iter().filter(|request| time.contains(&request.received)).collect())
    }

    /// The number of requests of each kind.
    pub fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for request in &self.0 {
            *kinds.entry(request.kind()).or_default() += 1;
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_operators_requests_also_if_a_line_is_half_written() {
        let line = |agent: &str| {
            format!(
                r#"{{"verb":"patch","requestURI":"/x","userAgent":"{agent}","requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","stageTimestamp":"2026-01-01T00:00:00.010000Z","objectRef":{{"resource":"podsets","namespace":"a","subresource":"status"}},"responseStatus":{{"code":200}}}}"#
            )
        };
        let (own, other) = (line("podset-operator/0.1.0"), line("kubectl/v1.36"));
        let file = std::env::temp_dir().join(format!("audit-{}.log", std::process::id()));
        std::fs::write(&file, format!("{own}\n{other}\n{}", &own[..20])).unwrap();
        let kinds = Requests::read(&file, "a").unwrap().kinds();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(kinds, [("patch podsets/status".to_owned(), 1)].into());
        assert_eq!(Requests::parse(&format!("{own}\n{other}\n{}", &own[..20])).unwrap().0.len(), 2);
    }
}
