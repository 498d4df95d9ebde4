//! Parses HTTP requests. The log has each request, its outcome in the store, and the answer to the client. A fault can make the outcome
//! and the answer differ.

use http::{HeaderMap, Method, Request, header};
use http_body_util::BodyExt as _;
use jiff::SignedDuration;
use kube::client::Body;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Patch,
    Delete,
}

impl Verb {
    pub fn mutates(self) -> bool {
        matches!(self, Self::Create | Self::Patch | Self::Delete)
    }
}

#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// The client that sent it: the name given to [`super::ApiServer::client`].
    pub instance: String,
    headers: HeaderMap,
    pub verb: Verb,
    pub kind: &'static Kind,
    /// Namespace; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Name of the object: from the path, or from the body of a create.
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// Body, null if there is none.
    pub body: Value,
}

impl ApiRequest {
    /// Parses a request of the client called `instance`. An error is the answer; without a Status, the path does not exist.
    pub async fn read(instance: &str, request: Request<Body>) -> Result<Self, Option<Status>> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map_err(|error| Status::bad_request(error.to_string()))?.to_bytes();
        let body: Value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| Status::bad_request(format!("error decoding body: {error}")))?
        };
        let query: BTreeMap<_, _> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let path = parts.uri.path().to_owned();
        let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(None),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return Err(None),
        };
        if !Kind::group_served(group, version) {
            return Err(None);
        }
        let kind = Kind::find(group, version, plural).ok_or_else(|| Status::of_code(404))?;
        let watch = query.get("watch").is_some_and(|v| v == "true" || v == "1");
        let verb = verb(&parts.method, name.is_empty(), watch).ok_or_else(|| Status::of_code(404))?;
        let name = if verb == Verb::Create { object::name(&body) } else { name };
        Ok(Self {
            instance: instance.to_owned(),
            headers: parts.headers,
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            path,
            query,
            body,
        })
    }

    /// The media type of the body, without its parameters.
    pub fn content_type(&self) -> &str {
        let value = self.header(header::CONTENT_TYPE.as_str());
        value.split(';').next().unwrap_or_default().trim()
    }

    pub fn metadata_only(&self) -> bool {
        self.header(header::ACCEPT.as_str()).contains("as=PartialObjectMetadata")
    }

    /// A header, empty if absent or not text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// A query parameter, empty if absent.
    pub fn query(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// `?timeout=`: the client's limit for the server.
    pub fn timeout(&self) -> Option<Duration> {
        self.query("timeout").parse::<SignedDuration>().ok()?.try_into().ok()
    }
}

fn verb(method: &Method, collection: bool, watch: bool) -> Option<Verb> {
    match (method.as_str(), collection) {
        ("GET", _) if watch => Some(Verb::Watch),
        ("GET", true) => Some(Verb::List),
        ("GET", false) => Some(Verb::Get),
        ("POST", true) => Some(Verb::Create),
        ("PATCH", false) => Some(Verb::Patch),
        ("DELETE", false) => Some(Verb::Delete),
        _ => None,
    }
}

#[derive(Clone, Debug)]
pub struct LoggedRequest {
    pub at: Duration,
    pub request: Arc<ApiRequest>,
    pub fault: Option<Fault>,
    /// When it was executed; none if it was not (yet).
    pub executed_at: Option<Duration>,
    /// HTTP status code of its execution.
    pub outcome: Option<u16>,
    /// HTTP status code that was sent to the client; none if there was no answer (yet).
    pub answered: Option<u16>,
}

impl LoggedRequest {
    pub fn took_effect(&self) -> bool {
        self.outcome.is_some_and(|code| code < 300)
    }

    pub fn line(&self) -> String {
        let code = |code: Option<u16>| code.map_or("-".to_owned(), |c| c.to_string());
        let ApiRequest { instance, verb, path, .. } = &*self.request;
        let fault = self.fault.as_ref().map(|fault| format!("{fault:?}")).unwrap_or_default();
        let (at, outcome, answered) = (self.at.as_secs_f64(), code(self.outcome), code(self.answered));
        format!("{at:>10.3}s {instance} {verb:?} {path} [{fault}] outcome {outcome} answered {answered}")
    }
}
