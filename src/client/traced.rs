//! Requests as spans: how one is called, what is noted of it, and the `traceparent` that goes out with it.
//!
//! Every write has a span; a read has one within a reconcile. Watches, and what an election sends, have none: they go on at
//! rest. Nothing here changes what is sent but for that one header.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Method, Request, Uri, uri::PathAndQuery};
use opentelemetry::{
    KeyValue,
    trace::{Span as _, Status},
};
use opentelemetry_sdk::trace::Span as SdkSpan;
use tracing::Span;

use crate::telemetry::spans;

/// The span of a request that is under way, if it has one. Dropped before its end was told, the request was given up.
#[derive(Debug)]
pub struct Traced {
    span: Option<Shared>,
    is_told: bool,
}

/// A span, for the two ends of the way that a request takes through this process.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<SdkSpan>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SdkSpan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traced {
    /// A write begins.
    pub fn write<B>(request: &mut Request<B>) -> Self {
        Traced { span: begin(request), is_told: false }
    }

    /// A read begins.
    pub fn read<B>(request: &mut Request<B>) -> Self {
        let span = if Span::current().is_none() { None } else { begin(request) };
        Traced { span, is_told: false }
    }

    /// It was answered with this code; where that is no success, with these words.
    pub fn answered(mut self, code: u16, words: Option<&str>) {
        self.is_told = true;
        let Some(span) = &self.span else { return };
        span.lock().set_attribute(KeyValue::new("http.response.status_code", i64::from(code)));
        if let Some(words) = words {
            fail(span, code.to_string(), words);
        }
    }

    /// It was not answered.
    pub fn failed(mut self, kind: &'static str, error: &str) {
        self.tell_failure(kind, error);
    }

    fn tell_failure(&mut self, kind: &'static str, error: &str) {
        self.is_told = true;
        if let Some(span) = &self.span {
            fail(span, kind.to_owned(), error);
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell_failure("cancelled", "the request was given up");
        }
        if let Some(span) = &self.span {
            span.lock().end();
        }
    }
}

fn fail(span: &Shared, kind: String, error: &str) {
    let mut span = span.lock();
    span.set_attribute(KeyValue::new("error.type", kind));
    span.set_status(Status::error(error.to_owned()));
}

/// A span for the request, which carries it from here on.
fn begin<B>(request: &mut Request<B>) -> Option<Shared> {
    let tracer = spans::requests()?;
    let (method, path) = (request.method(), request.uri().path());
    let Route { name, template } = route(method, path);
    let mut span = spans::request(tracer, name);
    span.set_attributes([
        KeyValue::new("http.request.method", method.to_string()),
        KeyValue::new("url.path", path.to_owned()),
        KeyValue::new("url.template", template),
    ]);
    spans::inject(span.span_context(), request.headers_mut());
    let span = Shared(Arc::new(Mutex::new(span)));
    request.extensions_mut().insert(span.clone());
    Some(span)
}

/// The request leaves for this address: only the lowest layer knows it.
pub fn leaves<B>(request: &mut Request<B>) {
    let Some(span) = request.extensions_mut().remove::<Shared>() else {
        return;
    };
    let uri = request.uri();
    if let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) {
        let rest = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        span.lock().set_attributes([
            KeyValue::new("server.address", authority.host().trim_matches(['[', ']']).to_owned()),
            KeyValue::new("server.port", i64::from(port(uri))),
            KeyValue::new("url.full", [scheme, "://", authority.as_str(), rest].concat()),
        ]);
    }
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 })
}

/// What a request is about, whichever object it names.
#[derive(Debug, Eq, PartialEq)]
struct Route {
    /// A verb and a resource of the API.
    name: String,
    /// The path with placeholders.
    template: String,
}

fn route(method: &Method, path: &str) -> Route {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let start = if parts.first() == Some(&"api") { 2 } else { 3 };
    let (head, rest) = parts.split_at(start.min(parts.len()));
    let mut template = String::with_capacity(path.len() + "{namespace}{name}".len());
    for part in head {
        template.push('/');
        template.push_str(part);
    }
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => {
            template.push_str("/namespaces/{namespace}");
            rest
        }
        rest => rest,
    };
    let (resource, is_named) = match rest {
        [] => (Cow::Borrowed(path), false),
        [resource] => (Cow::Borrowed(*resource), false),
        [resource, _] => (Cow::Borrowed(*resource), true),
        [resource, _, subresource @ ..] => (Cow::Owned(format!("{resource}/{}", subresource.join("/"))), true),
    };
    for (index, part) in rest.iter().enumerate() {
        template.push('/');
        template.push_str(if index == 1 { "{name}" } else { part });
    }
    let verb = match *method {
        Method::GET if is_named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        ref other => other.as_str(),
    };
    Route { name: [verb, &resource].join(" "), template }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_called_as_the_api_calls_them() {
        for (method, path, name, template) in [
            (Method::POST, "/api/v1/namespaces/a/pods", "create pods", "/api/v1/namespaces/{namespace}/pods"),
            (Method::GET, "/api/v1/pods", "list pods", "/api/v1/pods"),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/pods/web-1",
                "delete pods",
                "/api/v1/namespaces/{namespace}/pods/{name}",
            ),
            (
                Method::PATCH,
                "/apis/app.example.com/v1alpha1/namespaces/a/podsets/web/status",
                "patch podsets/status",
                "/apis/app.example.com/v1alpha1/namespaces/{namespace}/podsets/{name}/status",
            ),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces", "/api/v1/namespaces/{name}"),
            (Method::GET, "/version", "list /version", "/version"),
        ] {
            let expected = Route { name: name.to_owned(), template: template.to_owned() };
            assert_eq!(route(&method, path), expected, "{path}");
        }
    }

    #[test]
    fn the_port_is_that_of_the_scheme_where_none_is_named() {
        for (uri, expected) in [("https://host/a", 443), ("http://host/a", 80), ("https://[::1]:6443/a", 6443)] {
            assert_eq!(port(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
