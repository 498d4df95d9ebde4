//! The operators' requests, as the API server's audit log has them: what they really sent, not what they say they did.
//! [`Requests`] are counted; [`writers`] judges that one replica at a time writes.

pub mod lease;
pub mod writers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// How the user agent of an operator begins, as it stands in the log.
const AGENT: &str = r#""userAgent":"podset-operator/"#;

/// One request, as the API server logged it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// create, patch, watch, …
    pub verb: String,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(default)]
    user: User,
    #[serde(default)]
    object_ref: Reference,
    #[serde(default)]
    response_status: Response,
    #[serde(default)]
    response_object: Option<Stored>,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
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

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision")]
    decision: String,
}

/// The object after the write, as far as it is looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
}

/// The spec, if it is that of a Lease.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
}

impl Request {
    /// `create pods`, `patch podsets/status`, …
    pub fn kind(&self) -> String {
        let Reference { resource, subresource, .. } = &self.object_ref;
        let separator = if subresource.is_empty() { "" } else { "/" };
        format!("{} {resource}{separator}{subresource}", self.verb)
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// Who sent it.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The HTTP status of the answer.
    pub fn code(&self) -> u16 {
        self.response_status.code
    }

    /// When the API server received it.
    pub fn received(&self) -> Timestamp {
        self.request_received_timestamp.0
    }

    /// When the API server had answered it.
    pub fn answered(&self) -> Timestamp {
        self.stage_timestamp.0
    }

    /// The resourceVersion of the object after a write, where the log has it.
    fn version(&self) -> Option<u64> {
        self.response_object.as_ref()?.metadata.resource_version.as_deref()?.parse().ok()
    }

    /// Whether it changes something, and did so.
    pub fn took_effect(&self) -> bool {
        let changes = matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        changes && (200..300).contains(&self.code())
    }

    /// Whether it was refused for want of a right.
    fn is_forbidden(&self) -> bool {
        self.annotations.decision == "forbid"
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user().rsplit(':').next().unwrap_or_default();
        write!(f, "{:.6} {user} {} {} {} {}", self.received(), self.code(), self.verb, self.uri, self.name())
    }
}

/// The requests in one namespace (empty: everywhere) whose lines are wanted, in the order in which they were answered.
fn entries(log: &str, namespace: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    // The last line may be half written. Any other that cannot be read is an error: a request must not hide in it.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    for line in whole.lines().filter(|line| line.contains(namespace) && is_wanted(line)) {
        let request: Request = serde_json::from_str(line).with_context(|| format!("in the audit log: {line}"))?;
        if namespace.is_empty() || request.object_ref.namespace == namespace {
            requests.push(request);
        }
    }
    Ok(requests)
}

fn read(log: &Path) -> Result<String> {
    std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))
}

/// Requests of operators in the order in which they were answered.
pub struct Requests(pub Vec<Request>);

impl Requests {
    /// All that operators have sent so far, in one namespace (empty: everywhere).
    pub fn read(log: &Path, namespace: &str) -> Result<Self> {
        Self::parse(&read(log)?, namespace)
    }

    fn parse(log: &str, namespace: &str) -> Result<Self> {
        Ok(Self(entries(log, namespace, |line| line.contains(AGENT))?))
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

    /// Those that were refused for want of a right, as lines to show.
    pub fn forbidden(&self) -> Vec<String> {
        self.0.iter().filter(|request| request.is_forbidden()).map(Request::to_string).collect()
    }

    /// Those of one user.
    pub fn by(self, user: &str) -> Self {
        Self(self.0.into_iter().filter(|request| request.user() == user).collect())
    }

    /// Those that the API server received from one moment until before another. How many lines the log had then says nothing: what it
    /// has done it writes down a little later.
    pub fn received_in(self, time: Range<Timestamp>) -> Self {
        Self(self.0.into_iter().filter(|request| time.contains(&request.received())).collect())
    }

    /// How many there are of each kind.
    pub fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for request in &self.0 {
            *kinds.entry(request.kind()).or_default() += 1;
        }
        kinds
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

/// The audit log, read on from where it was read before: it may be too long to be read whole, again and again.
pub struct Tail {
    log: File,
    half: Vec<u8>,
}

impl Tail {
    /// What comes from now on.
    pub fn follow(log: &Path) -> Result<Self> {
        let mut file = File::open(log).with_context(|| format!("reading {}", log.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { log: file, half: Vec::new() })
    }

    /// The requests of this user since it was asked last, and no others, in the order in which they were answered.
    pub fn since_last(&mut self, user: &str) -> Result<Requests> {
        let mut text = std::mem::take(&mut self.half);
        self.log.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.half = text.split_off(whole);
        Ok(Requests(entries(std::str::from_utf8(&text)?, "", |line| line.contains(user))?).by(user))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(agent: &str, verb: &str, namespace: &str, decision: &str) -> String {
        format!(
            r#"{{"verb":"{verb}","requestURI":"/x","userAgent":"{agent}","user":{{"username":"system:serviceaccount:{namespace}:one"}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","stageTimestamp":"2026-01-01T00:00:00.010000Z","objectRef":{{"resource":"podsets","namespace":"{namespace}","subresource":"status"}},"responseStatus":{{"code":200}},"annotations":{{"authorization.k8s.io/decision":"{decision}"}}}}"#
        )
    }

    #[test]
    fn counts_the_operators_requests_of_one_namespace() {
        let log = [
            line("podset-operator/0.1.0", "patch", "a", "allow"),
            line("podset-operator/0.1.0", "patch", "b", "allow"),
            line("kubectl/v1.36", "patch", "a", "allow"),
            line("podset-operator/0.1.0", "watch", "a", "forbid"),
            r#"{"userAgent":"podset-operator/0.1.0","verb":"pa"#.to_owned(),
        ]
        .join("\n");
        let requests = Requests::parse(&log, "a").unwrap();
        assert_eq!(requests.of("patch podsets/status").len(), 1);
        assert_eq!(requests.but_watches(), ["2026-01-01T00:00:00.000000Z one 200 patch /x "]);
        assert_eq!(requests.forbidden().len(), 1);
        assert_eq!(requests.by("system:serviceaccount:a:two").len(), 0);
        assert_eq!(Requests::parse(&log, "").unwrap().len(), 3);
    }

    #[test]
    fn a_line_that_was_half_written_is_read_when_it_is_whole() {
        let file = std::env::temp_dir().join(format!("audit-{}.log", std::process::id()));
        let (user, one) = ("system:serviceaccount:a:one", line("x", "patch", "a", "allow"));
        std::fs::write(&file, format!("{one}\n")).unwrap();
        let mut tail = Tail::follow(&file).unwrap();
        let mut log = File::options().append(true).open(&file).unwrap();
        log.write_all(format!("{one}\n{one}\n{}", &one[..20]).as_bytes()).unwrap();
        assert_eq!(tail.since_last(user).unwrap().kinds(), [("patch podsets/status".to_owned(), 2)].into());
        assert!(tail.since_last(user).unwrap().is_empty());
        log.write_all(format!("{}\n", &one[20..]).as_bytes()).unwrap();
        assert_eq!(tail.since_last(user).unwrap().len(), 1);
        std::fs::remove_file(&file).unwrap();
    }
}
